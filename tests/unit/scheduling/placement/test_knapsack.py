"""The list knapsack against brute force and against the textbook table."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.scheduling.placement import knapsack
from tao_coordinator.scheduling.placement.problem import Int64

items = st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 60)), max_size=10)
many_items = st.lists(st.tuples(st.integers(0, 25), st.integers(1, 40)), min_size=11, max_size=40)


def best_by_brute_force(pairs: list[tuple[int, int]], capacity: int) -> int:
    return max(
        sum(v for _, v in chosen)
        for size in range(len(pairs) + 1)
        for chosen in combinations(pairs, size)
        if sum(w for w, _ in chosen) <= capacity or not chosen
    )


def best_by_table(pairs: list[tuple[int, int]], capacity: int) -> int:
    table = [0] * (capacity + 1)
    for weight, value in pairs:
        for room in range(capacity, weight - 1, -1):
            table[room] = max(table[room], table[room - weight] + value)
    return table[capacity]


def arrays(pairs: list[tuple[int, int]]) -> tuple[Int64, Int64]:
    return np.array([w for w, _ in pairs], np.int64), np.array([v for _, v in pairs], np.int64)


@given(items, st.integers(-3, 120))
def test_knapsack_equals_brute_force(pairs: list[tuple[int, int]], capacity: int) -> None:
    weights, values = arrays(pairs)
    answer = knapsack.solve(weights, values, capacity)
    assert answer.exact
    assert len(set(answer.chosen.tolist())) == len(answer.chosen)
    assert int(values[answer.chosen].sum()) == answer.value
    assert answer.value == best_by_brute_force(pairs, capacity)
    assert int(weights[answer.chosen].sum()) <= max(0, capacity) or not len(answer.chosen)


@given(many_items, st.integers(0, 300))
def test_knapsack_with_many_items_equals_the_table(
    pairs: list[tuple[int, int]], capacity: int
) -> None:
    weights, values = arrays(pairs)
    answer = knapsack.solve(weights, values, capacity)
    assert answer.exact
    assert int(values[answer.chosen].sum()) == answer.value
    assert int(weights[answer.chosen].sum()) <= capacity
    assert answer.value == best_by_table(pairs, capacity)


@given(many_items, st.integers(0, 300), st.integers(1, 40), st.integers(1, 12))
def test_short_lists_and_tolerance_keep_the_bound_honest(
    pairs: list[tuple[int, int]], capacity: int, tolerance: int, labels_max: int
) -> None:
    weights, values = arrays(pairs)
    answer = knapsack.solve(weights, values, capacity, labels_max, tolerance)
    optimum = best_by_table(pairs, capacity)
    assert int(values[answer.chosen].sum()) == answer.value
    assert int(weights[answer.chosen].sum()) <= capacity
    assert answer.value <= optimum <= answer.bound


@given(many_items, st.integers(0, 300), st.integers(1, 40))
def test_tolerance_bounds_what_is_lost(
    pairs: list[tuple[int, int]], capacity: int, tolerance: int
) -> None:
    weights, values = arrays(pairs)
    answer = knapsack.solve(weights, values, capacity, tolerance=tolerance)
    assert answer.value >= best_by_table(pairs, capacity) - tolerance - 1  # 1: rounding slack


def test_knapsack_is_exact_for_packed_values_near_the_limit_of_int64() -> None:
    """Two plans that differ only in the last of 60 bits."""
    base = 1 << 58
    values = np.array([base, base + 1, base], np.int64)
    weights = np.array([5, 5, 5], np.int64)
    answer = knapsack.solve(weights, values, 10)
    assert 1 in answer.chosen.tolist()
    assert len(answer.chosen) == 2


@pytest.mark.parametrize("seed", range(20))
def test_knapsack_sees_last_bits_among_many_items(seed: int) -> None:
    """High parts all equal, so that the low ten of 57 bits decide; counting decides with them."""
    draw = np.random.default_rng(seed)
    low = draw.integers(0, 1 << 10, 40).astype(np.int64)
    weights = draw.integers(3, 9, 40).astype(np.int64)
    values = low + (1 << 56) // 40 * np.ones(40, np.int64)
    answer = knapsack.solve(weights, values, 60)
    assert answer.exact
    high = int(values[0] - low[0])
    scaled = [(int(w), (1 << 20) + int(v)) for w, v in zip(weights, low, strict=True)]
    best = best_by_table(scaled, 60)  # same order: most items first, then the low bits
    assert answer.value == (best >> 20) * high + (best & ((1 << 20) - 1))


def test_thinned_list_stays_feasible_and_says_so() -> None:
    """Subset sums: values equal weights, so nothing but the lists helps."""
    draw = np.random.default_rng(3)
    weights = draw.integers(100_000, 10_000_000, 60).astype(np.int64)
    exact = knapsack.solve(weights, weights, 50_000_000, labels_max=100_000)
    thinned = knapsack.solve(weights, weights, 50_000_000, labels_max=8)
    assert not thinned.exact
    assert int(weights[thinned.chosen].sum()) <= 50_000_000
    assert thinned.value <= exact.value <= thinned.bound
    assert thinned.value >= 0.99 * exact.value
