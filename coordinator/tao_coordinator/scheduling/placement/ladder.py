"""The ladder: from the trivial plan to a proof, as far as the effort reaches.

0. *Trivial*: every session on its best backend. If that is feasible it is optimal.
1. *Local ratio* (`cohen_katz_raz`) on whole vectors, improving passes: at least half the optimum.
2. *Stage fill* (`stage_fill`): the same on class and credit alone, the rest filled class by class,
   then improving passes on whole vectors. Where sessions are overdue also: the same without class,
   the overdue ones put in where each costs least (`overdue`). Then the surrogate bound (`bounds`).
3. *Prices* (`prices`): Lagrangian bound, coordinate after coordinate, and plans by repair.
4. *Labels* (`labels`): exact search under that bound.
5. *Neighbourhood* (`neighbourhood`): where the beam of 4 was too narrow for a proof. Then rungs 3
   to 5 again, from the prices found and with four times the beam, as long as anything moves; 5
   takes as much work as 4 did.

The best plan is kept throughout (`incumbent`), so a later rung never returns less; the search ends
where bound and plan meet, or with the effort, at the next block boundary.
"""

import numpy as np

from tao_coordinator.scheduling.placement import (
    bounds,
    cohen_katz_raz,
    labels,
    neighbourhood,
    overdue,
    price_phases,
    stage_fill,
)
from tao_coordinator.scheduling.placement.effort import Effort, EffortSpent, Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem, in_units
from tao_coordinator.scheduling.placement.plan import Rung, check_feasible
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.placement.views import View, down_to, packed_view

_PASSES = 4
_CORE_PASSES = 3
_CORE_LABELS_MAX = 256
_FINE_LABELS_MAX = 2048
_BEAM = 500
_BEAM_MAX, _BEAM_CELLS_MAX = 32_000, 256_000
"""Labels, and labels times backends: 2 MB of residual budgets."""
_REFINE_STEPS = 20
_FEW_PAIRS = 25
_TOKENS = 3


def climb(packed: PackedProblem, effort: Effort, meter: Meter) -> Incumbent:
    """Search from nothing until proved or the effort is spent."""
    incumbent = Incumbent(packed)
    pairs = packed.pairs
    meter.spend(20)
    incumbent.limit(bounds.best_pairs(pairs))
    if _trivial(packed, incumbent) or effort.rung_max < Rung.LOCAL_RATIO:
        return incumbent
    incumbent.offer(cohen_katz_raz.place(pairs, meter, _PASSES), Rung.LOCAL_RATIO)
    if _done(incumbent, effort, meter, Rung.STAGE_FILL):
        return incumbent
    _stage_fill(packed, incumbent, meter)
    climb_from(incumbent, effort, meter)
    return incumbent


def climb_from(incumbent: Incumbent, effort: Effort, meter: Meter) -> None:
    """Search on from a plan and a bound: rungs 3 to 5."""
    packed = incumbent.packed
    if _done(incumbent, effort, meter, Rung.STAGE_FILL):
        return
    bound, work = bounds.surrogate(packed)
    meter.spend(work)
    incumbent.limit(bound)
    if _done(incumbent, effort, meter, Rung.PRICES):
        return
    try:
        _prove_all(packed, incumbent, effort, meter)
    except EffortSpent:
        return


def _prove_all(packed: PackedProblem, incumbent: Incumbent, effort: Effort, meter: Meter) -> None:
    views: list[View] = []
    for coordinate in range(_TOKENS + 1):
        # The last one also decides the number of sessions, so it is never empty.
        is_empty = coordinate < _TOKENS and not packed.sums_max[coordinate]
        if is_empty or _proved(incumbent, coordinate):
            continue
        may_search = views and effort.rung_max >= Rung.LABELS
        if may_search and _search_all_below(packed, views, incumbent, meter):
            return
        start = views[-1] if views else packed_view(packed)
        views.append(price_phases.descend(packed, start, coordinate, incumbent, meter))
        if not _prove(packed, views, coordinate, incumbent, effort, meter):
            return


