"""Many knapsacks at once give what each gives alone."""

import numpy as np
import pytest

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.sparse import batch_knapsack
from tao_coordinator.scheduling.placement.sparse.batch_knapsack import NO_LIMIT, Items


@pytest.mark.parametrize("seed", range(40))
def test_batch_equals_one_by_one(seed: int) -> None:
    draw = np.random.default_rng(seed)
    num_rows = int(draw.integers(1, 40))
    per_row = int(draw.choice([3, 10, 90]))  # tiny, padded, one by one
    rows = np.sort(draw.integers(0, num_rows, num_rows * per_row))
    weights = draw.integers(0, 30_000, len(rows))
    values = draw.integers(-1_000, 30_000, len(rows)) << (30 if seed % 2 else 0)
    capacities = draw.integers(-5, 90_000, num_rows)
    limits = np.where(draw.random(num_rows) < 0.5, draw.integers(0, 6, num_rows), NO_LIMIT)
    answer = batch_knapsack.solve(Items(rows, weights, values), capacities, limits)
    for row in range(num_rows):
        mine = (rows == row).nonzero()[0]
        limit = None if limits[row] >= NO_LIMIT else int(limits[row])
        alone = limited_knapsack.solve(weights[mine], values[mine], int(capacities[row]), limit)
        assert alone.exact
        assert answer.values[row] == alone.value == answer.bounds[row]
        taken = mine[answer.taken[mine]]
        assert weights[taken].sum() <= max(0, capacities[row])
        assert len(taken) <= limits[row]
        assert values[taken].sum() == alone.value


def test_no_items_is_no_problem() -> None:
    nothing = np.zeros(0, np.int64)
    answer = batch_knapsack.solve(Items(nothing, nothing, nothing), np.array([5]), np.array([1]))
    assert answer.values.tolist() == [0]
