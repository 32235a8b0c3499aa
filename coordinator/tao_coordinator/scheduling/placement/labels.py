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

Complexity: sessions x beam x m.
"""

from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement.completion import Completion, is_safe
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import Pairs
from tao_coordinator.scheduling.placement.pegging import peg
from tao_coordinator.scheduling.placement.problem import Int64


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
    residuals: Int64  # [L, m] tokens
    seats: Int64 | None  # [L, m] session limits left; None where no limit binds
    values: Int64  # [L]
    bounds: Int64  # [L]


def search(pairs: Pairs, prices: Int64, floor: int, beam: int, meter: Meter) -> LabelAnswer:
    """Look for a plan worth more than `floor`.

    Args:
        pairs: sessions, backends, values.
        prices: [n] of the sessions; any >= 0 are valid, good ones prune.
        floor: value of the best plan known.
        beam: labels kept per session.
        meter: counts the work; when exhausted, the best partial plan is returned.
    """
    pegged = peg(pairs, prices, floor, meter)
    if pegged.bound <= floor or not pegged.open_pairs.any():
        return LabelAnswer(None, min(pegged.bound, floor))
    sessions = np.flatnonzero(pegged.open_pairs.any(axis=1))
    open_values = np.where(pegged.open_pairs, pairs.values, -1)[sessions]
    best = open_values.max(axis=1)
    order = np.lexsort((-pairs.weights[sessions].max(axis=1), -best))
    sessions, open_values = sessions[order], open_values[order]
    kept = Pairs(open_values, pairs.weights[sessions], pairs.budgets, pairs.limits)
    limits = np.array([limit or 0 for limit in pairs.limits], np.int64)
    if not is_safe(kept, prices[sessions], pegged.seat_prices, limits):
        return LabelAnswer(None, pegged.bound)
    completion = Completion(kept, prices[sessions], pegged.seat_prices)
    meter.spend(completion.work)
    run = _Run(kept, completion, floor, beam)
    found = run.run(meter)
    bound = min(pegged.bound, max(floor, run.dropped, run.best_value))
    if found is None:
        return LabelAnswer(None, bound)
    backend_of = np.full(len(pairs.values), -1, np.int64)
    backend_of[sessions] = found
    return LabelAnswer(backend_of, bound)


class _Run:
    """One pass over the sessions."""

    def __init__(self, pairs: Pairs, completion: Completion, floor: int, beam: int) -> None:
        self._pairs, self._completion = pairs, completion
        self._floor, self._beam = floor, beam
        self._limited = any(limit is not None for limit in pairs.limits)
        num_backends = len(pairs.budgets)
        # Residual vectors are found equal by a random linear form, then compared in full.
        hashing = np.random.default_rng(7).integers(1, 1 << 62, 2 * num_backends, dtype=np.int64)
        self._hashing = hashing | 1
        self.dropped = 0
        self.best_value = 0

    def run(self, meter: Meter) -> Int64 | None:
        """[n] plan worth more than the floor."""
        pairs, num_backends = self._pairs, len(self._pairs.budgets)
        seats: Int64 | None = None
        if self._limited:
            many = len(pairs.values)
            seats = np.array([[many if x is None else x for x in pairs.limits]], np.int64)
        start = np.zeros(1, np.int64)
        labels = _Labels(pairs.budgets[None, :].copy(), seats, start, start)
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
        residuals, seats, values, _ = labels
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
        waiting = (total > self._floor).nonzero()[0]
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
        seats = None if labels.seats is None else labels.seats[parents]
        rows = (backends >= 0).nonzero()[0]
        columns = backends[rows]
        residuals[rows, columns] -= self._pairs.weights[j, columns]
        values[rows] += self._pairs.values[j, columns]
        if seats is not None:
            seats[rows, columns] -= 1
        kept = self._distinct(residuals, seats, values)
        if len(kept) > self._beam:
            ranked = kept[np.argpartition(-bounds[kept], self._beam)]
            self.dropped = max(self.dropped, int(bounds[ranked[self._beam :]].max()))
            kept = ranked[: self._beam]
        if seats is not None:
            seats = seats[kept]
        chosen = _Labels(residuals[kept], seats, values[kept], bounds[kept])
        return chosen, _Layer(parents[kept], backends[kept])

    def _distinct(self, residuals: Int64, seats: Int64 | None, values: Int64) -> Int64:
        """Indices of the best label for each residual vector."""
        num_backends = residuals.shape[1]
        keys = residuals @ self._hashing[:num_backends]
        if seats is not None:
            keys = keys + seats @ self._hashing[num_backends:]
        order = np.lexsort((-values, keys))
        keys = keys[order]
        again = (keys[1:] == keys[:-1]).nonzero()[0] + 1
        same = (residuals[order[again]] == residuals[order[again - 1]]).all(axis=1)
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