def _prove(
    packed: PackedProblem,
    views: list[View],
    coordinate: int,
    incumbent: Incumbent,
    effort: Effort,
    meter: Meter,
) -> bool:
    """Label search and neighbourhoods until a coordinate is proved; whether to go on below it."""
    beam, beam_max = _BEAM, max(_BEAM, min(_BEAM_MAX, _BEAM_CELLS_MAX // len(packed.pairs.budgets)))
    while not _proved(incumbent, coordinate):
        if _done(incumbent, effort, meter, Rung.LABELS):
            return False
        before, spent = (incumbent.bound, incumbent.value), meter.spent
        _search_labels(packed, views, coordinate, incumbent, beam, meter)
        if _proved(incumbent, coordinate):
            break
        if _done(incumbent, effort, meter, Rung.NEIGHBOURHOOD):
            return False
        _search_neighbourhoods(packed, views, incumbent, meter, meter.spent - spent)
        views[-1] = price_phases.refine(
            packed, views[-1], coordinate, incumbent, meter, _REFINE_STEPS
        )
        if (incumbent.bound, incumbent.value) == before and beam >= beam_max:
            return False
        beam = min(4 * beam, beam_max)
    return not _done(incumbent, effort, meter, Rung.PRICES)


def _trivial(packed: PackedProblem, incumbent: Incumbent) -> bool:
    """Offer the plan with every session on its best backend, if it is feasible."""
    pairs = packed.pairs
    if not pairs.values.size:
        return True
    best = pairs.values.argmax(axis=1)
    backend_of = np.where(pairs.values.max(axis=1) >= 0, best, -1)
    try:
        check_feasible(packed.source, backend_of)
    except AssertionError:
        return False
    incumbent.offer(backend_of, Rung.TRIVIAL)
    return True


def _stage_fill(packed: PackedProblem, incumbent: Incumbent, meter: Meter) -> None:
    pairs = packed.pairs
    core: Int64 = np.full(len(pairs.values), -1, np.int64)
    if packed.sums_max.classes or packed.sums_max.credit:
        core = cohen_katz_raz.place(
            in_units(pairs, packed.units[1]), meter, _CORE_PASSES, _CORE_LABELS_MAX
        )
    filled = stage_fill.fill(packed, core, meter)
    incumbent.offer(cohen_katz_raz.improve(pairs, filled, meter, _CORE_PASSES), Rung.STAGE_FILL)
    if packed.sums_max.classes:
        without = pairs._replace(
            values=np.where(pairs.values >= 0, pairs.values % packed.units[0], -1)
        )
        core = cohen_katz_raz.place(
            in_units(without, packed.units[1]), meter, _CORE_PASSES, _CORE_LABELS_MAX
        )
        filled = stage_fill.fill(packed, overdue.insert(packed, core, meter), meter)
        improved = cohen_katz_raz.improve(pairs, filled, meter, _CORE_PASSES)
        incumbent.offer(improved, Rung.STAGE_FILL)


def _proved(incumbent: Incumbent, coordinate: int) -> bool:
    """Whether a coordinate is proved; tokens are searched together with what follows."""
    if coordinate == _TOKENS:
        return incumbent.closed
    return incumbent.certificate().num_proved > coordinate


def _search_labels(
    packed: PackedProblem,
    views: list[View],
    coordinate: int,
    incumbent: Incumbent,
    beam: int,
    meter: Meter,
    open_pairs_max: int | None = None,
) -> None:
    """Ask whether a plan is better in this coordinate, those above being proved.

    The last coordinate asked about is tokens, together with the number of sessions.
    """
    unit = packed.units[coordinate] if coordinate < _TOKENS else 1
    value = incumbent.value // unit * unit
    floor = value + unit - 1
    boundings = tuple(
        labels.Bounding(down_to(packed, view, coordinate), view.prices, floor - view.offset)
        for view in views
    )
    pairs = down_to(packed, packed_view(packed), coordinate)
    question = labels.Question(pairs.values, value, boundings, open_pairs_max)
    answer = labels.search(question, beam, meter)
    if answer.backend_of is not None:
        filled = cohen_katz_raz.improve(packed.pairs, answer.backend_of, meter, 2)
        incumbent.offer(filled, Rung.LABELS)
    incumbent.limit((floor + answer.excess) // unit * unit + unit - 1)


def _search_all_below(
    packed: PackedProblem, views: list[View], incumbent: Incumbent, meter: Meter
) -> bool:
    """Ask about all open coordinates at once, if few pairs are left; whether that proved them."""
    few = _FEW_PAIRS * len(packed.pairs.budgets)
    _search_labels(packed, views, _TOKENS, incumbent, _BEAM, meter, few)
    return incumbent.closed


def _search_neighbourhoods(
    packed: PackedProblem, views: list[View], incumbent: Incumbent, meter: Meter, work: int
) -> None:
    better = cohen_katz_raz.improve(packed.pairs, incumbent.backend_of, meter, 2, _FINE_LABELS_MAX)
    incumbent.offer(better, Rung.NEIGHBOURHOOD)
    neighbourhood.search(incumbent, views, meter, work)


def _done(incumbent: Incumbent, effort: Effort, meter: Meter, following: Rung) -> bool:
    """Whether to stop before the following rung."""
    if incumbent.closed or meter.exhausted or effort.rung_max < following:
        return True
    certificate = incumbent.certificate()
    return certificate.num_proved >= 3 and certificate.gap <= effort.token_gap
