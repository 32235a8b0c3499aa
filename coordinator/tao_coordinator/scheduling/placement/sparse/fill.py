"""Place sessions that have no credit worth the room: class by class, ready ones first.

As `..stage_fill`, on backends by the thousand: for each class, the largest number of smallest
sessions that best-fit-decreasing packs without exception, then the others smallest first; ordinary
sessions that are not ready largest first. Then `polish`: one exact knapsack per backend over what
is there, its pairs with credit, and a sample of waiting sessions of all sizes.

Overdue sessions come before credit. Those that find no room are forced in where that costs least:
on the backends where least credit seems to be in the way, the best of it is kept beside them.
"""

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.problem import Float64, Int64
from tao_coordinator.scheduling.placement.sparse.batch_knapsack import NO_LIMIT
from tao_coordinator.scheduling.placement.sparse.holes import KINDS_MAX, Holes, largest_packable
from tao_coordinator.scheduling.placement.sparse.state import SparsePlan

_CANDIDATES_MAX = 24
"""Backends tried for a session to be forced in."""
_SAMPLE = 64
"""Waiting sessions offered to a backend."""


def fill(plan: SparsePlan, meter: Meter, *, overdue_only: bool = False) -> None:
    """Add waiting sessions where they fit."""
    instance = plan.instance
    holes = Holes(plan)
    waiting = (plan.backend_of < 0) & instance.usable & (instance.lightest <= holes.largest())
    for rank in np.unique(instance.classes[waiting])[::-1].tolist():
        if overdue_only and rank == 0:
            break
        for ready in (1, 0):
            group = waiting & (instance.classes == rank) & (instance.ready == ready)
            sessions = group.nonzero()[0]
            if not len(sessions):
                continue
            sessions = sessions[instance.lightest[sessions].argsort(kind="stable")]
            order: list[int] = sessions.tolist()
            together = 0
            if rank == 0 and ready == 0:
                order.reverse()
            elif len(instance.weights[0]) <= KINDS_MAX:
                sizes = instance.lightest[sessions].cumsum()
                together = largest_packable(holes, order, sizes)
            holes.place(order[:together][::-1])
            holes.place(order[together:])
    meter.spend(holes.work)


def force_overdue(plan: SparsePlan, meter: Meter) -> None:
    """Make room for overdue sessions that found none."""
    instance = plan.instance
    waiting = (plan.backend_of < 0) & instance.usable & (instance.classes > 0)
    sessions = waiting.nonzero()[0]
    order = np.lexsort((instance.lightest[sessions], -instance.classes[sessions]))
    for session in sessions[order].tolist():
        if meter.exhausted:
            return
        _force(plan, session, meter)


def _force(plan: SparsePlan, session: int, meter: Meter) -> None:
    instance = plan.instance
    weights = instance.weights[session, instance.kind_of]
    possible = instance.eligible[session, instance.kind_of] & (weights <= instance.budgets)
    possible &= instance.limits > 0
    backends = possible.nonzero()[0]
    losses = _losses(plan, int(instance.classes[session]), weights)[backends]
    best: tuple[int, int, Int64] | None = None
    for b in backends[losses.argsort(kind="stable")[:_CANDIDATES_MAX]].tolist():
        here = (plan.backend_of == b).nonzero()[0]
        limit = int(instance.limits[b])
        answer = limited_knapsack.solve(
            instance.weights[here, instance.kind_of[b]],
            plan.worth[here],
            int(instance.budgets[b] - weights[b]),
            None if limit >= NO_LIMIT else limit - 1,
        )
        meter.spend(answer.work + 25)
        credit = int(instance.credits_at(np.array([session]), np.array([b]))[0])
        value = int(instance.own[session]) + credit * instance.units[1]
        gain = answer.value + value - int(plan.worth[here].sum())
        if gain > 0 and (best is None or gain > best[0]):
            best = gain, b, np.delete(here, answer.chosen)
    if best is not None:
        _, b, leaving = best
        plan.remove(leaving)
        plan.place(np.array([session]), np.array([b]))


def _losses(plan: SparsePlan, rank: int, weights: Int64) -> Float64:
    """[m] roughly what has to leave for a session of this rank: credit, and 1 per session."""
    instance, m = plan.instance, plan.instance.num_backends
    lower = ((plan.backend_of >= 0) & (instance.classes < rank)).nonzero()[0]
    at = plan.backend_of[lower]
    load = np.bincount(at, weights=plan.weights_at(lower, at), minlength=m)
    credit = np.bincount(at, weights=plan.credit[lower] + 1.0, minlength=m)
    least = np.full(m, np.inf)
    np.minimum.at(least, at, plan.credit[lower] + 1.0)
    needed = np.maximum(weights - plan.room, 0)
    share = np.minimum(needed / np.maximum(load, 1), 1.0)
    losses = np.where(needed > 0, np.maximum(credit * share, least), 0.0)
    losses = np.where((plan.seats <= 0), np.maximum(losses, least), losses)
    return np.where(needed > load, np.inf, losses)


def polish(plan: SparsePlan, meter: Meter) -> None:
    """Re-solve backend after backend, roomiest first, with a sample of waiting sessions."""
    instance = plan.instance
    waiting = ((plan.backend_of < 0) & instance.usable).nonzero()[0]
    waiting = waiting[instance.lightest[waiting].argsort(kind="stable")]
    for number, b in enumerate(plan.room.argsort(kind="stable")[::-1].tolist()):
        if meter.exhausted or not len(waiting):
            return
        if number % 64 == 0:
            waiting = waiting[plan.backend_of[waiting] < 0]
        fits = int(instance.lightest[waiting].searchsorted(instance.budgets[b], side="right"))
        if not fits:
            continue
        ready = waiting[:fits][instance.ready[waiting[:fits]] > 0][: _SAMPLE // 2]
        spread = waiting[np.unique(np.linspace(0, fits - 1, min(fits, _SAMPLE)).astype(np.int64))]
        extra = np.concatenate((ready, spread))
        plan.solve_backend(b, extra[plan.backend_of[extra] < 0], meter)
