"""Re-optimise a few backends at a time: large neighbourhood search.

Sessions on the other backends stay, but may move here where that gains: a session is worth its
value here minus its value there. The sub-problem is solved by the label search at the same prices
(less what a session is worth elsewhere), with a small beam. A step is taken only if it gains.

Backends are drawn with a fixed seed: the same input gives the same plan. The search ends after
m^2 draws in a row without gain, or with the work.
"""

import numpy as np

from tao_coordinator.scheduling.placement import labels
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import Pairs
from tao_coordinator.scheduling.placement.plan import Rung
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.placement.views import View

_SIZES = (3, 2, 4)
"""Backends at a time; fewer than there are."""
_BEAM = 200


def search(incumbent: Incumbent, views: list[View], meter: Meter, work: int) -> None:
    """Improve the best plan.

    Args:
        incumbent: where to start, and where better plans go.
        views: units and prices in which bounds are good.
        meter: counts the work and ends the search.
        work: units after which to stop, at the end of a step.
    """
    pairs = incumbent.packed.pairs
    draw = np.random.default_rng(0)
    num_backends = len(pairs.budgets)
    sizes = [size for size in _SIZES if size < num_backends]
    failures, number, work_max = 0, 0, meter.spent + work
    tried: set[tuple[int, ...]] = set()
    while sizes and failures < num_backends**2 and not incumbent.closed:
        if meter.exhausted or meter.spent >= work_max:
            break
        size = sizes[number % len(sizes)]
        number += 1
        backends = np.sort(draw.choice(num_backends, size, replace=False))
        key = tuple(backends.tolist())
        better = None
        if key not in tried:
            tried.add(key)
            better = _reoptimise(pairs, views, incumbent.backend_of, backends, meter)
        if better is None:
            failures += 1
        else:
            incumbent.offer(better, Rung.NEIGHBOURHOOD)
            failures = 0
            tried.clear()


def _reoptimise(
    pairs: Pairs, views: list[View], backend_of: Int64, backends: Int64, meter: Meter
) -> Int64 | None:
    rows = np.arange(len(backend_of))
    inside = np.isin(backend_of, backends)
    elsewhere = (backend_of >= 0) & ~inside
    worth = np.where(elsewhere, pairs.values[rows, backend_of], 0)
    values = pairs.values[:, backends] - worth[:, None]
    values[(values <= 0) | (pairs.values[:, backends] < 0)] = -1
    sessions = np.flatnonzero((values >= 0).any(axis=1))
    values = values[sessions]
    columns: list[int] = backends.tolist()
    part = Pairs(
        values,
        pairs.weights[np.ix_(sessions, backends)],
        pairs.budgets[backends],
        tuple(pairs.limits[b] for b in columns),
    )
    placed = inside.nonzero()[0]
    boundings: list[labels.Bounding] = []
    for view in views:
        worth = np.where(elsewhere, view.pairs.values[rows, backend_of], 0)
        gains = view.pairs.values[np.ix_(sessions, backends)] - worth[sessions, None]
        bounding = labels.Bounding(
            pairs=part._replace(values=np.where(values >= 0, np.maximum(gains, 0), -1)),
            prices=np.maximum(view.prices - worth, 0)[sessions],
            floor=int(view.pairs.values[placed, backend_of[placed]].sum()),
        )
        boundings.append(bounding)
    more_than = int(pairs.values[placed, backend_of[placed]].sum())
    question = labels.Question(values, more_than, tuple(boundings))
    answer = labels.search(question, _BEAM, meter)
    if answer.backend_of is None:
        return None
    better = backend_of.copy()
    better[inside] = -1
    taken = answer.backend_of >= 0
    better[sessions[taken]] = backends[answer.backend_of[taken]]
    return better
