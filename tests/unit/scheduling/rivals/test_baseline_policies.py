"""Policies without a gate hold nobody; what marks round-robin and sticky-least-loaded."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendDrained

BASELINES = ["round-robin", "sticky-least-loaded", "cache-aware", "dynamo-cost"]


@pytest.mark.parametrize("policy", BASELINES)
def test_baseline_never_holds_and_never_releases(policy: str) -> None:
    d = EngineDriver(20_000, 20_000, policy=policy)
    assert all(d.ask(f"s{n}", 15_000) in d.grants for n in range(40))
    d.idle(5.0)
    assert d.engine.observe(d.now_s).counters.seats_released == 0


def test_round_robin_sends_every_turn_to_the_next_backend() -> None:
    d = EngineDriver(100_000, 100_000, 100_000, policy="round-robin")
    assert [d.turn("s") for _ in range(6)] == ["b0", "b1", "b2"] * 2
    assert d.grants["r1"].receipt.reason == "round-robin"


def test_sticky_stays_at_home_and_spreads_new_sessions_by_count() -> None:
    d = EngineDriver(100_000, 100_000, policy="sticky-least-loaded")
    homes = {f"s{n}": d.turn(f"s{n}") for n in range(4)}
    assert sorted(homes.values()) == ["b0", "b0", "b1", "b1"]
    for name, home in homes.items():
        assert d.turn(name) == home
        assert d.grants[f"r{5 + list(homes).index(name)}"].receipt.reason == "sticky"


def test_sticky_counts_live_sessions_only() -> None:
    d = EngineDriver(100_000, 100_000, policy="sticky-least-loaded")
    first = d.turn("s0")
    d.turn("s1")
    d.end("s0")
    assert d.turn("s2") == first


def test_sticky_session_moves_when_its_home_drains() -> None:
    d = EngineDriver(100_000, 100_000, policy="sticky-least-loaded")
    home = d.turn("s")
    d.step(BackendDrained(backend_id=home))
    assert d.turn("s") != home


def test_sticky_goes_home_although_it_is_full_and_another_backend_is_empty() -> None:
    """The characteristic fault: never-moving stickiness."""
    d = EngineDriver(50_000, 50_000, policy="sticky-least-loaded")
    names = [f"s{n}" for n in range(10)]
    homes = {name: d.turn(name) for name in names}
    for name in names:
        if homes[name] == "b1":
            d.end(name)
    stayed = [name for name in names if homes[name] == "b0"]
    assert {d.backend_of(d.ask(name, 40_000)) for name in stayed} == {"b0"}
