"""Bound on credit over many backends, and plans on the way.

As `..prices`, on pairs with credit only, in whole numbers of a fine unit (1 / `scale` credit):

    L(u, lam, M) = sum_i u_i + lam sum_b C_b - M A
                 + sum_b K_b( M class_i + k_ib - u_i - lam w_ib )
                 + sum_{i overdue} max(0, M class_i - u_i - lam w_i)         w_i the lightest weight

bounds the credit of every plan that reaches the class sum A, once A is proved the optimum. The last
line is for overdue sessions placed where they have no credit. On which backend they are is not
looked at, only that they need room: lam >= 0 is the price of a token of room, the same everywhere.
(Relaxed are: one place per session, and that these sessions fit each backend, not just all
together.) Where the pairs of overdue sessions are listed (`instance`) they compete in the knapsacks
like all others, lam = 0 and the last line is empty. Without overdue sessions M = 0 as well, and
only sessions with several homes need a price. Where no overdue session has to wait, M costs nothing
and is fixed, beyond all credit.

u, lam and M follow the deflected subgradient of `..prices`: 1 - (times chosen), sum_b C_b - (weight
chosen), (classes chosen) - A. Start: u = 0, or the second-best credit of each session, whichever
bound is lower; for overdue sessions u_i = M class_i - lam w_i, with lam the density at which credit
fills what they leave.

All knapsacks are exact (`batch_knapsack`); only backends whose reduced values changed are solved.
"""

from dataclasses import dataclass

import numpy as np

from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.prices import Steps
from tao_coordinator.scheduling.placement.problem import Bool, Float64, Int64
from tao_coordinator.scheduling.placement.sparse import batch_knapsack
from tao_coordinator.scheduling.placement.sparse.instance import SparseInstance

_SCALE_WITH_OVERDUE = 1 << 10


@dataclass(slots=True)
class Variables:
    """Prices in units of 1 / scale credit."""

    sessions: Int64  # [n] u_i
    room: int
    """lam, per token."""
    class_unit: int
    """M."""


