"""Which prices to look for when, and where to start.

One price scale cannot serve coordinates 2^20 apart, so prices are found coordinate by coordinate:
class; class and credit; down to ready; down to tokens. A phase sees no coordinate below its own
(they sum to less than one unit in any feasible plan) and ends when its own is proved.

*Start*: the best of four. With w_i the session's weight, `low_i` the part of its value from this
coordinate on, and Q_ib = P_ib - u_i at the last phase's prices:

    u                                   as they are
    u + min(low, second largest Q_i.)   room is ample: a session is worth its second-best place
    ... and at most low - lam w_i       room is scarce: it is worth what remains after its room
    min(second largest P'_i., max_b P'_ib - lam w_i)     the same in finite units M_a (`views`)

`lam` is the density at which sessions that upper coordinates leave out (in the best plan so far)
would fill the rest of all budgets together. The second and third round the last prices down to
whole units of the coordinate above: a fraction would outweigh this phase. The units M_a start
where the dearest room that a placed session takes is worth its v_a. With overdue sessions this
shrinks the first credit gap from 100 % to 10 %.
"""

import numpy as np

from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem
from tao_coordinator.scheduling.placement.prices import Descent
from tao_coordinator.scheduling.placement.problem import Float64, Int64
from tao_coordinator.scheduling.placement.views import (
    View,
    down_to,
    packed_view,
    with_units,
)

_STEPS = (20, 40, 20, 20)
"""Per coordinate."""
_CREDIT = 1
_LARGE = 2.0**61


