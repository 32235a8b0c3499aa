"""Which prices to look for when, and where to start.

One price scale cannot serve coordinates 2^20 apart, so prices are found in phases: class; class and
credit; down to ready; down to tokens, each from the last one's best prices (`prices`).

The first two see only their coordinates: P rounded down to the coordinate's unit, since the
coordinates below sum to less than one unit in any feasible plan, and prices in whole units, since
fractions of a unit would be noise many times larger than everything the lower phases decide. A
phase ends when its coordinate is proved; while credit is open, lower phases try two steps only.

*Start.* With Q_ib = P_ib - u_i at the last phase's prices, `low_i` the part of session i's value
that this phase adds, and w_i its weight, the best of three:

    u                                   nothing is scarce
    u + min(low, second largest Q_i.)   room is ample: a session is worth its second-best place
    ... and at most low - lam w_i       room is scarce: it is worth what remains after its room

where `lam` is the density at which sessions that upper coordinates leave out (in the best plan so
far) would fill the rest of all budgets together. With overdue sessions, whose places are forced,
the third may lower prices too; the finite class unit starts at the dearest room that a placed one
takes. For overdue sessions the start shrinks the first gap from 100 % to 10 %.
"""

import numpy as np

from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem
from tao_coordinator.scheduling.placement.prices import Descent, View, with_class_unit
from tao_coordinator.scheduling.placement.problem import Int64

_STEPS = (12, 40, 20, 20)
"""Per coordinate."""
_STEPS_BELOW_OPEN_CREDIT = 2
_CLASS, _CREDIT, _TOKENS = 0, 1, 3
_LARGE = 2.0**62


def descend(packed: PackedProblem, incumbent: Incumbent, meter: Meter) -> View:
    """Prices near the minimum of L; lowers the bound and offers plans on the way."""
    none = np.zeros(packed.source.num_sessions, np.int64)
    view = View(packed.pairs, none, packed.units[_CLASS], 0)
    for coordinate in range(4):
        if not packed.sums_max[coordinate]:
            continue
        num_steps = _STEPS[coordinate]
        if coordinate > _CREDIT and not incumbent.proved(packed.units[_CREDIT]):
            num_steps = _STEPS_BELOW_OPEN_CREDIT
        descent = _descent(packed, incumbent, meter, coordinate)
        view = descent.run(_start(descent, view, coordinate), num_steps)
        if incumbent.closed or meter.exhausted:
            break
    return view


def refine(
    packed: PackedProblem, view: View, incumbent: Incumbent, meter: Meter, num_steps: int
) -> View:
    """Better prices in the first open coordinate."""
    coordinate = min(incumbent.certificate().num_proved, _TOKENS)
    return _descent(packed, incumbent, meter, coordinate).run(view, num_steps)


def _descent(packed: PackedProblem, incumbent: Incumbent, meter: Meter, coordinate: int) -> Descent:
    unit = packed.units[coordinate]
    classes_wait = _classes_wait(packed, incumbent)
    return Descent(
        packed=packed,
        incumbent=incumbent,
        meter=meter,
        unit=unit,
        excess_max=unit * packed.sums_max[coordinate],
        whole_units=coordinate <= _CREDIT,
        until_proved=coordinate != _TOKENS,
        finite_class_unit=coordinate == _CREDIT and classes_wait,
    )


def _start(descent: Descent, view: View, coordinate: int) -> View:
    """The best of the three starts."""
    packed, incumbent = descent.packed, descent.incumbent
    upper_unit = packed.units[coordinate - 1] if coordinate else packed.value_max + 1
    weights = _lightest(packed)
    density = _density(packed, incumbent, weights, upper_unit)
    if coordinate == _CREDIT and _classes_proved(packed, incumbent):
        view = _class_priced(packed, incumbent, view, weights, density)
    allowed = view.pairs.values >= 0
    low = np.where(allowed, packed.pairs.values % upper_unit, 0).max(axis=1)
    second = np.zeros_like(low)
    if view.pairs.values.shape[1] > 1:
        ranked = np.where(allowed, view.pairs.values - view.prices[:, None], 0)
        second = np.clip(np.partition(ranked, -2, axis=1)[:, -2], 0, low)
    after_room = low - np.minimum(density * weights, _LARGE).astype(np.int64)
    candidates = [
        view.prices,
        view.prices + second,
        np.maximum(view.prices + np.minimum(second, after_room), 0),
    ]
    if descent.whole_units:
        candidates = [prices // descent.unit * descent.unit for prices in candidates]
    views = [view._replace(prices=prices) for prices in candidates]
    bounds = [descent.evaluate(one) for one in views]
    return views[bounds.index(min(bounds))]


def usable_classes(packed: PackedProblem) -> Int64:
    """[n] classes of the sessions that fit somewhere, 0 for the others."""
    return np.where(packed.pairs.values.max(axis=1) >= 0, packed.source.classes, 0)


def _classes_proved(packed: PackedProblem, incumbent: Incumbent) -> bool:
    return packed.sums_max.classes > 0 and incumbent.proved(packed.units[_CLASS])


def _classes_wait(packed: PackedProblem, incumbent: Incumbent) -> bool:
    """Whether the class sum is proved and yet some overdue session has to wait."""
    reached = incumbent.value // packed.units[_CLASS]
    return _classes_proved(packed, incumbent) and int(usable_classes(packed).sum()) > reached


def _lightest(packed: PackedProblem) -> Int64:
    """[n] smallest weight of each session, tokens."""
    largest = int(packed.pairs.weights.max(initial=0))
    return np.where(packed.pairs.values >= 0, packed.pairs.weights, largest).min(axis=1)


def _density(packed: PackedProblem, incumbent: Incumbent, weights: Int64, upper_unit: int) -> float:
    """Packed value per token of the session that the last room goes to."""
    values = packed.pairs.values
    placed = (incumbent.backend_of >= 0).nonzero()[0]
    upper = placed[values[placed, incumbent.backend_of[placed]] >= upper_unit]
    room = int(np.maximum(packed.pairs.budgets, 0).sum()) - int(weights[upper].sum())
    low = np.maximum(values.max(axis=1), 0)
    pool = ((low > 0) & (low < upper_unit)).nonzero()[0]
    density = low[pool] / np.maximum(weights[pool], 1)
    order = density.argsort(kind="stable")[::-1]
    filled = weights[pool[order]].cumsum()
    place = int(filled.searchsorted(room, side="right"))
    return float(density[order[place]]) if place < len(order) else 0.0


def _class_priced(
    packed: PackedProblem, incumbent: Incumbent, view: View, weights: Int64, density: float
) -> View:
    """A finite class unit, and every overdue session at its class."""
    classes = usable_classes(packed)
    class_unit = packed.units[_CLASS]
    if _classes_wait(packed, incumbent):
        placed = (incumbent.backend_of >= 0) & (classes > 0)
        room = density * weights[placed] / classes[placed]
        dearest = min(_LARGE, float(room.max(initial=0.0)))
        credit_unit = packed.units[_CREDIT]
        # Whole credit units, as all upper values: rounding must not cut it.
        class_unit = min(class_unit, (int(dearest) // credit_unit + 1) * credit_unit)
    view = with_class_unit(packed, view, class_unit, incumbent)
    return view._replace(prices=classes * class_unit)
