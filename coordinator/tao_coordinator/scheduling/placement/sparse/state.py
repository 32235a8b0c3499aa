"""A plan in the making, and steps that only improve it."""

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.problem import Bool, Int64, Objective
from tao_coordinator.scheduling.placement.sparse import batch_knapsack
from tao_coordinator.scheduling.placement.sparse.batch_knapsack import NO_LIMIT
from tao_coordinator.scheduling.placement.sparse.instance import SparseInstance

_LABELS_MAX = 256


class SparsePlan:
    """Who is where; every method keeps budgets and limits."""

    def __init__(self, instance: SparseInstance) -> None:
        self.instance = instance
        n = instance.num_sessions
        self.backend_of: Int64 = np.full(n, -1, np.int64)
        self.credit: Int64 = np.zeros(n, np.int64)
        """[n] credit that each session earns where it is."""
        self.worth: Int64 = np.zeros(n, np.int64)
        """[n] packed value of each session where it is; 0 while it waits."""
        self.room: Int64 = instance.budgets.copy()
        self.seats: Int64 = instance.limits.copy()

    def copy(self) -> "SparsePlan":
        """An independent plan."""
        twin = SparsePlan(self.instance)
        twin.backend_of, twin.credit = self.backend_of.copy(), self.credit.copy()
        twin.worth = self.worth.copy()
        twin.room, twin.seats = self.room.copy(), self.seats.copy()
        return twin

    @property
    def objective(self) -> Objective:
        """Exact sums."""
        placed = self.backend_of >= 0
        instance = self.instance
        return Objective(
            int(instance.classes[placed].sum()),
            int(self.credit.sum()),
            int(instance.ready[placed].sum()),
            int(instance.tokens[placed].sum()),
            int(placed.sum()),
        )

    def weights_at(self, sessions: Int64, backends: Int64) -> Int64:
        """[k] tokens."""
        return self.instance.weights[sessions, self.instance.kind_of[backends]]

    def place(self, sessions: Int64, backends: Int64, credits: Int64 | None = None) -> None:
        """Put waiting sessions on backends that have room for them.

        Args:
            sessions: [k] who waits.
            backends: [k] where to.
            credits: [k] what they earn there; None: looked up.
        """
        if credits is None:
            credits = self.instance.credits_at(sessions, backends)
        self.backend_of[sessions], self.credit[sessions] = backends, credits
        self.worth[sessions] = self.instance.own[sessions] + credits * self.instance.units[1]
        np.subtract.at(self.room, backends, self.weights_at(sessions, backends))
        np.subtract.at(self.seats, backends, 1)

    def remove(self, sessions: Int64) -> None:
        """Let sessions wait."""
        backends = self.backend_of[sessions]
        np.add.at(self.room, backends, self.weights_at(sessions, backends))
        np.add.at(self.seats, backends, 1)
        self.backend_of[sessions], self.credit[sessions], self.worth[sessions] = -1, 0, 0

    # --- credit ----------------------------------------------------------------------------------

    def local_ratio(self, meter: Meter) -> None:
        """One pass of Cohen, Katz and Raz over the pairs with credit, smallest budgets first."""
        instance = self.instance
        starts: Int64 = np.searchsorted(
            instance.pair_backends, np.arange(instance.num_backends + 1)
        )
        bounds: list[int] = starts.tolist()
        order: list[int] = instance.budgets.argsort(kind="stable").tolist()
        for b in order:
            pairs: Int64 = np.arange(bounds[b], bounds[b + 1], dtype=np.int64)
            if len(pairs):
                self._solve_one(b, pairs, meter)

    def _solve_one(self, b: int, pairs: Int64, meter: Meter) -> None:
        instance = self.instance
        sessions = instance.pair_sessions[pairs]
        values = instance.own[sessions] + instance.pair_credits[pairs] * instance.units[1]
        here = self.backend_of[sessions] == b
        gains = np.where(here, values, values - self.worth[sessions])
        limit = int(instance.limits[b])
        answer = limited_knapsack.solve(
            instance.pair_weights[pairs],
            gains,
            int(instance.budgets[b]),
            None if limit >= NO_LIMIT else limit,
            _LABELS_MAX,
        )
        meter.spend(answer.work + 20)
        if answer.value > int(gains[here].sum()):
            self._exchange(sessions[here], sessions[answer.chosen], b, pairs[answer.chosen])

    def _exchange(self, old: Int64, new: Int64, b: int, pairs: Int64) -> None:
        """Replace sessions on a backend by pairs with credit there."""
        self.remove(old)
        self.remove(new[self.backend_of[new] >= 0])
        self.place(new, np.full(len(new), b, np.int64), self.instance.pair_credits[pairs])

    def improve_credit(self, rounds: int, meter: Meter, *, leave_overdue: bool = False) -> None:
        """Re-solve backends where a session would earn more, all at once, until none would.

        What is on a backend without credit competes there as well. Two backends may want the same
        session: the one that gains more gets it, the other is solved again in the next round.

        Args:
            rounds: at most so many.
            meter: counts the work and ends the rounds.
            leave_overdue: do not bring in waiting overdue sessions; their place is looked for
                elsewhere.
        """
        for _ in range(rounds):
            if meter.exhausted or not self._improve_once(meter, leave_overdue):
                return

    def _improve_once(self, meter: Meter, leave_overdue: bool) -> bool:
        instance = self.instance
        backends, sessions = instance.pair_backends, instance.pair_sessions
        values = instance.own[sessions] + instance.pair_credits * instance.units[1]
        here = self.backend_of[sessions] == backends
        gains = np.where(here, values, values - self.worth[sessions])
        if leave_overdue:
            gains[(self.backend_of[sessions] < 0) & (instance.classes[sessions] > 0)] = -1
        wanted = np.zeros(instance.num_backends, bool)
        wanted[backends[(gains > 0) & ~here]] = True
        chosen = wanted[backends].nonzero()[0]
        plain = (self.backend_of >= 0) & (self.credit == 0)
        plain[sessions[here]] = False
        plain = plain.nonzero()[0]
        plain = plain[wanted[self.backend_of[plain]]]
        at = self.backend_of[plain]
        rows = np.concatenate((backends[chosen], at))
        order = rows.argsort(kind="stable")
        items = batch_knapsack.Items(
            rows[order],
            np.concatenate((instance.pair_weights[chosen], self.weights_at(plain, at)))[order],
            np.concatenate((gains[chosen], self.worth[plain]))[order],
        )
        answer = batch_knapsack.solve(items, instance.budgets, instance.limits)
        meter.spend(answer.work + 150 + len(backends) // 8)
        who = np.concatenate((sessions[chosen], plain))[order]
        credits = np.concatenate((instance.pair_credits[chosen], np.zeros_like(plain)))[order]
        before = np.zeros(instance.num_backends, np.int64)
        placed = self.backend_of >= 0
        np.add.at(before, self.backend_of[placed], self.worth[placed])
        profit = np.where(wanted, answer.values - before, 0)
        return self._adopt(items.rows, who, credits, answer.taken, profit)

    def _adopt(self, rows: Int64, who: Int64, credits: Int64, taken: Bool, profit: Int64) -> bool:
        """Adopt the answers of rows that gain, largest gain first, unless they clash."""
        better = (profit > 0).nonzero()[0]
        better = better[profit[better].argsort(kind="stable")[::-1]]
        starts = rows.searchsorted(np.arange(self.instance.num_backends + 1))
        touched: set[int] = set()
        stale: set[int] = set()
        for b in better.tolist():
            part = slice(int(starts[b]), int(starts[b + 1]))
            chosen = taken[part].nonzero()[0]
            new = who[part][chosen]
            if b in stale or not touched.isdisjoint(new.tolist()):
                continue
            touched.update(new.tolist())
            sources = self.backend_of[new]
            stale.update(sources[(sources >= 0) & (sources != b)].tolist())
            self.remove((self.backend_of == b).nonzero()[0])
            self.remove(new[self.backend_of[new] >= 0])
            self.place(new, np.full(len(new), b, np.int64), credits[part][chosen])
        return bool(len(better))

    # --- everything else -------------------------------------------------------------------------

    def solve_backend(self, b: int, extra: Int64, meter: Meter) -> bool:
        """Re-solve one backend over its pairs with credit, what is there, and more candidates."""
        instance = self.instance
        low, high = instance.pair_backends.searchsorted([b, b + 1])
        here = (self.backend_of == b).nonzero()[0]
        sessions = np.concatenate((instance.pair_sessions[low:high], here, extra))
        sessions, first = np.unique(sessions, return_index=True)
        kind = int(instance.kind_of[b])
        weights = instance.weights[sessions, kind]
        credits = (
            np.where(
                first < high - low,
                instance.pair_credits[low + np.minimum(first, high - low - 1)],
                0,
            )
            if high > low
            else np.zeros(len(sessions), np.int64)
        )
        values = instance.own[sessions] + credits * instance.units[1]
        stays = self.backend_of[sessions] == b
        gains = np.where(stays, values, values - self.worth[sessions])
        gains[~instance.eligible[sessions, kind]] = -1
        limit = int(instance.limits[b])
        answer = limited_knapsack.solve(
            weights,
            gains,
            int(instance.budgets[b]),
            None if limit >= NO_LIMIT else limit,
            _LABELS_MAX,
        )
        meter.spend(answer.work + 60)
        if answer.value <= int(gains[stays].sum()):
            return False
        new = sessions[answer.chosen]
        self.remove(sessions[stays])
        self.remove(new[self.backend_of[new] >= 0])
        self.place(new, np.full(len(new), b, np.int64), credits[answer.chosen])
        return True
