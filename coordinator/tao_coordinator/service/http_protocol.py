"""uvicorn's HTTP protocol with bounds on heads and on peers that do not read, which it has not.

A peer that sends a head byte by byte, or one without end, or that never takes its answer, would
hold a connection or the memory for good. Bodies have bounds of their own (`service.bodies`). An
offer to go on in another protocol is passed over, as HTTP allows: the parser would take it for
accepted and lose the request's body.
"""

import asyncio
import re
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tao_coordinator.service.relay import dialects

HEAD_S_MAX: Final = 10.0
"""From the first byte of a request to the end of its head."""
HEAD_BYTES_MAX: Final = 64 * 1024
"""Request line and headers, counted by whole reads of the socket."""
UNREAD_S_MAX: Final = 30.0
"""A peer that takes no byte of a waiting answer for this long is cut off; a relayed call that still
runs has a limit of its own (`--relay-idle`)."""
_OFFER = re.compile(rb"(?<=\r\n)upgrade(?=:)", re.IGNORECASE)
"""Java's HTTP client makes it (h2c) with every request, Codex (websocket) with some."""
_OFFER_PASSED_OVER = b"x-grade"


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closes connections whose head takes too long or too much, or that never send anything."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_in_head = False
        self._is_in_body = False
        self._head_bytes = 0
        self._unread_timer: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer is here; without a first byte it is idle like any kept connection."""
        super().connection_made(cast("asyncio.Transport", transport))
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer is gone."""
        self._end_head()
        self._end_unread()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not keep up."""
        super().pause_writing()
        self._end_unread()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """It does again."""
        self._end_unread()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse, and count what belongs to an unfinished head."""
        if not self._is_in_body and _OFFER.search(data) is not None:
            head, end, rest = data.partition(b"\r\n\r\n")
            data = _OFFER.sub(_OFFER_PASSED_OVER, head) + end + rest
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._end_head()
        self._is_in_head = True
        self._head_timer = self.loop.call_later(HEAD_S_MAX, self._head_took_too_long)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._end_head()
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The body is there."""
        self._is_in_body = False
        super().on_message_complete()

    def _end_head(self) -> None:
        self._is_in_head = False
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _wait_for_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread_timer = self.loop.call_later(UNREAD_S_MAX, self._look_at_reader)

    def _look_at_reader(self) -> None:
        is_reading = self.transport.get_write_buffer_size() < self._unread_bytes
        is_watched = dialects.is_relayed(self.scope["path"]) and not self.transport.is_closing()
        if is_reading or is_watched:
            self._wait_for_reader()
        else:
            # Closing would wait until everything is read.
            self.transport.abort()

    def _end_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _head_took_too_long(self) -> None:
        # None before the first request, whatever its type says.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            # It waits behind the answer to the request before, which also holds up reading.
            self._head_timer = self.loop.call_later(HEAD_S_MAX, self._head_took_too_long)
        else:
            self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        self._end_head()
        if not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
            self.transport.close()
