"""The list knapsack against brute force."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.scheduling.placement import knapsack

items = st.lists(st.tuples(st.integers(0, 40), st.integers(-5, 60)), max_size=10)


def best_by_brute_force(pairs: list[tuple[int, int]], capacity: int) -> int:
    return max(
        sum(v for _, v in chosen)
        for size in range(len(pairs) + 1)
        for chosen in combinations(pairs, size)
        if sum(w for w, _ in chosen) <= capacity or not chosen
    )


@given(items, st.integers(-3, 120))
def test_knapsack_equals_brute_force(pairs: list[tuple[int, int]], capacity: int) -> None:
    weights = np.array([w for w, _ in pairs], np.int64)
    values = np.array([v for _, v in pairs], np.int64)
    answer = knapsack.solve(weights, values, capacity)
    assert answer.exact
    assert len(set(answer.chosen.tolist())) == len(answer.chosen)
    assert int(values[answer.chosen].sum()) == best_by_brute_force(pairs, capacity)
    assert int(weights[answer.chosen].sum()) <= max(0, capacity) or not len(answer.chosen)


def test_knapsack_is_exact_for_packed_values_near_the_limit_of_int64() -> None:
    """Two plans that differ only in the last of 60 bits."""
    base = 1 << 58
    values = np.array([base, base + 1, base], np.int64)
    weights = np.array([5, 5, 5], np.int64)
    answer = knapsack.solve(weights, values, 10)
    assert 1 in answer.chosen.tolist()
    assert len(answer.chosen) == 2


def test_thinned_list_stays_feasible_and_says_so() -> None:
    draw = np.random.default_rng(3)
    weights = draw.integers(1, 10_000, 60).astype(np.int64)
    values = draw.integers(1, 10_000_000, 60).astype(np.int64)
    exact = knapsack.solve(weights, values, 100_000, labels_max=100_000)
    thinned = knapsack.solve(weights, values, 100_000, labels_max=8)
    assert exact.exact
    assert not thinned.exact
    assert int(weights[thinned.chosen].sum()) <= 100_000
    assert int(values[thinned.chosen].sum()) <= int(values[exact.chosen].sum())
    assert int(values[thinned.chosen].sum()) >= 0.9 * int(values[exact.chosen].sum())
