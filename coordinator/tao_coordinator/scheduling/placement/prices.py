"""Lagrangian prices on sessions: an upper bound on every plan, and plans by repair.

Relax "one backend per session" with prices u_i >= 0 (vectors, packed; symbols of `packing`):

    L(u) = sum_i u_i + sum_b K_b(P_.b - u_.),      K_b = optimal knapsack on backend b

Every feasible plan x satisfies  sum P x = sum_i u_i (sum_b x_ib) + sum_b sum_i (P_ib - u_i) x_ib
<= L(u), since prices are not negative and sum_b x_ib <= 1. The argument adds and compares only, so
it holds for lexicographic vectors, not just stage by stage. Knapsacks use exact weights
(`knapsack`, whose own bound enters where a list had to be shortened): L has no capacity quantum.

*Minimising L.* g_i = 1 - (backends that chose i) is a subgradient. Steps follow the deflected
direction of Camerini, Fratta and Maffioli (1975),

    d_t = g_t + max(0, -1.5 g_t . d_{t-1} / |d_{t-1}|^2) d_{t-1},       length theta (L - z) / |d|^2

with z the best plan so far (Polyak 1969); theta is halved, and the best prices are taken up again,
after four steps without gain. Prices stay within [0, max_b P_ib]. (Undeflected, twice the steps
leave a gap several times as wide.)

*Finite class unit.* In P one unit of class outweighs all credit, and so does every rounding of a
price by one unit of class: with overdue sessions competing, the credit bound would be useless. Once
the class sum A is proved to be the optimum, any unit M >= 0 will do in its place: with
P'_ib = M class_i + (P_ib without class), every plan that reaches A satisfies

    (its value without class) <= L'(u) - M A.

M is minimised along with u; its subgradient is (classes chosen) - A. A `View` carries P', u and the
offset between values in P' and in P.

*Plans.* In L's solution a session may be chosen twice. It stays where it is worth most, and two
improving passes (`cohen_katz_raz`) fill the room; at steps 0, 1, 2, 4, 8, ...

Complexity: m knapsacks per step, except where a backend's reduced values did not change. Which
coordinates are minimised when, and from where: `price_phases`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement import cohen_katz_raz, limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs, exact_sum
from tao_coordinator.scheduling.placement.plan import Rung
from tao_coordinator.scheduling.placement.problem import Bool, Float64, Int64

_LABELS_MAX = 512
_REPAIR_LABELS_MAX = 256
_REPAIR_PASSES = 2
_PATIENCE = 4
_DEFLECTION = 1.5


class Relaxation:
    """L(u); remembers each backend's last knapsack."""

    def __init__(self, pairs: Pairs, meter: Meter) -> None:
        self.pairs, self._meter = pairs, meter
        num_backends = len(pairs.budgets)
        self._gains: list[Int64 | None] = [None] * num_backends
        self._chosen: list[Int64] = [np.zeros(0, np.int64)] * num_backends
        self.bounds = [0] * num_backends
        """K_b of the last evaluation, or what bounds it."""
        self.taken: Bool = np.zeros(pairs.values.shape, bool)
        """[n, m] which pairs the last evaluation chose."""

    def evaluate(self, prices: Int64) -> int:
        """L(prices)."""
        pairs = self.pairs
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


class View(NamedTuple):
    """A problem with a class unit of its own, and prices for it."""

    pairs: Pairs
    prices: Int64  # [n]
    class_unit: int
    offset: int
    """Packed value minus value in this view, for every plan that reaches the proved class sum."""


class Steps:
    """Where the subgradient method stands."""

    def __init__(self) -> None:
        self.bound = 0
        """Best so far."""
        self._theta = 1.0
        self._bad = -1
        self._best: Float64 = np.zeros(0)
        self._direction: Float64 | None = None

    def record(self, bound: int, gradient: Float64) -> bool:
        """Note an evaluation; whether its bound is the best so far."""
        if self._bad < 0 or bound < self.bound:
            self.bound, self._best, self._bad = bound, gradient, 0
            return True
        self._bad += 1
        return False

    def restart(self) -> Float64 | None:
        """After too many steps without gain: half the step, and the gradient at the best prices."""
        if self._bad < _PATIENCE:
            return None
        self._theta, self._bad, self._direction = self._theta / 2, 0, None
        return self._best

    def change(self, gradient: Float64, at_zero: Bool, excess: float) -> Float64:
        """What to take off the variables.

        Args:
            gradient: [k] subgradient.
            at_zero: [k] variables that cannot fall.
            excess: bound minus goal.
        """
        direction = np.where(at_zero & (gradient > 0), 0.0, gradient)
        if self._direction is not None:
            last = np.where(at_zero & (self._direction > 0), 0.0, self._direction)
            norm = float(last @ last)
            if norm > 0:
                direction = (
                    direction + max(0.0, -_DEFLECTION * float(direction @ last) / norm) * last
                )
        self._direction = direction
        norm = float(direction @ direction)
        return direction * (self._theta * excess / norm) if norm > 0 else direction


