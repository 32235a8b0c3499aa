"""Exact search over reachable residual budgets, under the Lagrangian completion bound.

The joint dynamic programme (TAO, Eq. 7) without its grid: sessions are decided one after the other
(wait, or one of their backends); a label is (residual budget of every backend, exact; value so
far). Two labels with equal residuals: the more valuable one stays. A label goes if

    value so far, in the view's units + rest(j, residuals)                 (`views`, `completion`)

or its packed value plus the best value of every session to come cannot beat the best plan. Only
pairs that can be in a better plan are decided on (`pegging`). Order: largest best value first,
heavy ones first among equals, since early decisions on what matters most prune most.

At most `beam` labels stay per session, those with the best bounds; the best bound dropped is
remembered. Then max(best plan, dropped) bounds every plan: if nothing was dropped that could have
won, the plan is proved optimal.

*One coordinate at a time.* The first open coordinate is searched alone: what lies below it counts
nothing (`views.down_to`) and only a plan better by a whole unit counts, so a bound less than a unit
above the best plan closes at once. Many sessions then become interchangeable: if i is worth no less
than h wherever h may go, and weighs no more there, a plan with h and without i is no better than
with i in h's place. Such sessions form *chains* of falling weight, and of each chain the placed
ones are a tail: once one is placed, no lighter one waits.

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


class Bounding(NamedTuple):
    """Units and prices in which bounds are good."""

    pairs: Pairs
    prices: Int64  # [n]
    floor: int
    """A better plan is worth more than this."""


class Question(NamedTuple):
    """Is there a plan better than the one we have?"""

    values: Int64  # [n, m] packed values, as far as the coordinate asked about; below 0: out
    more_than: int
    """What the plan we have is worth in them."""
    boundings: tuple[Bounding, ...]
    """At least one; all tell which pairs are out, the one that leaves fewest bounds labels."""
    open_pairs_max: int | None = None
    """Do not search if more pairs are left."""


class LabelAnswer(NamedTuple):
    """Outcome of one search."""

    backend_of: Int64 | None
    """[n] a better plan, if one was found."""
    excess: int
    """No plan is worth more than the floor plus this, in packed units as well; 0 = proved."""


class _Layer(NamedTuple):
    """Back-pointers of the labels after one session."""

    parents: Int64
    backends: Int64  # -1 = waits


class _Labels(NamedTuple):
    residuals: Int64  # [L, m] tokens
    seats: Int64 | None  # [L, m] session limits left; None where no limit binds
    started: Int64  # [L] bit set of chains of which a session is placed
    values: Int64  # [L] packed
    scores: Int64  # [L] the same in units in which bounds are good
    bounds: Int64  # [L] of the scores


def search(question: Question, beam: int, meter: Meter) -> LabelAnswer:
    """Look for a better plan; at most `beam` labels per session."""
    peggings = [peg(one.pairs, one.prices, one.floor, meter) for one in question.boundings]
    sizes = [int(pegging.open_pairs.sum()) for pegging in peggings]
    best = sizes.index(min(sizes))
    pairs, prices, floor = question.boundings[best]
    excess = min(
        max(0, pegging.bound - one.floor)
        for pegging, one in zip(peggings, question.boundings, strict=True)
    )
    is_open = np.logical_and.reduce([pegging.open_pairs for pegging in peggings])
    is_open &= question.values >= 0
    sessions = np.flatnonzero(is_open.any(axis=1))
    if not len(sessions):
        return LabelAnswer(None, 0)
    if question.open_pairs_max is not None and int(is_open.sum()) > question.open_pairs_max:
        return LabelAnswer(None, excess)
    values = np.where(is_open, question.values, -1)[sessions]
    order = np.lexsort((-pairs.weights[sessions].max(axis=1), -values.max(axis=1)))
    sessions, values = sessions[order], values[order]
    kept = Pairs(
        np.where(values >= 0, pairs.values[sessions], -1),
        pairs.weights[sessions],
        pairs.budgets,
        pairs.limits,
    )
    prices, seat_prices = prices[sessions], peggings[best].seat_prices
    if not is_safe(kept, prices, seat_prices):
        return LabelAnswer(None, excess)
    completion = Completion(kept, prices, seat_prices, meter)
    chain_of = chains(pairs._replace(values=question.values))[sessions]
    run = _Run(kept, values, completion, chain_of, (question.more_than, floor), beam)
    found = run.run(meter)
    excess = min(excess, max(0, run.dropped - floor))
    if found is None:
        return LabelAnswer(None, excess)
    backend_of = np.full(len(question.values), -1, np.int64)
    backend_of[sessions] = found
    return LabelAnswer(backend_of, excess)


class _Run:
    """One pass over the sessions."""

    def __init__(
        self,
        pairs: Pairs,
        values: Int64,
        completion: Completion,
        chain_of: Int64,
        goal: tuple[int, int],
        beam: int,
    ) -> None:
        self._pairs, self._values, self._completion = pairs, values, completion
        self._more_than, self._floor = goal
        self._beam = beam
        self._bits: list[int] = [0 if c < 0 else 1 << c for c in chain_of.tolist()]
        best = np.maximum(values.max(axis=1), 0)
        self._best_after = np.append(best[::-1].cumsum()[::-1], 0)
        # Equal labels are found by a random linear form, then compared in full.
        num_backends = len(pairs.budgets)
        self._hashing: Int64 = np.random.default_rng(7).integers(
            1, 1 << 62, 2 * num_backends + 1, dtype=np.int64
        )
        self.dropped = 0
        """Best score that a plan no longer looked at may have."""

    def run(self, meter: Meter) -> Int64 | None:
        """[n] the best plan, if it is better than the one we have."""
        pairs, num_backends = self._pairs, len(self._pairs.budgets)
        seats: Int64 | None = None
        if any(limit is not None for limit in pairs.limits):
            many = len(pairs.values)
            seats = np.array([[many if x is None else x for x in pairs.limits]], np.int64)
        zero = np.zeros(1, np.int64)
        labels = _Labels(pairs.budgets[None, :], seats, zero, zero, zero, zero)
        layers: list[_Layer] = []
        for j in range(len(pairs.values)):
            step = self._decide(j, labels)
            if step is None:
                return None
            labels, layer = step
            layers.append(layer)
            meter.spend(75 + len(labels.values) * num_backends // 20)
            if meter.exhausted:
                break
        self.dropped = max(self.dropped, int(labels.bounds.max()))
        best = int(labels.values.argmax())
        if int(labels.values[best]) <= self._more_than:
            return None
        return self._backtrack(layers, best)

    def _decide(self, j: int, labels: _Labels) -> tuple[_Labels, _Layer] | None:
        """Labels after session j, or None when none can win."""
        completion = self._completion
        parts = completion.parts(j + 1, labels.residuals)
        total = labels.scores + parts.sum(axis=1) + completion.prices_after[j + 1]
        if labels.seats is not None:
            total = total + labels.seats @ completion.seat_prices
        own = self._values[j]
        useful = (own >= 0).nonzero()[0]
        left = labels.residuals[:, useful] - self._pairs.weights[j, useful]
        possible = left >= 0
        if labels.seats is not None:
            possible &= labels.seats[:, useful] > 0
        gain = self._pairs.values[j, useful] - completion.seat_prices[useful]
        with_pair = total[:, None] + gain - parts[:, useful]
        with_pair += completion.parts(j + 1, left, useful)
        # How far a label's packed value is from being enough even if all to come were placed.
        missing = self._more_than - labels.values - self._best_after[j + 1]
        possible &= (with_pair > self._floor) & (own[useful] > missing[:, None])
        may_wait = (total > self._floor) & (missing < 0) & (labels.started & self._bits[j] == 0)
        waiting = may_wait.nonzero()[0]
        placed, which = possible.nonzero()
        parents = np.concatenate((waiting, placed))
        if not len(parents):
            return None
        backends = np.concatenate((np.full(len(waiting), -1), useful[which]))
        bounds = np.concatenate((total[waiting], with_pair[placed, which]))
        return self._select(j, labels, parents, backends, bounds)

    def _select(
        self, j: int, labels: _Labels, parents: Int64, backends: Int64, bounds: Int64
    ) -> tuple[_Labels, _Layer]:
        """Make the children, merge equal ones, keep the beam."""
        residuals, values = labels.residuals[parents], labels.values[parents]
        scores, started = labels.scores[parents], labels.started[parents]
        seats = None if labels.seats is None else labels.seats[parents]
        rows = (backends >= 0).nonzero()[0]
        columns = backends[rows]
        residuals[rows, columns] -= self._pairs.weights[j, columns]
        values[rows] += self._values[j, columns]
        scores[rows] += self._pairs.values[j, columns]
        started[rows] |= self._bits[j]
        if seats is not None:
            seats[rows, columns] -= 1
        kept = self._distinct(residuals, seats, started, values)
        if len(kept) > self._beam:
            ranked = kept[np.argpartition(-bounds[kept], self._beam)]
            self.dropped = max(self.dropped, int(bounds[ranked[self._beam :]].max()))
            kept = ranked[: self._beam]
        if seats is not None:
            seats = seats[kept]
        children = _Labels(
            residuals[kept], seats, started[kept], values[kept], scores[kept], bounds[kept]
        )
        return children, _Layer(parents[kept], backends[kept])

    def _distinct(
        self, residuals: Int64, seats: Int64 | None, started: Int64, values: Int64
    ) -> Int64:
        """Indices of the best label of each kind."""
        num_backends = residuals.shape[1]
        keys = residuals @ self._hashing[1 : num_backends + 1] + started * self._hashing[0]
        if seats is not None:
            keys = keys + seats @ self._hashing[num_backends + 1 :]
        order = np.lexsort((-values, keys))
        keys = keys[order]
        again = (keys[1:] == keys[:-1]).nonzero()[0] + 1
        this, that = order[again], order[again - 1]
        same = (residuals[this] == residuals[that]).all(axis=1) & (started[this] == started[that])
        if seats is not None:
            same &= (seats[this] == seats[that]).all(axis=1)
        stays = np.ones(len(order), bool)
        stays[again[same]] = False
        return order[stays]

    def _backtrack(self, layers: list[_Layer], label: int) -> Int64:
        backend_of = np.full(len(self._values), -1, np.int64)
        for j in range(len(layers) - 1, -1, -1):
            backend_of[j] = layers[j].backends[label]
            label = int(layers[j].parents[label])
        return backend_of


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
