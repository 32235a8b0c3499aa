"""A scripted coordinator and a model backend for the SDK's tests, on 127.0.0.1.

Both record what they were sent. What the coordinator does with each lease request is a plan of
words:

    grant          200 with a lease on the backend
    slow           the same, after `slow_s`
    hold           202 at once; with `Prefer` only after `poll_s`
    hang           no answer until the stub is closed
    reset          the connection is closed without an answer
    garbage        200 with something that is no JSON
    nonsense       200 with JSON of another shape
    crash          500 without JSON
    trickle        an answer that comes byte by byte and never ends
    dribble        the same, and not even its head is complete
    deep           200 with JSON that is nested without end
    flood          200 with more than any answer can be
    STATUS:TYPE    an error in the coordinator's own shape, for example `429:queue_full`

The last word is repeated for ever.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

RUBBISH = {
    "garbage": b"<html>welcome</html>",
    "deep": b"[" * 50_000,
    "flood": b" " * 1_000_000,
}
"""Whole answers that are none."""


@dataclass(frozen=True)
class Recorded:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at_s: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> dict[str, object]:
        return cast("dict[str, object]", json.loads(self.body))


@dataclass(frozen=True)
class ReceivedEvent:
    name: str
    attributes: dict[str, object]
    timestamp_ns: int
    trace_id: str
    scope: str
    resource: dict[str, object]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away in the middle are part of the tests."""


