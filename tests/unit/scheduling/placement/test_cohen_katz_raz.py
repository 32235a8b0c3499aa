"""One Cohen-Katz-Raz pass: feasible, and at least half the optimum in lexicographic order."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.scheduling.placement.cohen_katz_raz import place
from tao_coordinator.scheduling.placement.problem import Placement, PlacementProblem, pack


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    n, m = draw(st.integers(0, 5)), draw(st.integers(1, 3))

    def ints(low: int, high: int, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        size = int(np.prod(shape))
        flat = draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(flat, np.int64).reshape(shape)

    return PlacementProblem(
        weights=ints(0, 30, n, m),
        budgets=ints(0, 60, m),
        classes=ints(0, 1, n),
        credits=ints(0, 20, n, m),
        ready=ints(0, 1, n),
        tokens=ints(0, 200_000, n),
        eligible=ints(0, 1, n, m).astype(bool),
    )


def optimum(problem: PlacementProblem) -> tuple[int, int, int, int, int]:
    n, m = problem.weights.shape
    best = (0, 0, 0, 0, 0)
    for choice in product(range(-1, m), repeat=n):
        placement = Placement(np.array(choice, np.int64))
        try:
            placement.check(problem)
        except AssertionError:
            continue
        best = max(best, placement.objective(problem))
    return best


@given(problems())
def test_one_pass_is_feasible_and_at_least_half_the_optimum(problem: PlacementProblem) -> None:
    placement = place(problem, pack(problem), num_passes=1)
    placement.check(problem)
    found = placement.objective(problem)
    assert tuple(2 * coordinate for coordinate in found) >= optimum(problem)


@given(problems())
def test_further_passes_never_lose(problem: PlacementProblem) -> None:
    packed = pack(problem)
    before: tuple[int, ...] = ()
    for num_passes in range(1, 5):
        placement = place(problem, packed, num_passes=num_passes)
        placement.check(problem)
        after = placement.objective(problem)
        assert after >= before
        before = after


@given(problems())
def test_packed_order_is_lexicographic_order(problem: PlacementProblem) -> None:
    """Value of a plan as one integer orders plans as their vectors do."""
    packed = pack(problem)
    n, m = problem.weights.shape
    seen: dict[tuple[int, ...], int] = {}
    for choice in product(range(-1, m), repeat=n):
        if any(b >= 0 and packed.values[i, b] < 0 for i, b in enumerate(choice)):
            continue
        vector = Placement(np.array(choice, np.int64)).objective(problem)
        total = sum(int(packed.values[i, b]) for i, b in enumerate(choice) if b >= 0)
        assert seen.setdefault(vector, total) == total
    ordered = sorted(seen)
    assert [seen[vector] for vector in ordered] == sorted(seen.values())


def test_resident_session_stays_home_and_the_other_goes_elsewhere() -> None:
    problem = PlacementProblem(
        weights=np.array([[60, 60], [60, 60]], np.int64),
        budgets=np.array([100, 100], np.int64),
        classes=np.zeros(2, np.int64),
        credits=np.array([[0, 9], [0, 0]], np.int64),
        ready=np.ones(2, np.int64),
        tokens=np.array([60, 60], np.int64),
        eligible=np.ones((2, 2), bool),
    )
    assert place(problem, pack(problem)).backend_of.tolist() == [1, 0]


def test_huge_instances_coarsen_tokens_instead_of_overflowing() -> None:
    n, m = 3000, 4
    problem = PlacementProblem(
        weights=np.full((n, m), 100_000, np.int64),
        budgets=np.full(m, 4_000_000, np.int64),
        classes=np.ones(n, np.int64),
        credits=np.full((n, m), 500, np.int64),
        ready=np.ones(n, np.int64),
        tokens=np.full(n, 1_000_000, np.int64),
        eligible=np.ones((n, m), bool),
    )
    packed = pack(problem)
    assert packed.tokens_shift > 0
    place(problem, packed).check(problem)


def test_values_beyond_all_bits_are_an_error_not_a_wrong_plan() -> None:
    n = 2
    problem = PlacementProblem(
        weights=np.ones((n, 1), np.int64),
        budgets=np.array([10], np.int64),
        classes=np.zeros(n, np.int64),
        credits=np.full((n, 1), 1 << 61, np.int64),
        ready=np.zeros(n, np.int64),
        tokens=np.zeros(n, np.int64),
        eligible=np.ones((n, 1), bool),
    )
    with pytest.raises(OverflowError, match="bits"):
        pack(problem)
