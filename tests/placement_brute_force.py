"""The optimum of a tiny placement problem by trying every placement."""

import numpy as np

from tao_coordinator.scheduling.placement import Objective, PlacementProblem


def optimum(problem: PlacementProblem) -> Objective:
    """Best objective of all (m + 1)^n placements; vectors are compared as vectors."""
    n, m = problem.weights.shape
    loads = np.zeros((1, m), np.int64)
    counts = np.zeros((1, m), np.int64)
    sums = np.zeros((1, 5), np.int64)
    limits = np.full(m, n) if problem.session_limits is None else problem.session_limits
    for i in range(n):
        parts = [(loads, counts, sums)]
        for b in range(m):
            if not problem.eligible[i, b]:
                continue
            load, count, total = loads.copy(), counts.copy(), sums.copy()
            load[:, b] += problem.weights[i, b]
            count[:, b] += 1
            total += np.array(
                [problem.classes[i], problem.credits[i, b], problem.ready[i], problem.tokens[i], 1]
            )
            fits = (load[:, b] <= problem.budgets[b]) & (count[:, b] <= limits[b])
            parts.append((load[fits], count[fits], total[fits]))
        loads = np.concatenate([part[0] for part in parts])
        counts = np.concatenate([part[1] for part in parts])
        sums = np.concatenate([part[2] for part in parts])
    for coordinate in range(5):
        sums = sums[sums[:, coordinate] == sums[:, coordinate].max()]
    return Objective(*sums[0].tolist())
