"""KV events over real ZeroMQ sockets: followed, replayed, lost, restarted, and rubbish."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest
import zmq
import zmq.asyncio

from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendCacheSeen, Event
from tao_coordinator.service import kv_listener
from tao_coordinator.service.kv_listener import KvListener

SIZE = 16


def stored(*hashes: int, parent: int | None = None, session: str = "s") -> bytes:
    event = {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": [],
        "block_size": SIZE,
        "session_id": session,
    }
    return msgspec.msgpack.encode([0.0, [event], 0])


class Publisher:
    """An engine's side: publishes, and answers requests for old messages."""

    def __init__(self, context: zmq.asyncio.Context) -> None:
        self.sent: dict[int, bytes] = {}
        self.socket = context.socket(zmq.PUB)
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.replay = context.socket(zmq.ROUTER)
        self.replay_port = self.replay.bind_to_random_port("tcp://127.0.0.1")
        self.task = asyncio.create_task(self._answer())
        self.num_asked = 0

    async def publish(self, number: int, payload: bytes, *, keep: bool = True) -> None:
        if keep:
            self.sent[number] = payload
        await self.socket.send_multipart([b"", struct.pack(">Q", number), payload])  # pyright: ignore

    async def _answer(self) -> None:
        while True:
            peer, _, first = await self.replay.recv_multipart()
            self.num_asked += 1
            for number, payload in sorted(self.sent.items()):
                if number >= int.from_bytes(first, "big"):
                    reply = [peer, b"", struct.pack(">Q", number), payload]
                    await self.replay.send_multipart(reply)  # pyright: ignore
            await self.replay.send_multipart([peer, b"", b"\xff" * 8, b""])  # pyright: ignore

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.socket.close(0)
        self.replay.close(0)


class World:
    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.seen: dict[str, int] = {}
        self.num_cleared = 0
        self.num_lost = 0
        self.listener: KvListener | None = None

    def dispatch(self, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, BackendCacheSeen)
            self.num_cleared += event.was_cleared
            self.num_lost += event.is_lost
            if event.is_lost:
                self.seen.clear()
            for session_id, tokens in event.sessions:
                if tokens is None:
                    self.seen.pop(session_id, None)
                else:
                    self.seen[session_id] = tokens

    async def until(self, **tokens: int) -> None:
        for _ in range(1_000):
            if self.seen == tokens:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{self.seen} did not become {tokens}")


def live(body: Callable[[World], Awaitable[None]], *, replay: bool = True) -> World:
    async def run() -> World:
        with zmq.asyncio.Context() as context:
            publisher = Publisher(context)
            world = World(publisher)
            backend = BackendConfig(
                backend_id="b",
                base_url="http://b",
                kv_events_url=f"tcp://127.0.0.1:{publisher.port}",
                kv_events_replay_url=f"tcp://127.0.0.1:{publisher.replay_port}" if replay else None,
            )
            world.listener = KvListener(backend, world.dispatch)
            task = asyncio.create_task(world.listener.run(context))
            try:
                # A subscription takes a moment to arrive; nothing tells when it has.
                await asyncio.sleep(0.3)
                await asyncio.wait_for(body(world), 30)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await publisher.close()
        return world

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_listener, "TELL_INTERVAL_S", 0.02)


def test_events_are_followed() -> None:
    async def body(world: World) -> None:
        await world.publisher.publish(0, stored(1, 2))
        await world.until(s=32)
        await world.publisher.publish(1, stored(3, parent=2))
        await world.until(s=48)
        await world.publisher.publish(2, msgspec.msgpack.encode([0.0, [["BlockRemoved", [3, 2]]]]))
        await world.until(s=16)

    world = live(body)
    assert (world.num_lost, world.publisher.num_asked) == (0, 0)


def test_what_happened_before_is_asked_for() -> None:
    async def body(world: World) -> None:
        world.publisher.sent = {0: stored(1, 2), 1: stored(3, parent=2)}
        await world.publisher.publish(2, stored(4, parent=3))
        await world.until(s=64)

    assert live(body).num_lost == 0


def test_lost_messages_are_asked_for() -> None:
    async def body(world: World) -> None:
        await world.publisher.publish(0, stored(1))
        await world.until(s=16)
        world.publisher.sent[1] = stored(2, parent=1)
        world.publisher.sent[2] = stored(3, parent=2)
        await world.publisher.publish(3, stored(4, parent=3))
        await world.until(s=64)

    assert live(body).num_lost == 0


@pytest.mark.parametrize("replay", [True, False])
def test_gap_that_cannot_be_filled_makes_everything_unknown(
    replay: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(world: World) -> None:
        await world.publisher.publish(0, stored(1), keep=False)
        await world.until(s=16)
        await world.publisher.publish(5, stored(6, parent=5))
        await world.until()
        # A prompt that begins anew is known again.
        await world.publisher.publish(6, stored(9, session="t"))
        await world.until(t=16)

    world = live(body, replay=replay)
    assert world.num_lost == 1
    assert world.listener is not None
    assert world.listener.num_gaps == 1
    assert len(caplog.messages) == 1


def test_numbers_that_start_again_are_a_restarted_engine() -> None:
    async def body(world: World) -> None:
        for number in range(3):
            await world.publisher.publish(number, stored(number + 1, parent=number or None))
        await world.until(s=48)
        world.publisher.sent.clear()
        await world.publisher.publish(0, stored(7, session="t"))
        await world.until(t=16)

    assert live(body).num_cleared == 1


def test_cleared_cache_is_told() -> None:
    async def body(world: World) -> None:
        await world.publisher.publish(0, stored(1))
        await world.until(s=16)
        await world.publisher.publish(1, msgspec.msgpack.encode([0.0, [["AllBlocksCleared"]]]))
        await world.until()

    assert live(body).num_cleared == 1


def test_rubbish_makes_everything_unknown_and_is_survived() -> None:
    async def body(world: World) -> None:
        await world.publisher.publish(0, stored(1))
        await world.until(s=16)
        await world.publisher.publish(1, b"\xc1")
        await world.until()
        await world.publisher.socket.send_multipart([b"one frame"])  # pyright: ignore
        await world.publisher.publish(2, stored(8))
        await world.until(s=16)

    live(body)


def test_publisher_that_is_not_there_is_waited_for_without_end() -> None:
    async def body() -> None:
        backend = BackendConfig(
            backend_id="b", base_url="http://b", kv_events_url="tcp://127.0.0.1:9"
        )
        with zmq.asyncio.Context() as context:
            task = asyncio.create_task(KvListener(backend, lambda _: None).run(context))
            await asyncio.sleep(0.1)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(body())


def test_missing_packages_are_told_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zmq.asyncio", None)
    with pytest.raises(ValueError, match=r"tao-client\[kv-events\]"):
        kv_listener.new_context()
