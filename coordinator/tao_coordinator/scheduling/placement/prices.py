"""Lagrangian prices on sessions: an upper bound on every plan, and plans by repair.

Relax "one backend per session" with prices u_i >= 0 (both vectors, packed; symbols of `packing`):

    L(u) = sum_i u_i + sum_b K_b(P_.b - u_.),      K_b = optimal knapsack on backend b

Every feasible plan x satisfies  sum P x = sum_i u_i (sum_b x_ib) + sum_b sum_i (P_ib - u_i) x_ib
<= L(u), since prices are not negative and sum_b x_ib <= 1. The argument adds and compares only, so
it holds for lexicographic vectors, not just stage by stage. Knapsacks use exact weights
(`knapsack`, whose own bound enters where a list had to be shortened): L has no capacity quantum.

Minimising L: subgradient g_i = 1 - (backends that chose i), Polyak's step
`theta (L - z) / |g|^2`, z the best plan so far; theta is halved and the best prices are taken up
again after three steps without gain. Prices stay within [0, max_b P_ib].

*Phases*, because one price scale cannot serve coordinates 2^20 apart: class; class and credit; down
to ready; down to tokens. A phase starts from the last one's best prices. The upper two see only
their coordinates (P rounded down to the coordinate's unit; the coordinates below sum to less than
one unit in any feasible plan, so L + unit - 1 bounds the whole), with prices in whole units:
fractions of a unit would be noise many times larger than everything the lower phases decide. A
phase ends when its coordinate is proved; while credit is open, lower phases try two steps only.

*Plans*: in L's solution a session may be chosen twice. It stays where it is worth most, and two
improving passes (`cohen_katz_raz`) fill the room; at steps 0, 1, 2, 4, 8, ...

Complexity: m knapsacks per step, except where a backend's reduced values did not change.
"""

from dataclasses import dataclass

import numpy as np

from tao_coordinator.scheduling.placement import cohen_katz_raz, limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs, exact_sum
from tao_coordinator.scheduling.placement.plan import Rung
from tao_coordinator.scheduling.placement.problem import Bool, Int64

_LABELS_MAX = 512
_REPAIR_LABELS_MAX = 256
_PATIENCE = 3
_STEPS = {"classes": 10, "credit": 30, "ready": 10, "tokens": 10}
_STEPS_BELOW_OPEN_CREDIT = 2


class Relaxation:
    """L(u) for one matrix of values; remembers each backend's last knapsack."""

    def __init__(self, pairs: Pairs, meter: Meter) -> None:
        self._pairs, self._meter = pairs, meter
        num_backends = len(pairs.budgets)
        self._gains: list[Int64 | None] = [None] * num_backends
        self._chosen: list[Int64] = [np.zeros(0, np.int64)] * num_backends
        self.bounds = [0] * num_backends
        self.taken: Bool = np.zeros(pairs.values.shape, bool)
        """[n, m] which pairs the last evaluation chose."""

    def evaluate(self, prices: Int64) -> int:
        """L(prices)."""
        pairs = self._pairs
        for b in range(len(pairs.budgets)):
            gain = np.maximum(pairs.values[:, b] - prices, 0)
            last = self._gains[b]
            if last is not None and np.array_equal(gain, last):
                continue
            answer = limited_knapsack.solve(
                pairs.weights[:, b], gain, int(pairs.budgets[b]), pairs.limits[b], _LABELS_MAX
            )
            self._meter.spend(answer.work)
            self.taken[self._chosen[b], b] = False
            self.taken[answer.chosen, b] = True
            self._gains[b], self._chosen[b], self.bounds[b] = gain, answer.chosen, answer.bound
        return exact_sum(prices) + sum(self.bounds)


@dataclass(frozen=True, slots=True)
class _Phase:
    coordinate: str
    unit: int
    largest_step: int
    pairs: Pairs
    """Values as far as this phase sees them."""
    whole_units: bool


def descend(packed: PackedProblem, incumbent: Incumbent, meter: Meter) -> Int64:
    """[n] prices near the minimum of L; lowers the bound and offers plans on the way."""
    prices = np.zeros(packed.source.num_sessions, np.int64)
    credit_unit = packed.units[1]
    for phase in _phases(packed):
        num_steps = _STEPS[phase.coordinate]
        if phase.coordinate == "credit" and not incumbent.proved(packed.units[0]):
            num_steps = 10
        if phase.coordinate in ("ready", "tokens") and not incumbent.proved(credit_unit):
            num_steps = _STEPS_BELOW_OPEN_CREDIT
        prices = _run_phase(packed, phase, prices, num_steps, incumbent, meter)
        if incumbent.closed or meter.exhausted:
            break
    return prices


def _phases(packed: PackedProblem) -> list[_Phase]:
    phases: list[_Phase] = []
    names = ("classes", "credit", "ready", "tokens")
    for name, unit, largest in zip(names, packed.units[:4], packed.sums_max[:4], strict=True):
        if not largest:
            continue
        pairs, whole = packed.pairs, name in ("classes", "credit")
        if whole:
            values = np.where(pairs.values >= 0, pairs.values // unit * unit, -1)
            pairs = pairs._replace(values=values)
        phases.append(_Phase(name, unit, unit * largest, pairs, whole))
    return phases


def _run_phase(
    packed: PackedProblem,
    phase: _Phase,
    prices: Int64,
    num_steps: int,
    incumbent: Incumbent,
    meter: Meter,
) -> Int64:
    relaxation = Relaxation(phase.pairs, meter)
    highest = np.maximum(phase.pairs.values.max(axis=1), 0)
    below = phase.unit - 1 if phase.whole_units else 0
    theta, bad, best, best_prices = 1.0, 0, None, prices
    best_gradient = np.zeros(0, np.int64)
    for step in range(num_steps):
        bound = relaxation.evaluate(prices)
        taken = relaxation.taken
        gradient = 1 - taken.sum(axis=1)
        if best is None or bound < best:
            best, best_prices, best_gradient, bad = bound, prices, gradient, 0
        else:
            bad += 1
            if bad >= _PATIENCE:
                theta, bad, prices, gradient = theta / 2, 0, best_prices, best_gradient
                bound = best
        incumbent.limit(best + below)
        if step < 3 or step % 4 == 0:
            repaired = repair(packed.pairs.values, taken)
            offered = cohen_katz_raz.improve(packed.pairs, repaired, meter, 2, _REPAIR_LABELS_MAX)
            incumbent.offer(offered, Rung.PRICES)
        done = phase.coordinate != "tokens" and incumbent.proved(phase.unit)
        if done or incumbent.closed or meter.exhausted:
            break
        gradient = np.where((prices <= 0) & (gradient > 0), 0, gradient)
        norm = int((gradient * gradient).sum())
        if norm == 0:
            break
        goal = incumbent.value // phase.unit * phase.unit if phase.whole_units else incumbent.value
        scale = theta * min(max(bound - goal, 0), phase.largest_step) / norm
        change = gradient * scale
        if phase.whole_units:
            change = np.rint(change / phase.unit) * phase.unit
        if not change.any():
            break
        prices = np.clip(prices - change.astype(np.int64), 0, highest)
    return best_prices


def repair(values: Int64, taken: Bool) -> Int64:
    """[n] backend per session: where it was chosen and is worth most."""
    chosen = np.where(taken, values, -1)
    where = chosen.argmax(axis=1)
    return np.where(chosen[np.arange(len(values)), where] >= 0, where, -1)
