"""Exact search over reachable residual budgets, under the Lagrangian completion bound.

The joint dynamic programme (TAO, Eq. 7) without its grid: sessions are decided one after the other
(wait, or one of their backends); a label is (residual budget of every backend, exact; value).
Two labels with equal residuals: the more valuable one stays. A label whose bound

    value + rest(j, residuals)                                  (`completion`)

does not exceed the best plan's value goes. Only pairs that can be in a better plan are decided on
(`pegging`). Order: largest best value first, since early decisions on what matters most prune most.

At most `beam` labels stay per session, those with the best bounds; the best bound dropped is
remembered. Then max(best plan, dropped) bounds every plan: if nothing was dropped that could have
won, the plan is proved optimal.

*One coordinate at a time.* The first open coordinate is searched alone: values are rounded down to
its unit (`in_units`), and only a plan better by a whole unit counts, so a bound that lies less than
a unit above the best plan closes at once. Rounded, many sessions become interchangeable: if i is
worth no less than h wherever h may go, and weighs no more there, a plan with h and without i is no
better than with i in h's place. Such sessions form *chains* of falling weight, and of each chain
the placed ones are a tail: once one is placed, no lighter one waits.

*Classes.* Where the class sum is known to be the optimum, a plan that improves on the best one
reaches it as well: labels that have let too much class wait go (and the class a label let wait is
part of what makes two labels equal).

Complexity: sessions x beam x m.
"""

from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement.completion import Completion, is_safe
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import Pairs
from tao_coordinator.scheduling.placement.pegging import peg
from tao_coordinator.scheduling.placement.problem import Int64

_CHAINS_MAX = 62
"""Bits of a label's mark."""


class LabelAnswer(NamedTuple):
    """Outcome of one search."""

    backend_of: Int64 | None
    """[n] a plan worth more than the floor, if one was found."""
    bound: int
    """No plan is worth more."""


class _Layer(NamedTuple):
    """Back-pointers of the labels after one session."""

    parents: Int64
    backends: Int64  # -1 = waits


class _Labels(NamedTuple):
    waiting: Int64  # [L] class left waiting so far
    started: Int64  # [L] bit set of chains of which a session is placed
    residuals: Int64  # [L, m] tokens
    seats: Int64 | None  # [L, m] session limits left; None where no limit binds
    values: Int64  # [L]
    bounds: Int64  # [L]


class Goal(NamedTuple):
    """What a plan must have to be an improvement."""

    value: int
    """More than this."""
    classes: Int64  # [n]
    class_sum: int
    """At least this sum of classes."""


def search(pairs: Pairs, prices: Int64, goal: Goal, beam: int, meter: Meter) -> LabelAnswer:
    """Look for a better plan.

    Args:
        pairs: sessions, backends, values.
        prices: [n] of the sessions; any >= 0 are valid, good ones prune.
        goal: what is better.
        beam: labels kept per session.
        meter: counts the work; when exhausted, the best partial plan is returned.
    """
    floor = goal.value
    pegged = peg(pairs, prices, floor, meter)
    if not pegged.open_pairs.any():
        return LabelAnswer(None, floor)
    sessions = np.flatnonzero(pegged.open_pairs.any(axis=1))
    open_values = np.where(pegged.open_pairs, pairs.values, -1)[sessions]
    best = open_values.max(axis=1)
    order = np.lexsort((-pairs.weights[sessions].max(axis=1), -best))
    sessions, open_values = sessions[order], open_values[order]
    chain_of = chains(pairs)[sessions]
    kept = Pairs(open_values, pairs.weights[sessions], pairs.budgets, pairs.limits)
    limits = np.array([limit or 0 for limit in pairs.limits], np.int64)
    if not is_safe(kept, prices[sessions], pegged.seat_prices, limits):
        return LabelAnswer(None, pegged.bound)
    completion = Completion(kept, prices[sessions], pegged.seat_prices)
    meter.spend(completion.work)
    classes = goal.classes[sessions]
    waiting_max = int(classes.sum()) - goal.class_sum
    if waiting_max < 0:
        return LabelAnswer(None, floor)
    run = _Run(kept, completion, chain_of, floor, beam)
    run.forbid_waiting(classes, waiting_max)
    found = run.run(meter)
    bound = min(pegged.bound, max(floor, run.dropped, run.best_value))
    if found is None:
        return LabelAnswer(None, bound)
    backend_of = np.full(len(pairs.values), -1, np.int64)
    backend_of[sessions] = found
    return LabelAnswer(backend_of, bound)