class CreditBound:
    """L, and what it chose last."""

    def __init__(self, instance: SparseInstance, class_sum: int, meter: Meter) -> None:
        self._instance, self._meter = instance, meter
        self.class_sum = class_sum
        self._overdue = (instance.usable & (instance.classes > 0)).nonzero()[0]
        self._waits = int(instance.classes[self._overdue].sum()) > class_sum
        self._pool = self._overdue[:0] if instance.overdue_in_pairs else self._overdue
        self.scale = _SCALE_WITH_OVERDUE if len(self._overdue) else 1
        self._capacity = int(np.maximum(instance.budgets, 0).sum())
        homes = np.bincount(instance.pair_sessions, minlength=instance.num_sessions)
        self._priced = homes > 1
        self._priced[self._overdue] = True
        num_pairs = len(instance.pair_sessions)
        self._reduced: Int64 | None = None
        self._values: Int64 = np.zeros(instance.num_backends, np.int64)
        self.taken: Bool = np.zeros(num_pairs, bool)
        """[p] pairs that the last evaluation chose."""
        self._pooled: Bool = np.zeros(len(self._pool), bool)

    def evaluate(self, at: Variables) -> int:
        """Bound on credit, in units of 1 / scale, rounded down when read in whole ones."""
        instance = self._instance
        sessions = instance.pair_sessions
        reduced = at.class_unit * instance.classes[sessions] + self.scale * instance.pair_credits
        reduced -= at.sessions[sessions] + at.room * instance.pair_weights
        np.maximum(reduced, 0, out=reduced)
        self._solve_changed(reduced)
        total = int(at.sessions.sum()) + int(self._values.sum()) - at.class_unit * self.class_sum
        if at.room:
            total += at.room * self._capacity
        pool = at.class_unit * instance.classes[self._pool] - at.sessions[self._pool]
        pool -= at.room * instance.lightest[self._pool]
        self._pooled = pool > 0
        return total + int(np.maximum(pool, 0).sum())

    def _solve_changed(self, reduced: Int64) -> None:
        instance = self._instance
        backends = instance.pair_backends
        if self._reduced is None:
            pairs = np.arange(len(reduced))
        else:
            changed = np.zeros(instance.num_backends, bool)
            changed[backends[reduced != self._reduced]] = True
            pairs = changed[backends].nonzero()[0]
        self._reduced = reduced
        if not len(pairs):
            return
        items = batch_knapsack.Items(backends[pairs], instance.pair_weights[pairs], reduced[pairs])
        answer = batch_knapsack.solve(items, instance.budgets, instance.limits)
        self._meter.spend(answer.work + len(reduced) // 50)
        self.taken[pairs] = answer.taken
        solved = np.unique(backends[pairs])
        self._values[solved] = answer.bounds[solved]

    def gradient(self) -> Float64:
        """[n + 2] of L at the last evaluation: sessions, room, class unit."""
        instance = self._instance
        counts = np.bincount(instance.pair_sessions[self.taken], minlength=instance.num_sessions)
        pooled = self._pool[self._pooled]
        counts[pooled] += 1
        load = int(instance.pair_weights[self.taken].sum()) + int(instance.lightest[pooled].sum())
        classes = int(counts @ instance.classes)
        gradient = np.where(self._priced, 1.0 - counts, 0.0)
        room = float(self._capacity - load) / self._mean_weight() if len(self._pool) else 0.0
        unit = float(classes - self.class_sum) if self._waits else 0.0
        return np.append(gradient, (room, unit))

    def _mean_weight(self) -> float:
        return max(1.0, float(self._instance.pair_weights.mean())) if len(self.taken) else 1.0

    def move(self, at: Variables, change: Float64) -> Variables:
        """Variables less a change."""
        sessions = np.maximum(0, at.sessions - np.rint(change[:-2]).astype(np.int64))
        room = max(0, at.room - round(float(change[-2]) / self._mean_weight()))
        return Variables(sessions, room, max(0, at.class_unit - round(float(change[-1]))))

    def starts(self) -> list[Variables]:
        """Where to begin."""
        instance = self._instance
        n = instance.num_sessions
        order = np.lexsort((-instance.pair_credits, instance.pair_sessions))
        sessions = instance.pair_sessions[order]
        again = np.append(False, sessions[1:] == sessions[:-1])[: len(sessions)]
        is_second = again & ~np.append(False, again[:-1])[: len(sessions)]
        second = np.zeros(n, np.int64)
        second[sessions[is_second]] = self.scale * instance.pair_credits[order][is_second]
        room = self._room_start()
        class_unit = 0
        base = np.zeros(n, np.int64)
        if len(self._overdue):
            cost = room * instance.lightest[self._overdue]
            classes = instance.classes[self._overdue]
            largest = self.scale * int(instance.pair_credits.max(initial=0))
            class_unit = max(largest, int((cost / classes).max())) * 2 + 1
            if self._waits:
                class_unit = int(np.quantile(cost / classes, 0.8)) + 1
            base[self._overdue] = np.maximum(class_unit * classes - cost, 0)
        if not len(self._pool):
            room = 0
        return [Variables(base, room, class_unit), Variables(base + second, room, class_unit)]

    def _room_start(self) -> int:
        """Credit per token of the pair that the last room goes to, overdue sessions first."""
        instance = self._instance
        if not len(self._overdue):
            return 0
        order = instance.lightest[self._overdue].argsort()
        filled = instance.lightest[self._overdue[order]].cumsum()
        reached = instance.classes[self._overdue[order]].cumsum()
        num_placed = min(len(order) - 1, int(reached.searchsorted(self.class_sum)))
        room = self._capacity - int(filled[num_placed])
        ordinary = (instance.classes[instance.pair_sessions] == 0).nonzero()[0]
        best: Int64 = np.zeros(instance.num_sessions, np.int64)
        np.maximum.at(best, instance.pair_sessions[ordinary], instance.pair_credits[ordinary])
        some = best.nonzero()[0]
        density = best[some] / np.maximum(instance.lightest[some], 1)
        order = density.argsort()[::-1]
        weights = instance.lightest[some][order].cumsum()
        place = int(weights.searchsorted(max(0, room), side="right"))
        return round(self.scale * float(density[order[place]])) if place < len(order) else 0


def at_zero(at: Variables) -> Bool:
    """[n + 2] variables that cannot fall."""
    return np.append(at.sessions, (at.room, at.class_unit)) <= 0


def step(
    bound: CreditBound, at: Variables, steps: Steps, gradient: Float64, excess: float
) -> Variables | None:
    """Where to evaluate next; None where there is nothing to change."""
    change = steps.change(gradient, at_zero(at), excess)
    if not (np.abs(change) >= 0.5).any():
        return None
    return bound.move(at, change)
