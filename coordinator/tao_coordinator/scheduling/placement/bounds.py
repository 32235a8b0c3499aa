"""Quick upper bounds on every plan, as packed values.

*Best pairs*: every session at its best value, budgets ignored:  sum_i max_b P_ib.

*Surrogate*: all backends merged into one of budget `sum_b C_b` (and limit `sum_b L_b`), every
session at its best value and its lightest weight. Any plan satisfies the merged constraint, so the
merged knapsack bounds it. Tight where many small sessions without credit compete for room.
"""

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs, exact_sum


def best_pairs(pairs: Pairs) -> int:
    """Sum of each session's best value."""
    return exact_sum(np.maximum(pairs.values.max(axis=1, initial=0), 0))


def surrogate(packed: PackedProblem, labels_max: int = 1024) -> tuple[int, int]:
    """Bound by one merged knapsack, and the work units it took."""
    pairs = packed.pairs
    allowed = pairs.values >= 0
    best = pairs.values.max(axis=1, initial=-1)
    largest = int(pairs.weights.max(initial=0)) + 1
    lightest = np.where(allowed, pairs.weights, largest).min(axis=1, initial=largest)
    usable = allowed.any(axis=0)
    budget = int(pairs.budgets[usable].sum())
    limits = [pairs.limits[b] for b in np.flatnonzero(usable).tolist()]
    limit = None
    if any(one is not None for one in limits):
        counts = packed.counts_max[usable].tolist()
        limit = sum(
            count if one is None else one for one, count in zip(limits, counts, strict=True)
        )
    answer = limited_knapsack.solve(lightest, best, budget, limit, labels_max)
    return answer.bound, answer.work
