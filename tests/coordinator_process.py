"""A real coordinator process and tiny backends for it, on free ports of this machine."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

POOL_TOKENS = 40_000
"""Holds one session of 10,000 tokens with its growth reserve, not two."""
START_S_MAX = 20.0


def page(capacity: str = str(POOL_TOKENS)) -> str:
    return (
        f'vllm:cache_config_info{{block_size="16",kv_cache_size_tokens="{capacity}"}} 1.0\n'
        "vllm:num_requests_running 0.0\n"
        "vllm:num_requests_waiting 0.0\n"
        "vllm:kv_cache_usage_perc 0.0\n"
    )


class StubBackend:
    """Serves `/metrics` and `/v1/models` as told; counts anything else."""

    def __init__(self, metrics_page: str | None = None) -> None:
        self.metrics_page = page() if metrics_page is None else metrics_page
        self.status = 200
        self.delay_s = 0.0
        self.other_paths: list[str] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                time.sleep(stub.delay_s)
                if self.path == "/metrics":
                    body = stub.metrics_page.encode()
                elif self.path == "/v1/models":
                    body = b'{"object":"list","data":[{"id":"qwen3"}]}'
                else:
                    stub.other_paths.append(self.path)
                    body = b""
                with contextlib.suppress(ConnectionError):
                    self.send_response(stub.status)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class CoordinatorProcess:
    """`tao coordinator` as its users start it."""

    def __init__(self, arguments: list[str], log_path: Path) -> None:
        self._log_path = log_path
        self._log = log_path.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tao_coordinator", "coordinator", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={k: v for k, v in os.environ.items() if not k.startswith("TAO_")},
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline().decode()
        match = re.search(r"http://127\.0\.0\.1:(\d+) ", self.first_line)
        assert match, f"no start: {self.first_line!r} {self.log()}"
        self.port = int(match.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def log(self) -> str:
        return self._log_path.read_text()

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        content = json.dumps(body).encode() if isinstance(body, Mapping) else body
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            all_headers = {"x-tao-protocol": "1", **(headers or {})}
            if body is not None:
                all_headers.setdefault("content-type", "application/json")
            connection.request(method, path, content, all_headers)
            response = connection.getresponse()
            return Reply(response.status, dict(response.headers), response.read())

    def ask(self, request_id: str, session_id: str, wait_s: int = 0, tokens: int = 10_000) -> Reply:
        return self.call(
            "POST",
            "/tao/v1/leases",
            {"request_id": request_id, "session_id": session_id, "input_tokens": tokens},
            {"prefer": f"wait={wait_s}"} if wait_s else None,
        )

    def open_poll(self, request_id: str, session_id: str, wait_s: int = 10) -> socket.socket:
        """Send a long poll and return its open connection."""
        body = json.dumps(
            {"request_id": request_id, "session_id": session_id, "input_tokens": 10_000}
        ).encode()
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        head = (
            "POST /tao/v1/leases HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"prefer: wait={wait_s}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        return connection

    def state(self) -> Any:
        return self.call("GET", "/tao/v1/state").json()

    def num_held(self) -> int:
        return len(self.state()["held"])

    def terminate(self, timeout_s: float = 15.0) -> float:
        """Send SIGTERM and wait; returns the seconds until the process was gone."""
        started_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout_s)
        return time.monotonic() - started_s

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


@contextlib.contextmanager
def stub_backends(number: int, metrics_page: str | None = None) -> Generator[list[StubBackend]]:
    backends = [StubBackend(metrics_page) for _ in range(number)]
    try:
        yield backends
    finally:
        for backend in backends:
            backend.close()


@contextlib.contextmanager
def coordinator(log_path: Path, *arguments: str) -> Generator[CoordinatorProcess]:
    process = CoordinatorProcess(list(arguments), log_path)
    try:
        yield process
    finally:
        process.close()


def wait_until(is_true: Callable[[], bool], timeout_s: float = 15.0) -> None:
    """Poll a condition; fails when it does not become true."""
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s, "condition did not come true"
        time.sleep(0.02)


def read_reply(connection: socket.socket) -> Reply:
    """The answer on a connection of `open_poll`."""
    response = http.client.HTTPResponse(connection, method="POST")
    with contextlib.closing(response):
        response.begin()
        return Reply(response.status, dict(response.headers), response.read())


def refused_url() -> str:
    """A URL of this machine where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
