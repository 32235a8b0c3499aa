"""The knapsack with a limit on items against brute force and a table."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.scheduling.placement import limited_knapsack

items = st.lists(st.tuples(st.integers(0, 25), st.integers(-3, 40)), max_size=36)


def best_by_table(pairs: list[tuple[int, int]], capacity: int, limit: int) -> int:
    """Rows: items used; columns: room."""
    if capacity < 0:
        return 0
    table = [[0] * (capacity + 1) for _ in range(limit + 1)]
    for weight, value in pairs:
        for used in range(limit, 0, -1):
            for room in range(capacity, weight - 1, -1):
                with_item = table[used - 1][room - weight] + value
                table[used][room] = max(table[used][room], with_item)
    return table[limit][capacity]


@given(items, st.integers(-2, 200), st.integers(0, 9))
def test_limited_knapsack_equals_the_table(
    pairs: list[tuple[int, int]], capacity: int, limit: int
) -> None:
    weights = np.array([w for w, _ in pairs], np.int64)
    values = np.array([v for _, v in pairs], np.int64)
    answer = limited_knapsack.solve(weights, values, capacity, limit)
    assert answer.exact
    assert len(answer.chosen) <= limit
    assert int(weights[answer.chosen].sum()) <= max(0, capacity)
    assert int(values[answer.chosen].sum()) == answer.value
    assert answer.value == best_by_table(pairs, capacity, limit)


@given(items, st.integers(0, 200), st.integers(0, 9), st.integers(1, 30), st.integers(1, 10))
def test_short_lists_and_tolerance_keep_the_bound_honest(
    pairs: list[tuple[int, int]], capacity: int, limit: int, tolerance: int, labels_max: int
) -> None:
    weights = np.array([w for w, _ in pairs], np.int64)
    values = np.array([v for _, v in pairs], np.int64)
    answer = limited_knapsack.solve(weights, values, capacity, limit, labels_max, tolerance)
    assert len(answer.chosen) <= limit
    assert int(weights[answer.chosen].sum()) <= capacity
    assert answer.value <= best_by_table(pairs, capacity, limit) <= answer.bound


@given(items, st.integers(0, 200), st.integers(0, 9))
def test_no_limit_and_a_limit_that_cannot_bind_agree(
    pairs: list[tuple[int, int]], capacity: int, limit: int
) -> None:
    weights = np.array([w for w, _ in pairs], np.int64)
    values = np.array([v for _, v in pairs], np.int64)
    free = limited_knapsack.solve(weights, values, capacity, None)
    same = limited_knapsack.solve(weights, values, capacity, len(pairs) + limit)
    assert free.value == same.value


@given(items, st.integers(0, 200), st.integers(1, 9))
def test_seat_price_is_zero_where_the_limit_cannot_bind(
    pairs: list[tuple[int, int]], capacity: int, limit: int
) -> None:
    weights = np.array([w for w, _ in pairs], np.int64)
    values = np.array([v for _, v in pairs], np.int64)
    price = limited_knapsack.seat_price(weights, values, capacity, limit)
    assert price >= 0
    useful = int(((values > 0) & (weights <= capacity)).sum())
    if useful <= limit:
        assert price == 0
