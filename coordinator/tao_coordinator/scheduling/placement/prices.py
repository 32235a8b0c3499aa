"""Lagrangian prices on sessions: an upper bound on every plan, and plans by repair.

Relax "one backend per session" with prices u_i >= 0 (vectors, packed; symbols of `packing`):

    L(u) = sum_i u_i + sum_b K_b(P_.b - u_.),      K_b = optimal knapsack on backend b

Every feasible plan x satisfies  sum P x = sum_i u_i (sum_b x_ib) + sum_b sum_i (P_ib - u_i) x_ib
<= L(u), since prices are not negative and sum_b x_ib <= 1. The argument adds and compares only, so
it holds for lexicographic vectors, not just stage by stage. Knapsacks use exact weights
(`knapsack`, whose own bound enters where a list had to be shortened): L has no capacity quantum.
While the gap G between bound and plan is wide, knapsacks need not be exact: each may fall short by
G / (20 m), which its bound allows for.

*Minimising L.* g_i = 1 - (backends that chose i) is a subgradient; units of `views` are variables
like prices, scaled so that their subgradients are of the same size. Steps follow the deflected
direction of Camerini, Fratta and Maffioli (1975),

    d_t = g_t + max(0, -1.5 g_t . d_{t-1} / |d_{t-1}|^2) d_{t-1},       length theta (L - z) / |d|^2

with z the best plan so far (Polyak 1969); theta is halved, and the best prices are taken up again,
after four steps without gain. Prices stay within [0, max_b P_ib]. (Undeflected, twice the steps
leave a gap several times as wide.)

*Plans.* In L's solution a session may be chosen twice. It stays where it is worth most, and two
improving passes (`cohen_katz_raz`) fill the room; at steps 0, 1, 2, 4, 8, ...

Complexity: m knapsacks per step, except where a backend's reduced values did not change. Which
coordinates are minimised when, and from where: `price_phases`.
"""

from dataclasses import dataclass

import numpy as np

from tao_coordinator.scheduling.placement import cohen_katz_raz, limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs, exact_sum
from tao_coordinator.scheduling.placement.plan import Rung
from tao_coordinator.scheduling.placement.problem import Bool, Float64, Int64
from tao_coordinator.scheduling.placement.views import View, down_to, with_units

_LABELS_MAX, _COARSE_LABELS_MAX = 512, 96
_REPAIR_LABELS_MAX = 128
_REPAIR_PASSES = 2
_PATIENCE = 4
_DEFLECTION = 1.5
_STALL_STEPS, _STALL_SHARE = 10, 0.02
"""So many steps that close no such share of the gap end a descent."""
_INEXACTNESS = 20
"""All knapsacks together may be off by one part in so many of the gap."""