def descend(
    packed: PackedProblem, view: View, coordinate: int, incumbent: Incumbent, meter: Meter
) -> View:
    """Prices near the minimum of L in one coordinate, those above being proved."""
    meter.spend(250 + packed.pairs.values.size // 10)
    plain = Descent(packed, incumbent, meter, coordinate, {})
    best, lowest = view, 0
    for number, candidate in enumerate(_starts(packed, view, coordinate, incumbent)):
        bound = plain.evaluate(candidate)
        if number == 0 or bound < lowest:
            best, lowest = candidate, bound
        if plain.finished():
            return best._replace(level=coordinate)
    return refine(packed, best, coordinate, incumbent, meter, _STEPS[coordinate])


def refine(
    packed: PackedProblem,
    view: View,
    coordinate: int,
    incumbent: Incumbent,
    meter: Meter,
    num_steps: int,
) -> View:
    """Better prices in the same coordinate."""
    view = view._replace(level=coordinate)
    finite = {
        c: size
        for c, size in _waiting(packed, incumbent, coordinate).items()
        if view.units[c] != packed.units[c]
    }
    return Descent(packed, incumbent, meter, coordinate, finite).run(view, num_steps)


def _waiting(packed: PackedProblem, incumbent: Incumbent, coordinate: int) -> dict[int, float]:
    """Coordinates above in which something has to wait, and their mean value where placed."""
    problem, pairs = packed.source, packed.pairs
    usable = pairs.values.max(axis=1) >= 0
    best_credits = np.where(pairs.values >= 0, problem.credits, 0).max(axis=1)
    columns = (problem.classes, best_credits, problem.ready)
    placed = incumbent.backend_of >= 0
    reached = packed.digits(incumbent.value)
    sizes: dict[int, float] = {}
    for c, column in enumerate(columns[:coordinate]):
        if int(column[usable].sum()) > reached[c] > 0:
            sizes[c] = reached[c] / max(1, int((column[placed] > 0).sum()))
    return sizes


def _starts(packed: PackedProblem, view: View, coordinate: int, incumbent: Incumbent) -> list[View]:
    upper_unit = packed.units[view.level] if view.level >= 0 else packed.value_max + 1
    values = down_to(packed, packed_view(packed), coordinate).values
    room = _room(packed, incumbent, values, upper_unit)
    low = np.where(values >= 0, values % upper_unit, 0).max(axis=1)
    whole = view.prices // upper_unit * upper_unit
    second = np.clip(_second(down_to(packed, view, coordinate).values - whole[:, None]), 0, low)
    scarce = whole + np.minimum(second, low - room)
    starts = [
        view,
        view._replace(prices=whole + second),
        view._replace(prices=_in_units(packed, scarce, coordinate)),
    ]
    if coordinate:
        starts.append(_finite_start(packed, view, coordinate, incumbent, values))
    return starts


def _finite_start(
    packed: PackedProblem, view: View, coordinate: int, incumbent: Incumbent, values: Int64
) -> View:
    upper_unit = packed.units[coordinate - 1]
    room = _room(packed, incumbent, values, upper_unit)
    low = np.where(values >= 0, values % upper_unit, 0).max(axis=1)
    placed = (incumbent.backend_of >= 0).nonzero()[0]
    cost = np.maximum(room - low, 0)[placed]
    units = list(packed.units)
    for c in _waiting(packed, incumbent, coordinate):
        worth = _column(packed, c, placed, incumbent.backend_of[placed])
        units[c] = min(packed.units[c], _unit(cost, worth))
    own = (units[0], units[1], units[2], units[3], units[4])
    finite = with_units(packed, view, own, packed.digits(incumbent.value))
    values = down_to(packed, finite, coordinate).values
    prices = np.minimum(_second(values), np.maximum(values.max(axis=1), 0) - room)
    return finite._replace(prices=_in_units(packed, prices, coordinate))


def _in_units(packed: PackedProblem, prices: Int64, coordinate: int) -> Int64:
    """Prices, not negative, in whole units of credit while that is looked at."""
    unit = packed.units[coordinate] if coordinate == _CREDIT else 1
    return np.maximum(prices, 0) // unit * unit


def _column(packed: PackedProblem, coordinate: int, sessions: Int64, backends: Int64) -> Int64:
    problem = packed.source
    if coordinate == _CREDIT:
        return problem.credits[sessions, backends]
    return (problem.classes if coordinate == 0 else problem.ready)[sessions]


def _unit(cost: Int64, worth: Int64) -> int:
    """Value of 1 at which (nearly) all these sessions are worth their room."""
    some = worth > 0
    if not some.any():
        return 1
    needed: Float64 = cost[some] / worth[some]
    return int(np.quantile(needed, 0.9)) + 1


def _second(values: Int64) -> Int64:
    """[n] second largest value of each row, at least 0."""
    if values.shape[1] < 2:
        return np.zeros(len(values), np.int64)
    return np.maximum(np.partition(values, -2, axis=1)[:, -2], 0)


def _lightest(packed: PackedProblem) -> Int64:
    """[n] smallest weight of each session, tokens."""
    largest = int(packed.pairs.weights.max(initial=0))
    return np.where(packed.pairs.values >= 0, packed.pairs.weights, largest).min(axis=1)


def _room(packed: PackedProblem, incumbent: Incumbent, values: Int64, upper_unit: int) -> Int64:
    """[n] what each session's room is worth to those that upper coordinates leave out."""
    weights = _lightest(packed)
    placed = (incumbent.backend_of >= 0).nonzero()[0]
    upper = placed[values[placed, incumbent.backend_of[placed]] >= upper_unit]
    room = int(np.maximum(packed.pairs.budgets, 0).sum()) - int(weights[upper].sum())
    low = np.where(values >= 0, values % upper_unit, 0).max(axis=1)
    low[upper] = 0
    pool = low.nonzero()[0]
    density = low[pool] / np.maximum(weights[pool], 1)
    order = density.argsort(kind="stable")[::-1]
    filled = weights[pool[order]].cumsum()
    place = int(filled.searchsorted(room, side="right"))
    lam = float(density[order[place]]) if place < len(order) else 0.0
    return np.minimum(lam * weights, _LARGE).astype(np.int64)
