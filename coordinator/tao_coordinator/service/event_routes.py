"""Lifecycle events over HTTP: OTLP (`/v1/logs`, `/v1/traces`, `/v1/metrics`) and harness hooks.

Answered once the engine has seen the events. The OTLP endpoints are plain ASGI: one event is a
request of its own, and Starlette's request and response objects would cost as much as reading it.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tao_coordinator.adapters.events import claude_code, log_records, otlp, spans
from tao_coordinator.adapters.events.otlp import OtlpReply, Signal
from tao_coordinator.adapters.events.receiver import RECORDS_MAX, EventReceiver, Received, Tally
from tao_coordinator.errors import MalformedRequest, RequestError
from tao_coordinator.service.bodies import declared_length, read_json_body, read_raw_body
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.replies import json_response
from tao_coordinator.service.runtime import Runtime

THREAD_BYTES_MIN: Final = 64 * 1024
"""Larger bodies are unpacked in a thread, and so are spans, which are all read before the first."""
STEP_RECORDS_MAX: Final = 128
"""Records read and stepped in one go; then other requests get their turn."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""Bodies being received or read at once; beyond it emitters are asked to come again."""
HOOK_BYTES_MAX: Final = 8 * 1024 * 1024
"""A hook carries what its tool has put out."""
RETRY_S: Final = 1.0

Result = TypeVar("Result")

HOOK_PATHS: Final = ("/hooks/claude-code", "/hooks/codex")
"""Codex sends the same shape, by a command that posts what it gets on standard input."""


class EventRoutes:
    """Receives events; OTLP errors are answered as OTLP asks."""

    def __init__(
        self,
        runtime: Runtime,
        metrics: ServiceMetrics,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._wall_clock = wall_clock
        self._receiver = EventReceiver()
        self._num_bytes = 0
        """Of bodies under way; a body of unknown length counts as the longest."""

    def routes(self) -> list[Route]:
        """Each OTLP signal's path and each harness's."""
        return [
            *(
                Route(signal.value, _OtlpEndpoint(self, signal), methods=["POST"])
                for signal in Signal
            ),
            *(Route(path, self.hook, methods=["POST"]) for path in HOOK_PATHS),
        ]

    async def hook(self, request: Request) -> Response:
        """`POST /hooks/claude-code`: one hook. An empty object lets the harness go on."""
        with self._reserved(request.scope, HOOK_BYTES_MAX):
            body = await read_json_body(request, HOOK_BYTES_MAX)
        try:
            payload: object = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise MalformedRequest("body is no JSON") from None
        events = claude_code.events_from_hook(payload)
        tally = Tally()
        self._take(self._receiver.hook(events, self._wall_clock(), tally))
        self._metrics.observe_tally(tally, "hook")
        return json_response({})

    async def otlp(self, signal: Signal, scope: Scope, receive: Receive) -> OtlpReply:
        """One OTLP request."""
        content_type, content_encoding = _content_headers(scope)
        media_type = otlp.media_type_of(content_type)
        if self._runtime.is_closing:
            message = "the coordinator is shutting down"
            raise RequestError(503, "shutting_down", message, RETRY_S)
        with self._reserved(scope, otlp.BODY_BYTES_MAX):
            body = await read_raw_body(scope, receive, otlp.BODY_BYTES_MAX)
            if content_encoding:
                # A small compressed body may hold a lot.
                body = await _in_thread(
                    len(body) > 4096, partial(otlp.unpack, body, content_encoding)
                )
            if signal is Signal.LOGS:
                return await self._logs(body, media_type)
            if signal is Signal.TRACES:
                return await self._traces(body, media_type)
        # Emitters send metrics to the same address as events; they tell a scheduler nothing.
        return otlp.success_reply(signal, media_type)

    async def _logs(self, body: bytes, media_type: str) -> OtlpReply:
        is_protobuf = media_type == otlp.PROTOBUF
        read = log_records.rows_from_protobuf if is_protobuf else log_records.rows_from_json
        rows, num_skipped = read(body, RECORDS_MAX)
        now_unix_s = self._wall_clock()
        tally = Tally()
        while chunk := list(islice(rows, STEP_RECORDS_MAX)):
            self._take(self._receiver.logs(chunk, now_unix_s, tally))
            if len(chunk) == STEP_RECORDS_MAX:
                await asyncio.sleep(0)
        self._metrics.observe_tally(tally, "event")
        return _reply(Signal.LOGS, media_type, tally, num_skipped)

    async def _traces(self, body: bytes, media_type: str) -> OtlpReply:
        is_protobuf = media_type == otlp.PROTOBUF
        read = spans.rows_from_protobuf if is_protobuf else spans.rows_from_json
        rows, num_skipped = await _in_thread(
            len(body) >= THREAD_BYTES_MIN, partial(read, body, RECORDS_MAX)
        )
        tool_spans = self._receiver.look_over(rows)
        now_unix_s = self._wall_clock()
        tally = Tally()
        for first in range(0, len(rows), STEP_RECORDS_MAX):
            if first:
                await asyncio.sleep(0)
            chunk = rows[first : first + STEP_RECORDS_MAX]
            self._take(self._receiver.spans(chunk, tool_spans, now_unix_s, tally))
        self._metrics.observe_tally(tally, "span")
        return _reply(Signal.TRACES, media_type, tally, num_skipped)

    def _take(self, received: Sequence[Received]) -> None:
        if received:
            self._metrics.observe_events(received)
            self._runtime.dispatch(
                [record.event for record in received], [record.age_s for record in received]
            )

    @contextlib.contextmanager
    def _reserved(self, scope: Scope, limit_bytes: int) -> Generator[None, None, None]:
        """Room for one body.

        Raises:
            RequestError: 429, too many are under way.
        """
        declared = declared_length(scope)
        num_bytes = limit_bytes if declared is None else min(declared, limit_bytes)
        if self._num_bytes + num_bytes > BYTES_MAX:
            message = f"more than {BYTES_MAX} bytes of events are under way"
            raise RequestError(429, "too_many_events", message, RETRY_S)
        self._num_bytes += num_bytes
        try:
            yield
        finally:
            self._num_bytes -= num_bytes


class _OtlpEndpoint:
    """One signal's path as an ASGI application."""

    def __init__(self, routes: EventRoutes, signal: Signal) -> None:
        self._routes = routes
        self._signal = signal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._routes.otlp(self._signal, scope, receive)
        headers = [
            (b"content-type", reply.content_type.encode("ascii")),
            (b"content-length", b"%d" % len(reply.body)),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})


def _content_headers(scope: Scope) -> tuple[str, str]:
    content_type = content_encoding = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            content_type = value
        elif name == b"content-encoding":
            content_encoding = value
    return content_type.decode("latin-1"), content_encoding.decode("latin-1")


async def _in_thread(is_long: bool, work: Callable[[], Result]) -> Result:
    return await asyncio.to_thread(work) if is_long else work()


def _reply(signal: Signal, media_type: str, tally: Tally, num_skipped: int) -> OtlpReply:
    num_rejected = tally.rejected.total() + num_skipped
    message = tally.first_message or f"more than {RECORDS_MAX} records in one request"
    return otlp.success_reply(signal, media_type, num_rejected, message)
