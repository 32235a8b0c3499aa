"""Backends that come and go at run time, from sources that do not know of each other."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx2
import pytest

from tao_coordinator.config import BackendConfig
from tao_coordinator.core.effects import BackendLeft, Effect
from tao_coordinator.core.events import BackendAdded, BackendDrained, BackendRemoved, Event
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service import roster as roster_module
from tao_coordinator.service.roster import Roster


class World:
    """An engine that keeps what it is told; `busy` ids have turns running."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.busy: set[str] = set()
        self.roster = Roster(self.dispatch)

    def dispatch(self, events: Sequence[Event]) -> list[Effect]:
        self.events += events
        return [
            BackendLeft(backend_id=event.backend_id)
            for event in events
            if isinstance(event, BackendRemoved) and event.backend_id not in self.busy
        ]

    def of(self, kind: type[BackendAdded] | type[BackendDrained]) -> list[str]:
        return [event.backend_id for event in self.events if isinstance(event, kind)]

    @property
    def ids(self) -> set[str]:
        return set(self.roster.entries)


def backend(backend_id: str, port: int | None = None, **more: object) -> BackendConfig:
    url = f"http://127.0.0.1:{port or ord(backend_id)}"
    return BackendConfig(backend_id=backend_id, base_url=url, **more)  # pyright: ignore


def live(body: Callable[[World], Awaitable[None]]) -> World:
    async def run() -> World:
        world = World()
        transport = httpx2.MockTransport(lambda request: httpx2.Response(404))
        async with httpx2.AsyncClient(transport=transport) as client, asyncio.TaskGroup() as group:
            world.roster.open(client, group)
            try:
                await asyncio.wait_for(body(world), 20)
            finally:
                world.roster.close()
        return world

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "LEAVE_INTERVAL_S", 0.01)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("condition did not come true")


def test_added_backend_is_polled() -> None:
    async def body(world: World) -> None:
        world.roster.add(backend("a"), "x")
        await world.roster.settle()
        assert world.roster.entries["a"].poller.engine_kind == "openai"

    assert live(body).of(BackendAdded) == ["a"]


def test_drained_backend_is_kept_while_turns_run_there() -> None:
    async def body(world: World) -> None:
        world.busy.add("a")
        world.roster.add(backend("a"), "x")
        assert world.roster.drain("a", "x")
        assert world.roster.drain("a", "x")  # again: nothing new
        await asyncio.sleep(0.05)
        assert world.ids == {"a"}
        world.busy.clear()
        await until(lambda: not world.ids)
        assert not world.roster.drain("a", "x")

    assert live(body).of(BackendDrained) == ["a"]


def test_adding_it_again_ends_the_draining() -> None:
    async def body(world: World) -> None:
        world.busy.add("a")
        world.roster.add(backend("a"), "x")
        world.roster.drain("a", "x")
        world.roster.add(backend("a"), "x")
        world.busy.clear()
        await asyncio.sleep(0.05)
        assert world.ids == {"a"}

    live(body)


def test_source_adds_changes_and_withdraws_its_own() -> None:
    async def body(world: World) -> None:
        world.roster.sync("file", [backend("a"), backend("b")])
        world.roster.sync("file", [backend("a"), backend("b", capacity_tokens=9), backend("c")])
        assert world.of(BackendAdded) == ["a", "b", "b", "c"]
        world.roster.sync("file", [backend("b", capacity_tokens=9)])
        await until(lambda: world.ids == {"b"})
        assert world.roster.entries["b"].config.capacity_tokens == 9

    live(body)


def test_sources_do_not_touch_each_others_backends() -> None:
    async def body(world: World) -> None:
        world.roster.add(backend("a"), "flags")
        world.roster.sync("file", [backend("a", port=2), backend("b")])
        assert world.roster.entries["a"].config.base_url == f"http://127.0.0.1:{ord('a')}"
        world.roster.sync("file", [backend("b")])
        await asyncio.sleep(0.05)
        assert world.ids == {"a", "b"}

    live(body)


def test_what_an_operator_deleted_stays_away_until_its_source_changes_it() -> None:
    async def body(world: World) -> None:
        world.roster.sync("file", [backend("a")])
        world.roster.drain("a", "admin")
        await until(lambda: not world.ids)
        world.roster.sync("file", [backend("a")])
        assert not world.ids
        world.roster.sync("file", [backend("a", capacity_scale=0.9)])
        assert world.ids == {"a"}

    live(body)


def test_gateway_that_cannot_be_told_is_refused() -> None:
    async def body(world: World) -> None:
        with pytest.raises(ConfigurationError, match="NAMESPACE/POD"):
            world.roster.add(backend("a", gateway="llm-d"), "x")
        world.roster.sync("file", [backend("a", gateway="llm-d"), backend("b")])
        assert world.ids == {"b"}

    live(body)


def test_two_names_for_one_engine_are_refused() -> None:
    async def body(world: World) -> None:
        world.roster.add(backend("a", port=7), "x")
        with pytest.raises(ConfigurationError, match="is backend a already"):
            world.roster.add(backend("b", port=7), "x")
        world.roster.add(backend("c", port=7, data_parallel_rank=1), "x")
        world.roster.add(backend("a", port=7, capacity_tokens=5), "x")
        assert world.ids == {"a", "c"}

    live(body)


def test_number_of_backends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "BACKENDS_MAX", 2)

    async def body(world: World) -> None:
        world.roster.sync("file", [backend(name) for name in "abc"])
        assert world.ids == {"a", "b"}

    live(body)


def test_before_the_loop_runs_nothing_can_be_added() -> None:
    with pytest.raises(ConfigurationError, match="not ready"):
        World().roster.add(backend("a"), "x")
