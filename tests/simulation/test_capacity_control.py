"""Engines that misreport their pool: the capacity controller keeps the throughput.

Sessions like those of coding agents: a 12k shared prompt, many small steps, 17 workers on one
modelled backend that want about 1.5 times its pool. Ratios of virtual times within one test, summed
over the seeds: a single closed loop is chaotic enough to differ by 4 % for no reason.
"""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from fleet_world import FleetWorld, Outcome, many_small_steps

from tao_coordinator.core.parameters import Parameters

POOL = 307_000
SHARED = 12_000
PARAMETERS = Parameters()
SEEDS = [1, 2]


class SharedPrefixWorld(FleetWorld):
    shared_prefix_tokens = SHARED
    check_every = 25


@cache
def run(told: float, gain: float, seed: int) -> tuple[Outcome, list[float]]:
    world = SharedPrefixWorld(
        "tao",
        many_small_steps(70, seed, shared_tokens=SHARED),
        [POOL],
        num_workers=17,
        told_pools=[int(told * POOL)],
        parameters=replace(PARAMETERS, capacity_integral_gain=gain),
    )
    return world.run(), world.capacity_factors


def task_s(told: float, gain: float) -> float:
    return sum(run(told, gain, seed)[0].mean_task_s for seed in SEEDS)


@pytest.mark.parametrize(("told", "floor"), [(0.7, 0.9), (1.3, 0.9), (2.0, 0.84)])
def test_controller_keeps_the_throughput_of_a_true_report(told: float, floor: float) -> None:
    assert task_s(1.0, 0.3) / task_s(told, 0.3) >= floor


@pytest.mark.parametrize("told", [1.3, 2.0])
def test_without_the_controller_an_over_report_is_ruinous(told: float) -> None:
    """So the test above tests something."""
    assert task_s(told, 0.0) > 2.0 * task_s(1.0, 0.3)


@pytest.mark.parametrize("seed", SEEDS)
def test_controller_does_nothing_where_the_report_is_true(seed: int) -> None:
    _, factors = run(1.0, 0.3, seed)
    assert all(0.95 <= factor <= 1.05 for factor in factors)


@pytest.mark.parametrize("told", [0.7, 1.3, 2.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_estimate_goes_to_the_truth_and_turns_at_most_once(told: float, seed: int) -> None:
    """It may pass the truth while old predictions die out; it must not swing."""
    _, factors = run(told, 0.3, seed)
    truth = 1.0 / told
    assert abs(factors[-1] - truth) <= 0.2
    assert abs(factors[-1] - truth) < abs(1.0 - truth)
    moves = [after - before for before, after in pairwise(factors)]
    turns = sum(first * second < 0.0 for first, second in pairwise(moves))
    assert turns <= 1


def test_lost_sensor_moves_nothing() -> None:
    """An engine that never reports cached tokens: unknown is not zero."""
    world = SharedPrefixWorld(
        "tao",
        many_small_steps(25, 3, shared_tokens=SHARED),
        [POOL],
        num_workers=17,
        told_pools=[2 * POOL],
    )
    world.reports_cached = False
    world.run()
    assert set(world.capacity_factors) == {1.0}


def test_compactions_are_not_taken_for_evictions() -> None:
    """Sessions that rewrite their prompt now and then: gamma stays near 1."""
    sessions = many_small_steps(50, 4, shared_tokens=SHARED, p_compaction=0.05)
    world = SharedPrefixWorld("tao", sessions, [POOL], num_workers=17)
    world.run()
    assert min(world.capacity_factors) >= 0.9
