"""Generalised assignment by local ratio: one exact knapsack per backend, at least half the optimum.

Cohen, Katz and Raz, "An efficient approximation for the generalized assignment problem",
Information Processing Letters 100 (2006). Backends are taken one after the other; on each, a
session is worth its value there minus what it is already worth where an earlier backend holds it,
and the knapsack may take it away. With exact knapsacks the result of the first pass is worth at
least half of the optimum. The proof only adds, subtracts and compares values, so it holds for
lexicographic vectors as well (packed: `problem.pack`).

A session taken away leaves room behind, so further passes re-solve each backend against the others
until nothing changes; a pass is kept only where it gains, so they never make the plan worse. In the
placement study one pass reached 99 % of the optimal credit on average (best-fit-decreasing: 2-14 %)
in 0.5-5 ms at 64-128 sessions. Departure: backends in order of ascending budget, since a small
residual loses more by being filled last. Complexity: one knapsack per backend and pass.
"""

import numpy as np

from tao_coordinator.scheduling.placement import knapsack
from tao_coordinator.scheduling.placement.problem import PackedValues, Placement, PlacementProblem


def place(
    problem: PlacementProblem,
    packed: PackedValues,
    *,
    num_passes: int = 3,
    labels_max: int = 512,
) -> Placement:
    """Place sessions; guaranteed at least half the optimum, lexicographically.

    Args:
        problem: n sessions, m backends.
        packed: its values, from `pack`.
        num_passes: 1 = Cohen, Katz and Raz as published.
        labels_max: bound on the knapsack's lists; beyond it the guarantee is approximate.
    """
    values = packed.values  # [n, m]
    backend_of = np.full(values.shape[0], -1, np.int64)
    worth = np.zeros(values.shape[0], np.int64)  # value of each session where it is placed so far
    order: list[int] = np.argsort(problem.budgets, kind="stable").tolist()
    for _ in range(num_passes):
        changed = False
        for b in order:
            here = backend_of == b
            # What is placed here competes with its whole value, what is elsewhere with the gain.
            gain = np.where(here, worth, values[:, b] - worth)
            gain[values[:, b] < 0] = -1
            budget = int(problem.budgets[b])
            chosen = knapsack.solve(problem.weights[:, b], gain, budget, labels_max).chosen
            if int(gain[chosen].sum()) <= int(worth[here].sum()):
                continue
            backend_of[here], worth[here] = -1, 0
            backend_of[chosen], worth[chosen] = b, values[chosen, b]
            changed = True
        if not changed:
            break
    return Placement(backend_of)
