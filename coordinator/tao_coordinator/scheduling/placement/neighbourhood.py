"""Re-optimise a few backends at a time: large neighbourhood search.

Sessions on the other backends stay, but may move here where that gains: a session is worth its
value here minus its value there. The sub-problem is solved by the label search at the same prices
(less what a session is worth elsewhere), with a small beam. A step is taken only if it gains.

Backends are drawn with a fixed seed: the same input gives the same plan. The search ends after
2 m^2 draws in a row without gain, or with the effort.
"""

import numpy as np

from tao_coordinator.scheduling.placement import labels
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import Pairs
from tao_coordinator.scheduling.placement.problem import Int64

_SIZES = (3, 2, 4)
_BEAM = 200


def search(pairs: Pairs, prices: Int64, backend_of: Int64, bound: int, meter: Meter) -> Int64:
    """[n] a plan at least as good as `backend_of`.

    Args:
        pairs: sessions, backends, values.
        prices: [n] from `prices`.
        backend_of: [n] where to start.
        bound: value at which to stop, being optimal.
        meter: counts the work and ends the search.
    """
    draw = np.random.default_rng(0)
    num_backends = len(pairs.budgets)
    value, failures, number = pairs.value_of(backend_of), 0, 0
    while failures < 2 * num_backends**2 and value < bound and not meter.exhausted:
        size = min(num_backends, _SIZES[number % len(_SIZES)])
        backends = np.sort(draw.choice(num_backends, size, replace=False))
        better = _reoptimise(pairs, prices, backend_of, backends, meter)
        number += 1
        if better is None:
            failures += 1
        else:
            backend_of, failures = better, 0
            value = pairs.value_of(backend_of)
    return backend_of


def _reoptimise(
    pairs: Pairs, prices: Int64, backend_of: Int64, backends: Int64, meter: Meter
) -> Int64 | None:
    inside = np.isin(backend_of, backends)
    elsewhere = (backend_of >= 0) & ~inside
    worth = np.where(elsewhere, pairs.values[np.arange(len(backend_of)), backend_of], 0)
    values = pairs.values[:, backends] - worth[:, None]
    values[(values <= 0) | (pairs.values[:, backends] < 0)] = -1
    sessions = np.flatnonzero((values >= 0).any(axis=1))
    columns: list[int] = backends.tolist()
    limits = tuple(pairs.limits[b] for b in columns)
    weights = pairs.weights[np.ix_(sessions, backends)]
    part = Pairs(values[sessions], weights, pairs.budgets[backends], limits)
    placed = inside.nonzero()[0]
    floor = int(pairs.values[placed, backend_of[placed]].sum())
    part_prices = np.maximum(prices - worth, 0)[sessions]
    answer = labels.search(part, part_prices, floor, _BEAM, meter)
    if answer.backend_of is None:
        return None
    better = backend_of.copy()
    better[inside] = -1
    taken = answer.backend_of >= 0
    better[sessions[taken]] = backends[answer.backend_of[taken]]
    return better
