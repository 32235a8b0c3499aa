"""The ladder: from the trivial plan to a proof, as far as the effort reaches.

0. *Trivial*: every session on its best backend. If that is feasible it is optimal.
1. *Local ratio* (`cohen_katz_raz`) on whole vectors, improving passes: at least half the optimum.
2. *Stage fill* (`stage_fill`): the same on class and credit alone, the rest filled class by class,
   then improving passes on whole vectors. Then the surrogate bound (`bounds`).
3. *Prices* (`prices`): Lagrangian bound, coordinate after coordinate, and plans by repair.
4. *Labels* (`labels`): exact search under that bound.
5. *Neighbourhood* (`neighbourhood`): where the beam of 4 was too narrow for a proof. Then rungs 3
   to 5 again, from the prices found and with twice the beam, as long as anything moves.

The best plan is kept throughout (`incumbent`), so a later rung never returns less; the search ends
where bound and plan meet, or with the effort, at the next block boundary.
"""

import numpy as np

from tao_coordinator.scheduling.placement import (
    bounds,
    cohen_katz_raz,
    labels,
    neighbourhood,
    price_phases,
    stage_fill,
)
from tao_coordinator.scheduling.placement.effort import Effort, Meter
from tao_coordinator.scheduling.placement.incumbent import Incumbent
from tao_coordinator.scheduling.placement.packing import PackedProblem
from tao_coordinator.scheduling.placement.plan import Rung, check_feasible
from tao_coordinator.scheduling.placement.prices import View
from tao_coordinator.scheduling.placement.problem import Int64

_PASSES = 4
_CORE_PASSES = 3
_CORE_LABELS_MAX = 256
_FINE_LABELS_MAX = 2048
_BEAM = 500
_BEAM_MAX = 4000
_REFINE_STEPS = 20
_TOKENS, _LAST_PACKED = 3, 4


def climb(packed: PackedProblem, effort: Effort, meter: Meter) -> Incumbent:
    """Search until proved or the effort is spent."""
    incumbent = Incumbent(packed)
    pairs = packed.pairs
    meter.spend(20 + pairs.values.size // 50)
    incumbent.limit(bounds.best_pairs(pairs))
    if _trivial(packed, incumbent) or effort.rung_max < Rung.LOCAL_RATIO:
        return incumbent
    incumbent.offer(cohen_katz_raz.place(pairs, meter, _PASSES), Rung.LOCAL_RATIO)
    if _done(incumbent, effort, meter, Rung.STAGE_FILL):
        return incumbent
    _stage_fill(packed, incumbent, meter)
    bound, work = bounds.surrogate(packed)
    meter.spend(work)
    incumbent.limit(bound)
    if _done(incumbent, effort, meter, Rung.PRICES):
        return incumbent
    view = price_phases.descend(packed, incumbent, meter)
    beam = _BEAM
    while not _done(incumbent, effort, meter, Rung.LABELS):
        before = incumbent.bound, incumbent.value
        _search_labels(packed, view, incumbent, beam, meter)
        if _done(incumbent, effort, meter, Rung.NEIGHBOURHOOD):
            break
        _search_neighbourhoods(packed, view, incumbent, meter)
        if _done(incumbent, effort, meter, Rung.NEIGHBOURHOOD):
            break
        view = price_phases.refine(packed, view, incumbent, meter, _REFINE_STEPS)
        if (incumbent.bound, incumbent.value) == before and beam >= _BEAM_MAX:
            break
        beam = min(2 * beam, _BEAM_MAX)
    return incumbent


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
        unit = packed.units[1]
        upper = np.where(pairs.values >= unit, pairs.values // unit * unit, -1)
        core = cohen_katz_raz.place(
            pairs._replace(values=upper), meter, _CORE_PASSES, _CORE_LABELS_MAX
        )
    filled = stage_fill.fill(packed, core, meter)
    incumbent.offer(cohen_katz_raz.improve(pairs, filled, meter, _CORE_PASSES), Rung.STAGE_FILL)


def _search_labels(
    packed: PackedProblem, view: View, incumbent: Incumbent, beam: int, meter: Meter
) -> None:
    """Search the first open coordinate, and the following ones as long as that proves them."""
    num_proved = incumbent.certificate().num_proved
    while not incumbent.closed and not meter.exhausted:
        coordinate = min(num_proved, _LAST_PACKED)
        unit = packed.units[coordinate] or packed.units[_TOKENS]
        pairs = labels.in_units(view.pairs, unit) if unit > 1 else view.pairs
        classes_proved = coordinate > 0
        goal = labels.Goal(
            value=incumbent.value // unit * unit - view.offset + unit - 1,
            classes=packed.source.classes,
            class_sum=incumbent.objective.classes if classes_proved else 0,
        )
        answer = labels.search(pairs, view.prices, goal, beam, meter)
        if answer.backend_of is not None:
            filled = cohen_katz_raz.improve(packed.pairs, answer.backend_of, meter, 2)
            incumbent.offer(filled, Rung.LABELS)
        incumbent.limit((answer.bound + view.offset) // unit * unit + unit - 1)
        before, num_proved = num_proved, incumbent.certificate().num_proved
        if num_proved <= before:
            break


def _search_neighbourhoods(
    packed: PackedProblem, view: View, incumbent: Incumbent, meter: Meter
) -> None:
    pairs = packed.pairs
    better = cohen_katz_raz.improve(pairs, incumbent.backend_of, meter, 2, _FINE_LABELS_MAX)
    incumbent.offer(better, Rung.NEIGHBOURHOOD)
    better = neighbourhood.search(
        view,
        packed.source.classes,
        incumbent.backend_of,
        incumbent.bound - view.offset,
        meter,
        len(pairs.budgets) ** 2,
    )
    incumbent.offer(better, Rung.NEIGHBOURHOOD)


def _done(incumbent: Incumbent, effort: Effort, meter: Meter, following: Rung) -> bool:
    """Whether to stop before the following rung."""
    if incumbent.closed or meter.exhausted or effort.rung_max < following:
        return True
    certificate = incumbent.certificate()
    return certificate.num_proved >= 3 and certificate.gap <= effort.token_gap