@dataclass(slots=True)
class Descent:
    """Subgradient steps in one coordinate."""

    packed: PackedProblem
    incumbent: Incumbent
    meter: Meter
    unit: int
    """Packed value of 1 in the coordinate."""
    excess_max: int
    """A bound further than this from the best plan says nothing about step lengths."""
    whole_units: bool
    """Look at values and prices in whole units only."""
    until_proved: bool
    """Stop once the coordinate is proved, though lower ones are open."""
    finite_class_unit: bool
    """Minimise over the class unit as well."""

    def run(self, view: View, num_steps: int) -> View:
        """The view with the best prices (and class unit) found."""
        best, steps = view, Steps()
        relaxation = Relaxation(self._seen(view).pairs, self.meter)
        classes = self.packed.source.classes
        reached = self.incumbent.value // self.packed.units[0]
        for step in range(num_steps):
            seen = self._seen(view)
            relaxation.pairs = seen.pairs
            bound = relaxation.evaluate(view.prices) + view.offset
            counts = relaxation.taken.sum(axis=1)
            gradient = np.append(1.0 - counts, float(counts @ classes - reached))
            if steps.record(bound, gradient):
                best = view
            else:
                again = steps.restart()
                if again is not None:
                    view, gradient, bound = best, again, steps.bound
            self.incumbent.limit(steps.bound + (self.unit - 1 if self.whole_units else 0))
            if step < 3 or step % 4 == 0:
                self._offer(relaxation.taken)
            if self._finished():
                break
            moved = self._move(view, gradient, bound, steps)
            if moved is None:
                break
            view = moved
        return best

    def excess(self, bound: int) -> int:
        """How far a bound is from the best plan, for the length of a step."""
        goal = self.incumbent.value
        if self.whole_units:
            goal = goal // self.unit * self.unit
        return min(max(bound - goal, 0), self.excess_max)

    def evaluate(self, view: View) -> int:
        """L of a view, as a bound on packed values up to this coordinate."""
        return Relaxation(self._seen(view).pairs, self.meter).evaluate(view.prices) + view.offset

    def _seen(self, view: View) -> View:
        """The view as far as this descent looks."""
        if not self.whole_units:
            return view
        values = view.pairs.values
        rounded = np.where(values >= 0, values // self.unit * self.unit, -1)
        return view._replace(pairs=view.pairs._replace(values=rounded))

    def _finished(self) -> bool:
        proved = self.until_proved and self.incumbent.proved(self.unit)
        return proved or self.incumbent.closed or self.meter.exhausted

    def _move(self, view: View, gradient: Float64, bound: int, steps: Steps) -> View | None:
        if not self.finite_class_unit:
            gradient[-1] = 0.0
        at_zero = np.append(view.prices <= 0, view.class_unit <= 0)
        change = steps.change(gradient, at_zero, float(self.excess(bound)))
        if self.whole_units:
            change = np.rint(change / self.unit) * self.unit
        if not change.any():
            return None
        if self.finite_class_unit:
            infinite = self.packed.units[0]
            class_unit = min(infinite, max(0, view.class_unit - int(change[-1])))
            view = with_class_unit(self.packed, view, class_unit, self.incumbent)
        highest = np.maximum(view.pairs.values.max(axis=1), 0)
        return view._replace(prices=np.clip(view.prices - change[:-1].astype(np.int64), 0, highest))

    def _offer(self, taken: Bool) -> None:
        """Repair the relaxation's choice into a plan."""
        pairs = self.packed.pairs
        plan = cohen_katz_raz.improve(
            pairs, repair(pairs.values, taken), self.meter, _REPAIR_PASSES, _REPAIR_LABELS_MAX
        )
        self.incumbent.offer(plan, Rung.PRICES)


def with_class_unit(
    packed: PackedProblem, view: View, class_unit: int, incumbent: Incumbent
) -> View:
    """The view with another class unit; prices stay as they are."""
    infinite = packed.units[0]
    own = packed.pairs.values % infinite + (packed.source.classes * class_unit)[:, None]
    values = np.where(packed.pairs.values >= 0, own, -1)
    offset = incumbent.value // infinite * (infinite - class_unit)
    return View(packed.pairs._replace(values=values), view.prices, class_unit, offset)


def repair(values: Int64, taken: Bool) -> Int64:
    """[n] backend per session: where it was chosen and is worth most."""
    chosen = np.where(taken, values, -1)
    where = chosen.argmax(axis=1)
    return np.where(chosen[np.arange(len(values)), where] >= 0, where, -1)
