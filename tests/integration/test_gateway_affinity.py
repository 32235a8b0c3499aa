"""Two engines behind one gateway: the pin goes there in its own words, and who served comes back.

The gateway is a stub that obeys llm-d's documented header; coordinator, SDK and clients are real.
"""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import openai
import pytest
from coordinator_process import CoordinatorProcess, coordinator, wait_until

import tao_client as tao
from tao_client import testing

PODS = {"a": "ZGVmYXVsdC9sbG0tMA==", "b": "ZGVmYXVsdC9sbG0tMQ=="}
"""base64 of default/llm-0 and default/llm-1."""
FILE = """
[[backend]]
backend_id = "a"
base_url = "{url}"
gateway = "llm-d"
gateway_target = "default/llm-0"
capacity_tokens = 100000

[[backend]]
backend_id = "b"
base_url = "{url}"
gateway = "llm-d"
gateway_target = "default/llm-1"
capacity_tokens = 100000
"""
REPLY = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 2, "total_tokens": 902},
}


class Gateway:
    """Serves every call itself and says that `served` (or the asked one) did."""

    def __init__(self) -> None:
        self.served: str | None = None
        self.asked: list[str | None] = []
        self.sessions: list[str | None] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.answer({"object": "list", "data": [{"id": "m"}]})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                token = self.headers["x-session-token"]
                gateway.asked.append(token)
                gateway.sessions.append(self.headers["x-session-id"])
                self.answer(REPLY, gateway.served or token)

            def answer(self, document: object, token: str | None = None) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                if token:
                    self.send_header("x-session-token", token)
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


@contextmanager
def fleet(path: Path) -> Generator[tuple[Gateway, CoordinatorProcess]]:
    gateway = Gateway()
    try:
        file = path / "backends.toml"
        file.write_text(FILE.format(url=gateway.url))
        with coordinator(path / "log", "--backends-file", str(file)) as service:
            wait_until(lambda: service.call("GET", "/readyz").status == 200)
            yield gateway, service
    finally:
        gateway.close()


def home(service: CoordinatorProcess) -> str | None:
    return service.state()["sessions"][0]["seat_backend_id"]


def check(gateway: Gateway, service: CoordinatorProcess, call: Callable[[], object]) -> None:
    call()
    asked = gateway.asked[0]
    assert asked in PODS.values()
    first = next(name for name, token in PODS.items() if token == asked)
    wait_until(lambda: home(service) == first)
    # This time the gateway takes the other engine: the cache is there from now on.
    other = "b" if first == "a" else "a"
    gateway.served = PODS[other]
    call()
    wait_until(lambda: home(service) == other)
    call()
    assert gateway.asked == [PODS[first], PODS[first], PODS[other]]
    assert gateway.sessions == ["s1"] * 3
    assert service.state()["counters"]["served_elsewhere"] == 1


def test_relay_pins_and_reads_back(tmp_path: Path) -> None:
    with fleet(tmp_path) as (gateway, service):
        client = openai.OpenAI(base_url=f"{service.url}/v1", api_key="k", max_retries=0)
        with client:
            check(
                gateway,
                service,
                lambda: client.chat.completions.create(
                    model="m",
                    messages=[{"role": "user", "content": "hi"}],
                    extra_headers={"x-session-id": "s1"},
                ),
            )


def test_sdk_pins_and_reads_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    with fleet(tmp_path) as (gateway, service):
        tao.connect(service.url)
        client = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0)
        try:
            with client, tao.session("s1"):
                wrapped = tao.wrap(client)
                check(
                    gateway,
                    service,
                    lambda: wrapped.chat.completions.create(
                        model="m", messages=[{"role": "user", "content": "hi"}]
                    ),
                )
        finally:
            tao.disconnect()
