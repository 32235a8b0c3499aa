"""The production Engine against modelled backends: what the policy promises, in virtual time."""

import pytest
from fleet_world import FleetWorld, Outcome, coding_sessions

from tao_coordinator.core.effects import Grant
from tao_coordinator.core.parameters import Parameters

POOLS = [307_000, 307_000]
SEEDS = [1, 2, 3]


def run(policy: str, number: int, seed: int) -> Outcome:
    return FleetWorld(policy, coding_sessions(number, seed), POOLS).run()


@pytest.mark.parametrize("seed", SEEDS)
def test_tao_beats_both_baselines_under_pressure(seed: int) -> None:
    """56 sessions that grow to 48k tokens want twice the pools: the baselines thrash."""
    tao = run("tao", 56, seed)
    for baseline in ("round-robin", "sticky-least-loaded"):
        other = run(baseline, 56, seed)
        assert other.hit_rate < 0.2
        assert tao.mean_task_s < 0.7 * other.mean_task_s
    assert tao.hit_rate > 0.7


@pytest.mark.parametrize("seed", SEEDS)
def test_tao_costs_nothing_without_pressure(seed: int) -> None:
    tao, sticky = run("tao", 10, seed), run("sticky-least-loaded", 10, seed)
    assert tao.mean_task_s <= 1.01 * sticky.mean_task_s
    assert tao.hold_started_s_max == 0.0


@pytest.mark.parametrize("number", [40, 80, 120])
def test_started_sessions_are_never_held_beyond_the_hard_bound(number: int) -> None:
    outcome = run("tao", number, 5)
    parameters = Parameters()
    assert outcome.hold_started_s_max <= parameters.hold_hard_s + parameters.tick_s


def test_everything_returns_to_zero_when_all_sessions_have_ended() -> None:
    world = FleetWorld("tao", coding_sessions(40, 7), POOLS)
    outcome = world.run()
    assert len(outcome.task_s) + len(outcome.rejected) == 40
    for backend in world.engine.observe(world.now_s).backends:
        assert (backend.num_seats, backend.in_flight_tokens, backend.committed_tokens) == (0, 0, 0)
    assert world.engine.observe(world.now_s).sessions == ()


def test_same_seed_gives_the_same_decisions() -> None:
    logs: list[list[tuple[float, str]]] = []
    for _ in range(2):
        world = FleetWorld("tao", coding_sessions(40, 9), POOLS)
        world.run()
        logs.append([(t, f"{e!r}") for t, e in world.log])
    assert logs[0] == logs[1]


def test_shadow_cache_predicts_what_the_backends_find() -> None:
    """Credit in the receipts against the tokens that the modelled engines had cached."""
    world = FleetWorld("tao", coding_sessions(56, 4), POOLS)
    outcome = world.run()
    predicted = sum(
        effect.receipt.cache_credit_tokens for _, effect in world.log if isinstance(effect, Grant)
    )
    assert predicted == pytest.approx(outcome.cached_tokens, rel=0.1)


def test_misreported_capacity_degrades_but_nothing_breaks() -> None:
    """Engines that claim 1.5 times their pool: thrashing, but every bound and invariant holds."""
    told = [int(1.5 * pool) for pool in POOLS]
    outcome = FleetWorld("tao", coding_sessions(56, 2), POOLS, told_pools=told).run()
    assert len(outcome.task_s) == 56
    assert outcome.hold_started_s_max <= 121.0
