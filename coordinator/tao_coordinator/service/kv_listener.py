"""Listens to one engine's KV events over ZeroMQ and tells the core what they say of its cache.

Each message carries a number. One that is missing is asked for at the engine's replay endpoint;
when it cannot be had, everything learned so far is forgotten and the predictions count again: an
index with a gap would go on claiming blocks that were evicted meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendCacheSeen, Event
from tao_coordinator.errors import ConfigurationError, EngineError, MalformedPage

if TYPE_CHECKING:
    import zmq.asyncio

_log = logging.getLogger(__name__)

TELL_INTERVAL_S: Final = 0.25
"""What events say is told to the core this often at most."""
MESSAGES_MAX: Final = 10_000
"""Held by the socket while the loop is busy; more are lost and asked for again."""
MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
REPLAY_S_MAX: Final = 5.0
REPLAYED_MAX: Final = 100_000
RETRY_S: Final = 5.0
_END_OF_REPLAY: Final = b"\xff" * 8


def new_context() -> "zmq.asyncio.Context":
    """What all listeners of a process share: one thread of ZeroMQ's.

    Raises:
        ConfigurationError: The packages for KV events are not installed.
    """
    try:
        import msgspec
        import zmq.asyncio
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'kv_events_url needs {error.name}: pip install "tao-client[kv-events]"'
        ) from error
    del msgspec
    return zmq.asyncio.Context()


class KvListener:
    """Follows the events of one backend for ever."""

    def __init__(
        self, backend: BackendConfig, dispatch: Callable[[Sequence[Event]], object]
    ) -> None:
        from tao_coordinator.adapters.kv_events.index import BlockIndex

        self._backend = backend
        self._dispatch = dispatch
        self._index = BlockIndex()
        self._next: int | None = None
        """Number of the next message; `None`: none was seen yet."""
        self._is_lost = False
        """Everything was forgotten, which the core does not know yet."""
        self.num_messages = 0
        self.num_gaps = 0
        """Gaps that could not be filled."""

    async def run(self, context: "zmq.asyncio.Context") -> None:
        """Listen until cancelled."""
        import zmq

        while True:
            try:
                await self._listen(context)
            except (zmq.ZMQError, OSError) as error:
                _log.warning(
                    "backend %s: no KV events from %s: %s",
                    self._backend.backend_id,
                    self._backend.kv_events_url,
                    error,
                )
            await asyncio.sleep(RETRY_S)

    async def _listen(self, context: "zmq.asyncio.Context") -> None:
        import zmq

        url = self._backend.kv_events_url or ""
        with context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, MESSAGES_MAX)
            socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            # vLLM connects where its endpoint names an address: then it is this side that binds.
            if "//*" in url:
                socket.bind(url)
            else:
                socket.connect(url)
            told_s = time.monotonic()
            while True:
                wait_s = max(0.0, told_s + TELL_INTERVAL_S - time.monotonic())
                if await socket.poll(int(1000 * wait_s) + 1):
                    await self._take(await socket.recv_multipart(), context)
                if time.monotonic() - told_s >= TELL_INTERVAL_S:
                    told_s = time.monotonic()
                    self._tell()

    async def _take(self, frames: list[bytes], context: "zmq.asyncio.Context") -> None:
        """One message: topic, number, payload."""
        if len(frames) != 3 or len(frames[1]) != 8:
            self._lose("a message is no (topic, number, payload)")
            return
        number, payload = int.from_bytes(frames[1], "big"), frames[2]
        self.num_messages += 1
        if self._next is not None and number < self._next:
            # Numbers start again: so does the engine, with an empty cache.
            self._index.forget()
            self._index.was_cleared = True
            self._next = None
        wanted = self._next or 0
        if number > wanted and not await self._replay(wanted, number, context):
            first = self._next is None
            self._lose("" if first else f"messages {wanted} to {number - 1} are lost")
        self._apply(payload)
        self._next = number + 1

    async def _replay(self, first: int, end: int, context: "zmq.asyncio.Context") -> bool:
        """Ask for the messages from `first` up to `end`; false when not all of them came."""
        import zmq

        url = self._backend.kv_events_replay_url
        if url is None:
            return False
        expected = first
        with context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
            socket.connect(url)
            try:
                async with asyncio.timeout(REPLAY_S_MAX):
                    ask: list[bytes] = [b"", first.to_bytes(8, "big")]
                    await socket.send_multipart(ask)  # pyright: ignore[reportUnknownMemberType]
                    for _ in range(REPLAYED_MAX):
                        frames = await socket.recv_multipart()
                        if len(frames) < 2 or frames[-2] == _END_OF_REPLAY:
                            break
                        number = int.from_bytes(frames[-2], "big")
                        if number == expected < end:
                            self._apply(frames[-1])
                            expected += 1
            except TimeoutError:
                return False
        return expected == end

    def _apply(self, payload: bytes) -> None:
        from tao_coordinator.adapters.kv_events.wire import decode

        try:
            events = decode(payload)
        except MalformedPage as error:
            self._lose(str(error))
            return
        for event in events:
            self._index.apply(event)

    def _lose(self, reason: str) -> None:
        self._index.forget()
        self._is_lost = True
        if reason:
            self.num_gaps += 1
            level = logging.WARNING if self.num_gaps == 1 else logging.DEBUG
            _log.log(
                level,
                "backend %s: KV events: %s; its cache is predicted until they tell again",
                self._backend.backend_id,
                reason,
            )

    def _tell(self) -> None:
        was_cleared = self._index.was_cleared
        changes = self._index.take_changes()
        if not (changes or was_cleared or self._is_lost):
            return
        seen = BackendCacheSeen(
            backend_id=self._backend.backend_id,
            was_cleared=was_cleared,
            is_lost=self._is_lost,
            sessions=tuple(changes.items()),
        )
        self._is_lost = False
        try:
            self._dispatch((seen,))
        except EngineError:
            # Logged where it happened.
            self._lose("")
