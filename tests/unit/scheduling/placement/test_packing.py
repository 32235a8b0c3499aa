"""Packed integers order plans as their vectors do, and bounds read back from the top."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from placement_strategies import problems

from tao_coordinator.scheduling.placement import Objective, PlacementProblem
from tao_coordinator.scheduling.placement.packing import BITS_MAX, exact_sum, pack
from tao_coordinator.scheduling.placement.plan import check_feasible, objective_of


def feasible_plans(
    problem: PlacementProblem,
) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    n, m = problem.weights.shape
    plans: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []
    for choice in product(range(-1, m), repeat=n):
        plan = np.array(choice, np.int64)
        try:
            check_feasible(problem, plan)
        except AssertionError:
            continue
        plans.append(plan)
    return plans


@given(problems(sessions_max=4))
def test_packed_order_is_lexicographic_order(problem: PlacementProblem) -> None:
    packed = pack(problem)
    seen = {
        objective_of(problem, plan): packed.pairs.value_of(plan) for plan in feasible_plans(problem)
    }
    ordered = sorted(seen)
    assert [seen[vector] for vector in ordered] == sorted(set(seen.values()))


@given(problems(sessions_max=4))
def test_packed_sums_decode_to_component_sums(problem: PlacementProblem) -> None:
    packed = pack(problem)
    for plan in feasible_plans(problem):
        objective = objective_of(problem, plan)
        assert packed.bound_vector(packed.pairs.value_of(plan)) == objective
        assert all(a <= b for a, b in zip(objective, packed.sums_max, strict=True))


@given(problems(sessions_max=4), st.integers(0, 1 << 61))
def test_bound_beyond_the_largest_sum_is_clipped(problem: PlacementProblem, excess: int) -> None:
    packed = pack(problem)
    assert packed.bound_vector(packed.value_max + excess) <= packed.sums_max


@given(problems(sessions_max=4))
def test_pairs_that_do_not_fit_are_out(problem: PlacementProblem) -> None:
    packed = pack(problem)
    n, m = problem.weights.shape
    for i, b in product(range(n), range(m)):
        alone = np.full(n, -1, np.int64)
        alone[i] = b
        try:
            check_feasible(problem, alone)
            fits = True
        except AssertionError:
            fits = False
        assert (packed.pairs.values[i, b] > 0) == fits


def huge(num_sessions: int, num_backends: int, credit: int) -> PlacementProblem:
    n, m = num_sessions, num_backends
    return PlacementProblem(
        weights=np.full((n, m), 100_000, np.int64),
        budgets=np.full(m, 40_000_000, np.int64),
        classes=np.ones(n, np.int64),
        credits=np.full((n, m), credit, np.int64),
        ready=np.arange(n) % 2,
        tokens=np.full(n, 1_000_001, np.int64),
        eligible=np.ones((n, m), bool),
    )


def test_huge_instances_coarsen_tokens_and_keep_bounds_valid() -> None:
    problem = huge(500, 8, 50)
    packed = pack(problem)
    assert packed.tokens_shift > 0
    assert packed.value_max.bit_length() <= BITS_MAX
    plan = np.arange(500) % 8
    objective = packed.objective_of(plan)
    assert objective.tokens == 500 * 1_000_001
    read = packed.bound_vector(packed.pairs.value_of(plan))
    assert read[:3] == objective[:3]
    assert objective.tokens <= read.tokens <= objective.tokens + (500 << packed.tokens_shift)


def test_values_beyond_all_bits_are_an_error_not_a_wrong_plan() -> None:
    with pytest.raises(OverflowError, match="bits"):
        pack(huge(2, 1, 1 << 61))


def test_count_is_dropped_where_every_session_is_ready() -> None:
    problem = huge(4, 1, 1)
    everybody = PlacementProblem(
        weights=problem.weights,
        budgets=problem.budgets,
        classes=problem.classes,
        credits=problem.credits,
        ready=np.ones(4, np.int64),
        tokens=problem.tokens,
        eligible=problem.eligible,
    )
    packed = pack(everybody)
    assert packed.units[4] == 0
    plan = np.array([0, 0, -1, 0])
    assert packed.bound_vector(packed.pairs.value_of(plan)) == Objective(3, 3, 3, 3_000_003, 3)


@given(st.lists(st.integers(0, (1 << 62) - 1), max_size=20))
def test_exact_sum_does_not_overflow(values: list[int]) -> None:
    assert exact_sum(np.array(values, np.int64)) == sum(values)


@given(problems(sessions_max=4))
def test_bounds_on_coordinates_pack_to_a_valid_bound(problem: PlacementProblem) -> None:
    packed = pack(problem)
    for plan in feasible_plans(problem):
        assert packed.bound_value(packed.sums_max) >= packed.pairs.value_of(plan)
