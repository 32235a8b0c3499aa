"""static-cap: never more than K, first come, first served."""

import random

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendDrained
from tao_coordinator.scheduling.rivals.static_cap import StaticCap, StaticCapParameters


def capped(sessions_max: int, *pools: int) -> EngineDriver:
    d = EngineDriver(*pools, policy="static-cap")
    d.engine.policy = StaticCap(StaticCapParameters(sessions_max=sessions_max))
    return d


@pytest.mark.parametrize("seed", range(10))
def test_static_cap_never_exceeds_k_and_serves_in_order(seed: int) -> None:
    draw = random.Random(seed)
    d = capped(3, 50_000, 50_000)
    asked: list[str] = []
    for n in range(120):
        running = sorted(d.engine.state.lease_by_request)
        what = draw.random()
        if what < 0.5:
            asked.append(d.ask(f"s{n}", draw.randrange(1_000, 49_000)))
        elif what < 0.75 and running:
            d.done(draw.choice(running), after_s=0.1)
        else:
            seated = sorted(k.session_id for k, s in d.engine.state.sessions.items() if s.seat)
            d.end(draw.choice([*seated, f"s{n}"]))
        assert all(b.num_seats <= 3 for b in d.engine.observe(d.now_s).backends)
    assert list(d.grants) == [r for r in asked if r in d.grants], "in order of arrival"
    assert 15 < len(d.grants) < len(asked)


def test_static_cap_keeps_the_place_during_tools_and_frees_it_at_the_end() -> None:
    d = capped(1, 100_000)
    d.turn("first")
    waiting = [d.ask("second", 90_000), d.ask("third", 1_000)]
    d.tool("first")
    d.idle(600.0)
    d.tool_end("first")
    assert d.held_ids() == waiting
    assert d.turn("first") == "b0"
    d.end("first")
    assert d.held_ids() == waiting[1:], "the small one never overtakes"
    assert d.reason_of(waiting[0]) == "place-free"


def test_static_cap_fills_the_backend_with_most_places() -> None:
    d = capped(2, 100_000, 100_000)
    homes = [d.turn(f"s{n}") for n in range(4)]
    assert homes == ["b0", "b1", "b0", "b1"]
    assert d.ask("s4") not in d.grants


def test_static_cap_session_of_a_drained_backend_queues_for_another_place() -> None:
    d = capped(1, 100_000, 100_000)
    assert d.turn("s0") == "b0"
    assert d.turn("s1") == "b1"
    d.step(BackendDrained(backend_id="b0"))
    request = d.ask("s0")
    assert request not in d.grants
    d.end("s1")
    assert d.backend_of(request) == "b1"


def test_static_cap_parallel_calls_take_one_place() -> None:
    d = capped(1, 100_000)
    d.turn("first")
    pair = [d.ask("s", 1_000), d.ask("s", 1_000)]
    assert d.held_ids() == pair
    d.end("first")
    assert all(r in d.grants for r in pair)
    assert d.ask("s", 1_000) in d.grants


def test_static_cap_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        StaticCapParameters(sessions_max=0)