class Stub:
    """An HTTP server on a free port, in a thread, that records its requests."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.closing = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True
            timeout = 20

            def answer(self) -> None:
                size = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(size)
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Recorded(self.command, self.path, headers, body)
                stub.requests.append(request)
                stub.handle(self, request)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def seen(self, method: str, part: str = "") -> list[Recorded]:
        return [one for one in list(self.requests) if one.method == method and part in one.path]


class CoordinatorStub(Stub):
    def __init__(self, backend_url: str = "http://127.0.0.1:1") -> None:
        super().__init__()
        self.backend_url = backend_url
        self.affinity_headers: dict[str, str] = {}
        self.plan: list[str] = ["grant"]
        self.poll_s = 0.05
        self.slow_s = 0.1
        self.retry_after_s = 0.0
        self.health_status = 200
        self.leader = ""
        """Named along with `503:not_leader`; while it is set, this one is not ready."""
        self.logs_word = ""
        self.renew_status = 204
        self._step = 0
        self._lock = threading.Lock()

    def script(self, *words: str) -> None:
        with self._lock:
            self.plan = list(words)
            self._step = 0

    @property
    def leases(self) -> list[Recorded]:
        return [one for one in self.seen("POST", "/tao/v1/leases") if one.path.count("/") == 3]

    @property
    def releases(self) -> list[dict[str, object]]:
        return [one.json for one in self.seen("POST", "/release")]

    @property
    def withdrawals(self) -> list[str]:
        return [one.path.rsplit("/", 1)[-1] for one in self.seen("DELETE", "/tao/v1/leases/")]

    @property
    def events(self) -> list[ReceivedEvent]:
        return [event for one in self.seen("POST", "/v1/logs") for event in decode_events(one.body)]

    def events_named(self, name: str) -> list[ReceivedEvent]:
        return [event for event in self.events if event.name == name]

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        if request.path == "/tao/v1/leases" and request.method == "POST":
            with self._lock:
                word = self.plan[min(self._step, len(self.plan) - 1)]
                self._step += 1
            self._answer_lease(handler, request, word)
        elif request.path == "/v1/logs":
            if self.logs_word:
                self._answer_lease(handler, request, self.logs_word)
            else:
                send(handler, 200, b"", "application/x-protobuf")
        elif request.path in ("/healthz", "/readyz"):
            status = 503 if self.leader and request.path == "/readyz" else self.health_status
            send(handler, status, b"ok", "text/plain")
        elif request.path.endswith("/renew"):
            send(handler, self.renew_status, b"")
        else:
            send(handler, 204, b"")

    def _answer_lease(self, handler: BaseHTTPRequestHandler, request: Recorded, word: str) -> None:
        if word in ("grant", "slow"):
            self.closing.wait(self.slow_s if word == "slow" else 0.0)
            send_json(handler, 200, self._grant(request))
        elif word == "hold":
            if "prefer" in request.headers:
                self.closing.wait(self.poll_s)
            held = {
                "queue_position": 3,
                "estimated_wait_s": 1.5,
                "retry_after_s": self.retry_after_s,
            }
            send_json(handler, 202, held)
        elif word == "hang":
            self.closing.wait(30)
            handler.close_connection = True
        elif word == "reset":
            # Linger 0: close sends RST, as a killed process does.
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
            handler.close_connection = True
        elif word in RUBBISH:
            send(handler, 200, RUBBISH[word])
        elif word == "nonsense":
            send_json(handler, 200, {"lease_id": 7})
        elif word == "crash":
            send(handler, 500, b"Internal Server Error", "text/plain")
        elif word in ("trickle", "dribble"):
            head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n"
            handler.wfile.write(head + (b"\r\n" if word == "trickle" else b"x: "))
            while not self.closing.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()
            handler.close_connection = True
        else:
            status, kind = word.split(":")
            error = {"type": kind, "message": "as planned", "retry_after_s": 1.0}
            send_json(handler, int(status), {"error": error | self._named_leader()})

    def _named_leader(self) -> dict[str, str]:
        return {"leader": self.leader} if self.leader else {}

    def _grant(self, request: Recorded) -> dict[str, object]:
        return {
            "lease_id": f"lease-{request.json['request_id']}",
            "start_within_s": 5,
            "affinity": {
                "backend_id": "gpu-1",
                "base_url": self.backend_url,
                "headers": self.affinity_headers,
                "strength": "hard",
            },
            "receipt": {
                "policy": "tao",
                "reason": "resident",
                "hold_s": 0.25,
                "cache_credit_tokens": 900,
                "plan_id": None,
            },
        }


USAGE: dict[str, object] = {
    "prompt_tokens": 1200,
    "completion_tokens": 34,
    "total_tokens": 1234,
    "prompt_tokens_details": {"cached_tokens": 1024},
}


class BackendStub(Stub):
    """Answers chat completions, whole or streamed."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: list[int] = []
        self.pause_s = 0.0
        self.words = ["Hello", " ", "world"]
        self.usage: dict[str, object] | None = USAGE
        self.breaks_off = False
        self.content_encoding = ""
        self.ends_in_a_blank_line = True

    @property
    def calls(self) -> list[Recorded]:
        return self.seen("POST")

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        if self.statuses:
            status = self.statuses.pop(0)
            if status != 200:
                send_json(handler, status, {"error": {"message": "as planned", "type": "x"}})
                return
        if request.json.get("stream"):
            self._stream(handler, request)
            return
        self.closing.wait(self.pause_s)
        message = {"role": "assistant", "content": "".join(self.words)}
        reply = {
            **envelope("chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        }
        if self.usage is not None:
            reply["usage"] = self.usage
        send_json(handler, 200, reply)

    def _stream(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        options = cast("dict[str, object]", request.json.get("stream_options") or {})
        asked = bool(options.get("include_usage"))
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        if self.content_encoding:
            handler.send_header("content-encoding", self.content_encoding)
        handler.end_headers()
        for number, word in enumerate(self.words, start=1):
            reason = "stop" if number == len(self.words) else None
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": reason}
            chunk = {**envelope("chat.completion.chunk"), "choices": [choice]}
            write_event(handler, json.dumps(chunk | ({"usage": None} if asked else {})))
            if self.breaks_off:
                handler.wfile.flush()
                handler.connection.shutdown(socket.SHUT_RDWR)
                handler.close_connection = True
                return
            self.closing.wait(self.pause_s)
        if asked and self.usage is not None:
            last: dict[str, object] = {"choices": [], "usage": self.usage}
            write_event(handler, json.dumps(envelope("chat.completion.chunk") | last))
        write_event(handler, "[DONE]", "\n\n" if self.ends_in_a_blank_line else "")
        handler.wfile.write(b"0\r\n\r\n")


def envelope(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "stub-model"}


def write_event(handler: BaseHTTPRequestHandler, data: str, ending: str = "\n\n") -> None:
    event = f"data: {data}{ending}".encode()
    handler.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
    handler.wfile.flush()


def send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "application/json"
) -> None:
    handler.send_response(status)
    if status != 204:
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
    handler.wfile.flush()


def send_json(handler: BaseHTTPRequestHandler, status: int, document: object) -> None:
    send(handler, status, json.dumps(document).encode())


def decode_events(body: bytes) -> list[ReceivedEvent]:
    request = ExportLogsServiceRequest.FromString(body)
    return [
        ReceivedEvent(
            name=record.event_name,
            attributes={one.key: _value(one.value) for one in record.attributes},
            timestamp_ns=record.time_unix_nano,
            trace_id=record.trace_id.hex(),
            scope=scope.scope.name,
            resource={one.key: _value(one.value) for one in resource.resource.attributes},
        )
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(one) for one in value.array_value.values)
    return None if kind is None else getattr(value, kind)


def free_url() -> str:
    """A URL on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def eventually(condition: Callable[[], object], limit_s: float = 10.0) -> bool:
    """Wait until something is so; False if it does not become so."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if condition():
            return True
        time.sleep(0.005)
    return bool(condition())
