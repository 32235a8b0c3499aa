"""Tiny problems against brute force: optimum reached, no bound below it, rungs monotone."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from placement_brute_force import optimum
from placement_strategies import problems

from tao_coordinator.bench.decision_problems import FAMILIES, dense
from tao_coordinator.scheduling.placement import (
    INSTANT,
    Effort,
    PlacementProblem,
    Rung,
    dense_grid,
    solve,
)

SEEDS_PER_FAMILY = 100
SESSIONS_MAX = {1: 12, 2: 9, 3: 7}
"""So many that all (m + 1)^n placements can be tried."""
EFFORT = Effort(work=250_000)


def tiny(family: str, seeds: range) -> Iterator[tuple[int, PlacementProblem]]:
    for seed in seeds:
        draw = np.random.default_rng(seed)
        num_backends = int(draw.integers(1, 4))
        num_sessions = int(draw.integers(1, SESSIONS_MAX[num_backends] + 1))
        is_empty = bool(draw.random() < 0.1)
        yield seed, dense(family, seed, num_sessions, num_backends, is_empty=is_empty)


@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_problems_are_solved_and_certified(family: str) -> None:
    for seed, problem in tiny(family, range(SEEDS_PER_FAMILY)):
        plan = solve(problem, EFFORT)
        plan.check(problem)
        best = optimum(problem)
        bound = plan.certificate.bound
        assert plan.objective == best, f"{family} {seed}: lost {best} by {plan}"
        assert bound >= best[: len(bound)], f"{family} {seed}: bound {bound} below {best}"
        assert plan.certificate.is_optimal, f"{family} {seed}: optimal, but not proved"


@pytest.mark.parametrize("family", FAMILIES)
def test_instant_plans_keep_the_local_ratio_guarantee(family: str) -> None:
    for seed, problem in tiny(family, range(SEEDS_PER_FAMILY)):
        plan = solve(problem, INSTANT)
        plan.check(problem)
        doubled = tuple(2 * coordinate for coordinate in plan.objective)
        assert doubled >= optimum(problem), f"{family} {seed}"


@pytest.mark.parametrize("family", FAMILIES)
def test_rungs_never_return_less(family: str) -> None:
    for seed, problem in tiny(family, range(20)):
        before: tuple[int, ...] = ()
        for rung in list(Rung)[: Rung.GRID]:
            plan = solve(problem, Effort(work=250_000, rung_max=rung))
            assert plan.objective >= before, f"{family} {seed} {rung.name}"
            before = plan.objective


@given(problems(sessions_max=6, backends_max=3))
@settings(max_examples=300, deadline=None)
def test_arbitrary_problems_are_solved_and_certified(problem: PlacementProblem) -> None:
    """Ties, weightless sessions, negative budgets, limits of 0: all that families do not have."""
    plan = solve(problem, EFFORT)
    plan.check(problem)
    assert plan.objective == optimum(problem)
    assert plan.certificate.is_optimal


@pytest.mark.parametrize("family", FAMILIES)
def test_grid_never_beats_the_ladder(family: str) -> None:
    """An independent solver, exact up to its rounding."""
    for seed, problem in tiny(family, range(5)):
        if problem.num_backends > 2:
            continue
        grid = dense_grid.solve(problem, quantum_tokens=128, states_max=2_000_000)
        grid.plan.check(problem)
        assert grid.plan.objective <= solve(problem, EFFORT).objective, f"{family} {seed}"
