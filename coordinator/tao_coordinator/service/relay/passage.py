"""One relayed call: lease, backend, reply, in this order, and back out of each when it fails.

What the client is told depends on how far its answer has come: before the first byte a status of
its own, after it an error event of its API, and where not even that fits, a connection that breaks.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp
from starlette.types import Scope, Send

from tao_coordinator.config import BackendConfig
from tao_coordinator.core.effects import Hold
from tao_coordinator.core.events import Headers, LeaseReleased, TurnOutcome, TurnRequested
from tao_coordinator.errors import EngineError, RequestError
from tao_coordinator.service import receipts
from tao_coordinator.service.relay.call import ModelCall
from tao_coordinator.service.relay.dialects import LAST_EVENT_MARKS, error_event
from tao_coordinator.service.relay.fleet import Fleet
from tao_coordinator.service.relay.identity import Identity
from tao_coordinator.service.relay.leasing import Leasing
from tao_coordinator.service.relay.prompt_sizes import PromptSizes
from tao_coordinator.service.relay.upstream import (
    BackendFailed,
    Upstream,
    passed_headers,
    reason_of,
    sent_headers,
)
from tao_coordinator.service.relay.usage import BodyReader, Reader, StreamReader
from tao_coordinator.service.relay.watch import CallWatch
from tao_coordinator.service.replies import affinity_headers, error_response

_log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 4
"""Leases that one call may take: three failures in a row make a backend unhealthy, the fourth lease
is elsewhere."""
REACHED_MAX: Final = 2
"""Of these, such as may have reached a backend that then failed: a call that kills engines must not
be shown to all of them, but one idle connection may have gone stale."""
ERROR_BYTES_MAX: Final = 64 * 1024
"""Of a backend's error that is told inside a stream."""
LAST_WORD_S_MAX: Final = 1.0
"""For a stream's error event to get into the client's connection."""
_EVENT_STREAM: Final = b"text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayDesk:
    """What all relayed calls share."""

    leasing: Leasing
    upstream: Upstream
    fleet: Fleet
    sizes: PromptSizes
    keep_alive_s: float
    """A held stream shows this often that it is alive."""
    hides_credentials: bool
    """Clients show the coordinator's key, which is no backend's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """Where one attempt goes, and under which lease."""

    backend_id: str
    base_url: str
    affinity: Mapping[str, str]
    receipt: bytes
    served_by_names: tuple[str, ...] = ()
    """Response headers that tell which backend a gateway took."""
    lease_id: str | None
    """`None`: sent without one, since the engine has failed."""


class Passage:
    """One call from its lease to the last byte of its reply."""

    def __init__(
        self,
        desk: RelayDesk,
        call: ModelCall,
        identity: Identity,
        scope: Scope,
        watch: CallWatch,
        send: Send,
    ) -> None:
        self._desk = desk
        self._call = call
        self._identity = identity
        self._scope = scope
        self._watch = watch
        self._send = send
        self._size_key = (identity.session_id, identity.agent, call.model)
        self._has_begun = False
        self._lease_id: str | None = None
        self._reader: Reader | None = None
        """Of the reply whose bytes the client is getting."""
        self._sent_s = 0.0
        self._ttft_s: float | None = None
        self._served_by: Headers = ()

    async def run(self) -> None:
        """Serve the call.

        Raises:
            RequestError: To be told to the client by `refuse`.
            CallStalled, ClientDisconnect: By the watch; everything is given back.
        """
        failure = ""
        num_reached = 0
        for attempt in range(1, ATTEMPTS_MAX + 1):
            turn = self._turn()
            way = await self._find_way(turn, attempt)
            backend = self._desk.fleet.get(way.backend_id)
            if way.lease_id is not None and self._may_redirect(backend):
                self._desk.leasing.hand_over(way.lease_id, turn, is_single=self._identity.is_single)
                return await self._redirect(way)
            self._lease_id = way.lease_id
            outcome = TurnOutcome.CANCELLED
            try:
                response = await self._open(way, backend, turn.request_id)
                try:
                    outcome = await self._pass_on(way, response)
                    return None
                finally:
                    # Ends the call at the backend wherever it is; a finished one is left in peace.
                    response.close()
            except BackendFailed as error:
                failure = f"backend {way.backend_id} failed: {error}"
                outcome = TurnOutcome.ERROR
                _log.info("relay: backend %s: %s", way.backend_id, error)
                self._desk.fleet.tell_failure(way.backend_id, str(error))
                num_reached += error.was_reached
                if self._reader is not None or num_reached == REACHED_MAX:
                    break
            except RequestError:
                outcome = TurnOutcome.ERROR
                raise
            finally:
                self._give_back(outcome)
        raise RequestError(502, "backend_failed", failure, 1.0)

    async def refuse(self, error: RequestError) -> None:
        """Tell the client why there is no answer, or no more of it."""
        if not self._has_begun:
            response = error_response(self._scope, error)
            await self._send_start(response.status_code, response.raw_headers)
            await self._send_body(bytes(response.body), more=False)
        elif self._reader is None or self._reader.is_whole:
            event = error_event(self._call.endpoint.dialect, error)
            # A client that does not read is what may have been wrong.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S_MAX):
                    await self._send_body(event, more=False)

    # --- the way ---------------------------------------------------------------------------------

    def _turn(self) -> TurnRequested:
        who, call = self._identity, self._call
        return TurnRequested(
            request_id=self._desk.leasing.new_request_id(),
            session_id=who.session_id,
            root_session_id=who.root_session_id,
            parent_session_id=who.parent_session_id,
            agent=who.agent,
            model=call.model,
            input_tokens=self._desk.sizes.estimate_tokens(self._size_key, call.input_chars),
            max_output_tokens=call.max_output_tokens,
            priority=who.priority,
            tenant=who.tenant,
            timeout_s=who.timeout_s,
        )

    async def _find_way(self, turn: TurnRequested, attempt: int) -> _Way:
        try:
            grant = await self._desk.leasing.take(
                turn, self._watch.gone, self._desk.keep_alive_s, self._show_hold
            )
        except EngineError:
            backend = self._desk.fleet.any()
            if backend is None:
                raise
            self._desk.fleet.metrics.relay_fail_open.inc()
            return _Way(
                backend_id=backend.backend_id,
                base_url=backend.base_url,
                affinity={},
                receipt=receipts.header("fail-open", backend_id=backend.backend_id),
                lease_id=None,
            )
        return _Way(
            backend_id=grant.backend_id,
            base_url=grant.base_url,
            affinity=affinity_headers(grant, self._identity.session_id),
            receipt=receipts.granted_header(grant, attempt),
            served_by_names=grant.served_by_names,
            lease_id=grant.lease_id,
        )

    async def _show_hold(self, hold: Hold) -> None:
        if not self._call.wants_stream:
            return
        if not self._has_begun:
            headers = [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (receipts.HEADER, receipts.header("held")),
            ]
            await self._send_start(200, headers)
        await self._send_body(b": held, position %d\n\n" % hold.queue_position)

    def _give_back(self, outcome: TurnOutcome) -> None:
        """The first time counts: the last event of a stream, or the end of the call."""
        lease_id, self._lease_id = self._lease_id, None
        if lease_id is None:
            return
        reader = self._reader
        usage = None if reader is None else reader.usage
        is_done = outcome is TurnOutcome.COMPLETED
        released = LeaseReleased(
            lease_id=lease_id,
            outcome=outcome,
            input_tokens=None if usage is None else usage.input_tokens,
            cached_tokens=None if usage is None else usage.cached_tokens,
            output_tokens=None if usage is None else usage.output_tokens,
            ttft_s=self._ttft_s,
            duration_s=time.monotonic() - self._sent_s if is_done else None,
            served_by=self._served_by,
        )
        who = self._identity
        if is_done and usage is not None and usage.input_tokens is not None:
            self._desk.sizes.learn(
                self._size_key,
                self._call.input_chars,
                usage.input_tokens,
                is_last=who.is_single,
            )
        self._desk.leasing.give_back(released, who.session_id if who.is_single else None)

    # --- redirect --------------------------------------------------------------------------------

    def _may_redirect(self, backend: BackendConfig | None) -> bool:
        return (
            backend is not None
            and backend.redirect
            and not self._has_begun
            and not self._call.is_rewritten
        )

    async def _redirect(self, way: _Way) -> None:
        headers = [
            (b"location", self._url(way).encode("latin-1")),
            (b"content-length", b"0"),
            (receipts.HEADER, way.receipt),
        ]
        await self._send_start(307, headers)
        await self._send_body(b"", more=False)

    # --- the call itself -------------------------------------------------------------------------

    def _url(self, way: _Way) -> str:
        url = way.base_url + self._call.endpoint.path
        query: bytes = self._scope["query_string"]
        return f"{url}?{query.decode('latin-1')}" if query else url

    async def _open(
        self, way: _Way, backend: BackendConfig | None, request_id: str
    ) -> aiohttp.ClientResponse:
        headers = sent_headers(
            self._scope["headers"],
            backend,
            way.affinity,
            request_id,
            hides_credentials=self._desk.hides_credentials,
        )
        self._watch.start_clock()
        self._sent_s = time.monotonic()
        return await self._desk.upstream.send("POST", self._url(way), headers, self._call.content)

    async def _pass_on(self, way: _Way, response: aiohttp.ClientResponse) -> TurnOutcome:
        named = ((name, response.headers.get(name)) for name in way.served_by_names)
        self._served_by = tuple((name, value) for name, value in named if value)
        kind = response.headers.get("content-type", "").encode("latin-1", "replace")
        is_stream = kind.startswith(_EVENT_STREAM)
        if self._has_begun and (response.status != 200 or not is_stream):
            raise await _error_in(response)
        reader: Reader = BodyReader()
        if is_stream and response.headers.get("content-encoding", "identity") == "identity":
            mark = LAST_EVENT_MARKS[self._call.endpoint.dialect]
            reader = StreamReader(takes_usage_out=self._call.takes_usage_out, last_mark=mark)
        headers = passed_headers(response.raw_headers, keeps_length=not is_stream)
        headers.append((receipts.HEADER, way.receipt))
        outcome = TurnOutcome.COMPLETED if response.status < 300 else TurnOutcome.ERROR
        watch, content = self._watch, response.content
        while True:
            passed = reader.feed(await _next_chunk(content))
            if self._ttft_s is None and reader.has_token:
                self._ttft_s = time.monotonic() - self._sent_s
            is_over = content.at_eof()
            if (passed or is_over) and self._reader is None:
                # Not with the reply's head: engines send it at once, and may die in the prefill.
                self._reader = reader
                await self._begin(response.status, headers, way.receipt)
            if is_over:
                break
            if passed:
                await self._send_body(passed)
            if reader.is_complete:
                # The turn is over; what a backend takes to close its stream is not the session's.
                self._give_back(outcome)
            watch.moved()
        watch.stop()
        rest = reader.end()
        await self._send_body(passed + rest if rest else passed, more=False)
        return outcome

    async def _begin(self, status: int, headers: list[tuple[bytes, bytes]], receipt: bytes) -> None:
        if self._has_begun:
            await self._send_body(b": %b %b\n\n" % (receipts.HEADER, receipt))
        else:
            await self._send_start(status, headers)

    async def _send_start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _send_body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


async def _next_chunk(content: aiohttp.StreamReader) -> bytes:
    try:
        return await content.readany()
    except (aiohttp.ClientError, OSError) as error:
        reason = f"broke off its reply: {reason_of(error)}"
        raise BackendFailed(reason, was_reached=True) from error


async def _error_in(response: aiohttp.ClientResponse) -> RequestError:
    """What a backend has against a call whose client waits in a stream already."""
    text = b""
    with contextlib.suppress(BackendFailed):
        while len(text) < ERROR_BYTES_MAX and (chunk := await _next_chunk(response.content)):
            text += chunk
    message = text[:2000].decode("utf-8", "replace") or "no reason given"
    return RequestError(
        response.status, "backend_error", f"HTTP {response.status} of the backend: {message}"
    )
