"""Overdue sessions into a plan made without them, where each costs least.

Class comes first, so every overdue session is worth more than any credit, on every backend: local
ratio lets the first backends grab them and throws out whatever credit is there. Instead: a plan on
everything but class, then the overdue sessions one by one (highest class first, heavy ones first),
each on the backend where placing it and keeping the best of what is there (an exact knapsack with
the rest of the budget) gains most. Complexity: overdue sessions x m small knapsacks.
"""

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import PackedProblem
from tao_coordinator.scheduling.placement.problem import Int64


def insert(packed: PackedProblem, backend_of: Int64, meter: Meter) -> Int64:
    """[n] `backend_of` with waiting overdue sessions put in, others pushed out where need be."""
    pairs, classes = packed.pairs, packed.source.classes
    backend_of = backend_of.copy()
    waiting = ((backend_of < 0) & (classes > 0) & (pairs.values >= 0).any(axis=1)).nonzero()[0]
    order = np.lexsort((-pairs.weights[waiting].max(axis=1), -classes[waiting]))
    for session in waiting[order].tolist():
        best: tuple[int, int, Int64] | None = None
        for b in (pairs.values[session] >= 0).nonzero()[0].tolist():
            here = (backend_of == b).nonzero()[0]
            worth = pairs.values[here, b]
            limit = pairs.limits[b]
            answer = limited_knapsack.solve(
                pairs.weights[here, b],
                worth,
                int(pairs.budgets[b] - pairs.weights[session, b]),
                None if limit is None else limit - 1,
            )
            meter.spend(answer.work + 15)
            gain = answer.value + int(pairs.values[session, b]) - int(worth.sum())
            if gain > 0 and (best is None or gain > best[0]):
                best = gain, b, np.delete(here, answer.chosen)
        if best is not None:
            backend_of[best[2]] = -1
            backend_of[session] = best[1]
        if meter.exhausted:
            break
    return backend_of
