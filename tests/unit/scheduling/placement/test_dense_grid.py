"""The published dynamic programme: optimal where its grid is exact, feasible always."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_brute_force import optimum
from placement_strategies import problems

from tao_coordinator.bench.decision_problems import dense
from tao_coordinator.scheduling.placement import Objective, PlacementProblem, Rung, dense_grid


@given(problems(sessions_max=4, backends_max=2))
@settings(max_examples=60)
def test_grid_of_one_token_is_optimal(problem: PlacementProblem) -> None:
    answer = dense_grid.solve(problem, quantum_tokens=1, states_max=100_000)
    answer.plan.check(problem)
    assert not answer.used_fallback
    assert answer.plan.objective == optimum(problem)
    assert answer.plan.certificate.is_optimal
    assert answer.plan.rung == Rung.GRID


@given(problems(sessions_max=4, backends_max=2), st.integers(2, 9))
@settings(max_examples=60)
def test_coarse_grid_is_feasible_and_claims_only_what_holds(
    problem: PlacementProblem, quantum: int
) -> None:
    answer = dense_grid.solve(problem, quantum_tokens=quantum, states_max=100_000)
    answer.plan.check(problem)
    best = optimum(problem)
    assert answer.plan.objective <= best
    assert answer.plan.certificate.bound >= best[: len(answer.plan.certificate.bound)]


def test_too_many_states_fall_back_to_best_fit_decreasing() -> None:
    problem = dense("base", 1, 20, 4, is_empty=True)
    answer = dense_grid.solve(problem, quantum_tokens=4_096, states_max=1_000_000)
    assert answer.used_fallback
    assert answer.num_states == (300_000 // 4_096 + 1) ** 4
    answer.plan.check(problem)


def test_best_fit_decreasing_takes_the_tightest_place() -> None:
    problem = PlacementProblem(
        weights=np.array([[5, 5], [8, 8], [5, 5]], np.int64),
        budgets=np.array([10, 8], np.int64),
        classes=np.zeros(3, np.int64),
        credits=np.zeros((3, 2), np.int64),
        ready=np.zeros(3, np.int64),
        tokens=np.array([5, 8, 5], np.int64),
        eligible=np.ones((3, 2), bool),
    )
    assert dense_grid.best_fit_decreasing(problem).tolist() == [0, 1, 0]


def test_grid_loses_room_by_rounding_up() -> None:
    """Two sessions of 9 fit 18 tokens, but not two quanta of 10 in one of 18 // 10."""
    problem = PlacementProblem(
        weights=np.array([[9], [9]], np.int64),
        budgets=np.array([18], np.int64),
        classes=np.zeros(2, np.int64),
        credits=np.zeros((2, 1), np.int64),
        ready=np.ones(2, np.int64),
        tokens=np.array([9, 9], np.int64),
        eligible=np.ones((2, 1), bool),
    )
    assert dense_grid.solve(problem, 1, 1_000).plan.objective == Objective(0, 0, 2, 18, 2)
    assert dense_grid.solve(problem, 10, 1_000).plan.objective == Objective(0, 0, 1, 9, 1)


def test_quantum_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="quantum"):
        dense_grid.solve(dense("base", 1, 3, 1), 0, 10)
