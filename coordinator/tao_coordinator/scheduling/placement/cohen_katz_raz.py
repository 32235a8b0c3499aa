"""Generalised assignment by local ratio: one exact knapsack per backend, at least half the optimum.

Cohen, Katz and Raz, "An efficient approximation for the generalized assignment problem",
Information Processing Letters 100 (2006). Backends are taken one after the other; on each, a
session is worth its value there minus what it is already worth where an earlier backend holds it,

    g_i = P_ib - (P_ib' if i is placed on b', else 0),

and the knapsack over g may take it away. With exact knapsacks the result of the first pass is worth
at least half of the optimum. The proof only adds, subtracts and compares values, so it holds for
lexicographic vectors as well (packed: `packing`). Read lexicographically the guarantee binds the
first coordinate that is not zero.

A session taken away leaves room behind, so further passes re-solve each backend against the others
(what is on it already competes with its whole value) until nothing changes; a step is kept only
where it gains, so passes never make a plan worse, and they may start from any plan. Complexity: one
knapsack per backend and pass. Departure: backends in order of ascending budget, since a small
residual loses more by being filled last.
"""

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import Pairs
from tao_coordinator.scheduling.placement.problem import Int64

LABELS_MAX = 512


def place(
    pairs: Pairs,
    meter: Meter,
    num_passes: int,
    labels_max: int = LABELS_MAX,
) -> Int64:
    """[n] backend per session, -1 = waits, from nothing.

    Args:
        pairs: what to maximise, under which constraints.
        meter: counts the work; the first pass ends in any case.
        num_passes: 1 = Cohen, Katz and Raz as published.
        labels_max: bound on the knapsack's lists; beyond it the guarantee is approximate.
    """
    nowhere = np.full(len(pairs.values), -1, np.int64)
    return improve(pairs, nowhere, meter, num_passes, labels_max, num_sure=1)


def improve(
    pairs: Pairs,
    backend_of: Int64,
    meter: Meter,
    num_passes: int,
    labels_max: int = LABELS_MAX,
    num_sure: int = 0,
    tolerance: int = 0,
) -> Int64:
    """Re-solve backend after backend until nothing changes; never worse than `backend_of`.

    Args:
        pairs: what to maximise, under which constraints.
        backend_of: [n] where to start.
        meter: counts the work and ends the passes.
        num_passes: at most so many.
        labels_max: bound on the knapsack's lists.
        num_sure: passes that end whatever the meter says.
        tolerance: by how much each knapsack may fall short.
    """
    values, backend_of = pairs.values, backend_of.copy()
    meter.spend(60 + 4 * len(pairs.budgets))
    is_placed = backend_of >= 0
    worth = np.where(is_placed, values[np.arange(len(values)), backend_of], 0)
    order: list[int] = pairs.budgets.argsort(kind="stable").tolist()
    stale = np.ones(len(order), bool)  # may a knapsack have another answer than last time?
    for number in range(num_passes):
        for b in order:
            if not stale[b]:
                continue
            if number >= num_sure and meter.exhausted:
                return backend_of
            stale[b] = False
            here = backend_of == b
            gain = np.where(here, worth, values[:, b] - worth)
            gain[values[:, b] < 0] = -1
            answer = limited_knapsack.solve(
                pairs.weights[:, b],
                gain,
                int(pairs.budgets[b]),
                pairs.limits[b],
                labels_max,
                tolerance,
            )
            meter.spend(answer.work)
            if answer.value <= int(worth[here].sum()):
                continue
            moved = here.copy()
            moved[answer.chosen] ^= True  # left, or newly taken
            before, robbed = worth[moved], backend_of[answer.chosen]
            backend_of[here], worth[here] = -1, 0
            backend_of[answer.chosen], worth[answer.chosen] = b, values[answer.chosen, b]
            # Elsewhere only sessions matter that gain there before or after, and freed room.
            least = np.minimum(before, worth[moved])
            stale[np.flatnonzero((values[moved] > least[:, None]).any(axis=0))] = True
            stale[robbed[robbed >= 0]] = True
            stale[b] = False
        if not stale.any():
            break
    return backend_of