class _Run:
    """One pass over the sessions."""

    def __init__(
        self, pairs: Pairs, completion: Completion, chain_of: Int64, floor: int, beam: int
    ) -> None:
        self._pairs, self._completion = pairs, completion
        self._bits: list[int] = [0 if c < 0 else 1 << c for c in chain_of.tolist()]
        self._floor, self._beam = floor, beam
        self._limited = any(limit is not None for limit in pairs.limits)
        num_backends = len(pairs.budgets)
        # Residual vectors are found equal by a random linear form, then compared in full.
        hashing = np.random.default_rng(7).integers(
            1, 1 << 62, 2 * num_backends + 2, dtype=np.int64
        )
        self._hashing = hashing | 1
        self.dropped = 0
        self.best_value = 0
        self._classes: Int64 = np.zeros(len(pairs.values), np.int64)
        self._waiting_max = 0

    def forbid_waiting(self, classes: Int64, waiting_max: int) -> None:
        """Drop labels that let more than this class wait."""
        self._classes, self._waiting_max = classes, waiting_max

    def run(self, meter: Meter) -> Int64 | None:
        """[n] plan worth more than the floor."""
        pairs, num_backends = self._pairs, len(self._pairs.budgets)
        seats: Int64 | None = None
        if self._limited:
            many = len(pairs.values)
            seats = np.array([[many if x is None else x for x in pairs.limits]], np.int64)
        start = np.zeros(1, np.int64)
        labels = _Labels(start, start, pairs.budgets[None, :].copy(), seats, start, start)
        layers: list[_Layer] = []
        for j in range(len(pairs.values)):
            step = self._decide(j, labels)
            if step is None:
                return None
            labels, layer = step
            layers.append(layer)
            meter.spend(60 + len(labels.values) * num_backends // 40)
            if meter.exhausted:
                self.dropped = max(self.dropped, int(labels.bounds.max()))
                break
        best = int(labels.values.argmax())
        self.best_value = int(labels.values[best])
        if self.best_value <= self._floor:
            return None
        return self._backtrack(layers, best)

    def _decide(self, j: int, labels: _Labels) -> tuple[_Labels, _Layer] | None:
        """Labels after session j, or None when none can win."""
        pairs, completion = self._pairs, self._completion
        residuals, seats, values = labels.residuals, labels.seats, labels.values
        rest = completion.prices_after[j + 1]
        parts = completion.parts(j + 1, residuals)
        total = values + parts.sum(axis=1) + rest
        if seats is not None:
            total = total + self._seat_values(seats)
        weights, own = pairs.weights[j], pairs.values[j]
        useful = (own >= 0).nonzero()[0]
        left = residuals[:, useful] - weights[useful]
        possible = left >= 0
        if seats is not None:
            possible &= seats[:, useful] > 0
        gain = own[useful] - completion.seat_prices[useful]
        with_pair = total[:, None] + gain - parts[:, useful]
        with_pair += completion.parts(j + 1, left, useful)
        placed, which = ((with_pair > self._floor) & possible).nonzero()
        may_wait = labels.waiting + self._classes[j] <= self._waiting_max
        may_wait &= labels.started & self._bits[j] == 0
        waiting = ((total > self._floor) & may_wait).nonzero()[0]
        parents = np.concatenate((waiting, placed))
        if not len(parents):
            return None
        backends = np.concatenate((np.full(len(waiting), -1), useful[which]))
        bounds = np.concatenate((total[waiting], with_pair[placed, which]))
        return self._select(j, labels, parents, backends, bounds)

    def _seat_values(self, seats: Int64) -> Int64:
        priced = self._completion.seat_prices > 0
        return (seats[:, priced] * self._completion.seat_prices[priced]).sum(axis=1)

    def _select(
        self, j: int, labels: _Labels, parents: Int64, backends: Int64, bounds: Int64
    ) -> tuple[_Labels, _Layer]:
        """Make the children, merge equal ones, keep the beam."""
        residuals, values = labels.residuals[parents], labels.values[parents]
        waiting = labels.waiting[parents] + np.where(backends < 0, self._classes[j], 0)
        started = labels.started[parents] | np.where(backends < 0, 0, self._bits[j])
        seats = None if labels.seats is None else labels.seats[parents]
        rows = (backends >= 0).nonzero()[0]
        columns = backends[rows]
        residuals[rows, columns] -= self._pairs.weights[j, columns]
        values[rows] += self._pairs.values[j, columns]
        if seats is not None:
            seats[rows, columns] -= 1
        kept = self._distinct(np.stack((waiting, started), axis=1), residuals, seats, values)
        if len(kept) > self._beam:
            ranked = kept[np.argpartition(-bounds[kept], self._beam)]
            self.dropped = max(self.dropped, int(bounds[ranked[self._beam :]].max()))
            kept = ranked[: self._beam]
        if seats is not None:
            seats = seats[kept]
        chosen = _Labels(
            waiting[kept], started[kept], residuals[kept], seats, values[kept], bounds[kept]
        )
        return chosen, _Layer(parents[kept], backends[kept])

    def _distinct(
        self, marks: Int64, residuals: Int64, seats: Int64 | None, values: Int64
    ) -> Int64:
        """Indices of the best label of each kind."""
        num_backends = residuals.shape[1]
        keys = residuals @ self._hashing[2 : num_backends + 2] + marks @ self._hashing[:2]
        if seats is not None:
            keys = keys + seats @ self._hashing[num_backends + 2 :]
        order = np.lexsort((-values, keys))
        keys = keys[order]
        again = (keys[1:] == keys[:-1]).nonzero()[0] + 1
        same = (residuals[order[again]] == residuals[order[again - 1]]).all(axis=1)
        same &= (marks[order[again]] == marks[order[again - 1]]).all(axis=1)
        if seats is not None:
            same &= (seats[order[again]] == seats[order[again - 1]]).all(axis=1)
        stays = np.ones(len(order), bool)
        stays[again[same]] = False
        return order[stays]

    def _backtrack(self, layers: list[_Layer], label: int) -> Int64:
        backend_of = np.full(len(self._pairs.values), -1, np.int64)
        for j in range(len(layers) - 1, -1, -1):
            backend_of[j] = layers[j].backends[label]
            label = int(layers[j].parents[label])
        return backend_of


def in_units(pairs: Pairs, unit: int) -> Pairs:
    """Values rounded down to a unit; pairs worth less are out."""
    values = np.where(pairs.values >= unit, pairs.values // unit * unit, -1)
    return pairs._replace(values=values)


def chains(pairs: Pairs) -> Int64:
    """[n] chain of interchangeable sessions, or -1.

    Sessions worth the same everywhere they may go, each in turn no heavier than the one before and
    allowed wherever that is.
    """
    values, allowed = pairs.values, pairs.values >= 0
    chain_of = np.full(len(values), -1, np.int64)
    highest = values.max(axis=1, initial=-1)
    flat = (np.where(allowed, values, highest[:, None]) == highest[:, None]).all(axis=1)
    number = 0
    for worth in np.unique(highest[flat & (highest >= 0)]).tolist():
        group = (flat & (highest == worth)).nonzero()[0]
        if len(group) < 2:
            continue
        group = group[pairs.weights[group].max(axis=1).argsort(kind="stable")[::-1]]
        weights, fits = pairs.weights[group], allowed[group]
        follows = ((weights[1:] <= weights[:-1]) & fits[1:] | ~fits[:-1]).all(axis=1)
        breaks = np.append(0, (~follows).cumsum())
        if number + int(breaks[-1]) >= _CHAINS_MAX:
            break
        chain_of[group] = number + breaks
        number += int(breaks[-1]) + 1
    return chain_of