class Relaxation:
    """L(u); remembers each backend's last knapsack."""

    def __init__(self, pairs: Pairs, meter: Meter) -> None:
        self.pairs, self._meter = pairs, meter
        num_backends = len(pairs.budgets)
        self._gains: list[Int64 | None] = [None] * num_backends
        self._tolerances = [0] * num_backends
        self._chosen: list[Int64] = [np.zeros(0, np.int64)] * num_backends
        self.bounds = [0] * num_backends
        """K_b of the last evaluation, or what bounds it."""
        self.taken: Bool = np.zeros(pairs.values.shape, bool)
        """[n, m] which pairs the last evaluation chose."""

    def evaluate(self, prices: Int64, tolerance: int = 0) -> int:
        """L(prices), each knapsack up to `tolerance` too high."""
        pairs = self.pairs
        self._meter.spend(35 + pairs.values.size // 20)
        for b in range(len(pairs.budgets)):
            gain = np.maximum(pairs.values[:, b] - prices, 0)
            last = self._gains[b]
            if last is not None and self._tolerances[b] <= tolerance and np.array_equal(gain, last):
                continue
            self._meter.checkpoint()
            answer = limited_knapsack.solve(
                pairs.weights[:, b],
                gain,
                int(pairs.budgets[b]),
                pairs.limits[b],
                _LABELS_MAX if tolerance == 0 else _COARSE_LABELS_MAX,
                tolerance,
            )
            self._meter.spend(answer.work)
            self.taken[self._chosen[b], b] = False
            self.taken[answer.chosen, b] = True
            self._gains[b], self._chosen[b], self.bounds[b] = gain, answer.chosen, answer.bound
            self._tolerances[b] = 0 if answer.exact else tolerance
        return exact_sum(prices) + sum(self.bounds)


class Steps:
    """Where the subgradient method stands."""

    def __init__(self) -> None:
        self.bound = 0
        """Best so far."""
        self._theta = 1.0
        self._bad = -1
        self._best: Float64 = np.zeros(0)
        self._since, self._reference = 0, 0
        self._direction: Float64 | None = None

    def record(self, bound: int, gradient: Float64) -> bool:
        """Note an evaluation; whether its bound is the best so far."""
        if self._bad < 0 or bound < self.bound:
            self.bound, self._best, self._bad = bound, gradient, 0
            return True
        self._bad += 1
        return False

    def stalled(self, value: int) -> bool:
        """Whether the last steps were hardly worth their work, with a plan worth `value` known."""
        if self._since == 0 or self._reference - self.bound > _STALL_SHARE * (
            self._reference - value
        ):
            self._since, self._reference = 0, self.bound
        self._since += 1
        return self._since > _STALL_STEPS

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
                share = max(0.0, -_DEFLECTION * float(direction @ last) / norm)
                direction = direction + share * last
        self._direction = direction
        norm = float(direction @ direction)
        return direction * (self._theta * excess / norm) if norm > 0 else direction


@dataclass(slots=True)
class Descent:
    """Subgradient steps in one coordinate."""

    packed: PackedProblem
    incumbent: Incumbent
    meter: Meter
    coordinate: int
    finite: dict[int, float]
    """Coordinates whose units are variables, and the size of a typical value."""

    @property
    def whole_units(self) -> bool:
        """Whether fractions of the coordinate's unit would only be noise for what follows."""
        return self.coordinate == 1 and int(self.packed.source.credits.max(initial=0)) >= 64

    def run(self, view: View, num_steps: int) -> View:
        """The view with the best prices and units found."""
        best, steps = view, Steps()
        relaxation = Relaxation(down_to(self.packed, view, self.coordinate), self.meter)
        for step in range(num_steps):
            relaxation.pairs = down_to(self.packed, view, self.coordinate)
            bound = self._evaluate(relaxation, view)
            gradient = self._gradient(relaxation.taken)
            if steps.record(bound, gradient):
                best = view
            else:
                again = steps.restart()
                if again is not None:
                    view, gradient, bound = best, again, steps.bound
            if step < 3 or step % 4 == 0:
                self._offer(view, relaxation.taken)
            if self.finished() or steps.stalled(self.incumbent.value):
                break
            moved = self._move(view, gradient, bound, steps)
            if moved is None:
                break
            view = moved
        return best

    def evaluate(self, view: View) -> int:
        """L of a view, as a bound on packed values; also limits the incumbent."""
        return self._evaluate(
            Relaxation(down_to(self.packed, view, self.coordinate), self.meter), view
        )

    def finished(self) -> bool:
        """Whether the coordinate is proved, everything is, or the effort is spent."""
        proved = self.coordinate < 3 and self.incumbent.proved(self.packed.units[self.coordinate])
        return proved or self.incumbent.closed or self.meter.exhausted

    def _evaluate(self, relaxation: Relaxation, view: View) -> int:
        incumbent, num_backends = self.incumbent, len(view.pairs.budgets)
        unit = self.packed.units[self.coordinate]
        below = 0 if self.coordinate == 3 else unit - 1
        tolerance = self._tolerance()
        if self.coordinate < 3:
            tolerance = tolerance // unit * unit
        bound = relaxation.evaluate(view.prices, tolerance) + view.offset
        if bound - tolerance * num_backends <= incumbent.value + below:
            bound = relaxation.evaluate(view.prices) + view.offset
        if self.coordinate < 3:
            # What is seen of a plan comes in whole units; below them, anything may follow.
            bound = bound // unit * unit + below
        incumbent.limit(bound)
        return bound

    def _tolerance(self) -> int:
        """How far off a knapsack may be: the gap in this coordinate tells."""
        packed, incumbent = self.packed, self.incumbent
        largest = packed.units[self.coordinate] * packed.sums_max[self.coordinate]
        gap = max(0, min(incumbent.bound - incumbent.value, largest))
        return gap // (_INEXACTNESS * len(packed.pairs.budgets))

    def _gradient(self, taken: Bool) -> Float64:
        problem, reached = self.packed.source, self.packed.digits(self.incumbent.value)
        counts = taken.sum(axis=1)
        sums = {
            0: lambda: int(counts @ problem.classes),
            1: lambda: int(problem.credits[taken].sum()),
            2: lambda: int(counts @ problem.ready),
        }
        extra = [(sums[c]() - reached[c]) / size for c, size in self.finite.items()]
        return np.append(1.0 - counts, extra)

    def _move(self, view: View, gradient: Float64, bound: int, steps: Steps) -> View | None:
        packed, value = self.packed, self.incumbent.value
        unit = packed.units[self.coordinate]
        if self.coordinate < 3:
            value, bound = value // unit * unit, bound // unit * unit
        # A bound further off than the largest sum says nothing about step lengths.
        excess = min(max(bound - value, 0), unit * packed.sums_max[self.coordinate])
        units = list(view.units)
        at_zero = np.append(view.prices, [units[c] for c in self.finite]) <= 0
        change = steps.change(gradient, at_zero, float(excess))
        if not (np.abs(change) >= 1).any():
            return None
        if self.whole_units:
            change[: len(view.prices)] = np.rint(change[: len(view.prices)] / unit) * unit
        for place, (c, size) in enumerate(self.finite.items()):
            step = int(change[len(view.prices) + place] / size)
            units[c] = min(packed.units[c], max(0, units[c] - step))
        if self.finite:
            reached = packed.digits(self.incumbent.value)
            own = (units[0], units[1], units[2], units[3], units[4])
            view = with_units(packed, view, own, reached)
        highest = np.maximum(view.pairs.values.max(axis=1), 0)
        step = change[: len(view.prices)].astype(np.int64)
        return view._replace(prices=np.clip(view.prices - step, 0, highest))

    def _offer(self, view: View, taken: Bool) -> None:
        """Repair the relaxation's choice into a plan."""
        pairs, meter, tolerance = self.packed.pairs, self.meter, self._tolerance()
        plan = repair(pairs.values, taken)
        if view.units != self.packed.units:
            plan = cohen_katz_raz.improve(
                view.pairs, plan, meter, 1, _REPAIR_LABELS_MAX, tolerance=tolerance
            )
        plan = cohen_katz_raz.improve(
            pairs, plan, meter, _REPAIR_PASSES, _REPAIR_LABELS_MAX, tolerance=tolerance
        )
        self.incumbent.offer(plan, Rung.PRICES)


def repair(values: Int64, taken: Bool) -> Int64:
    """[n] backend per session: where it was chosen and is worth most."""
    chosen = np.where(taken, values, -1)
    where = chosen.argmax(axis=1)
    return np.where(chosen[np.arange(len(values)), where] >= 0, where, -1)
