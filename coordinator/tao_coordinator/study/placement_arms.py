"""Ways to place held sessions, to compare joint placement with.

`GREEDY` is what a careful operator would write: each session in turn to the backend that has its
cache if it fits there, else to the one with most room. `SHORT_FIRST` is the greedy rule that TAO's
Appendix H compares its programme with.
"""

from typing import Final

import numpy as np

from tao_coordinator.scheduling.placement import (
    LOOP,
    Certificate,
    Objective,
    PlacementProblem,
    Plan,
    Rung,
    solve,
)
from tao_coordinator.scheduling.placement.plan import objective_of
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.tao.started import Place, place_instantly


def place_thoroughly(problem: PlacementProblem) -> Plan:
    """The whole ladder, with a certificate that is mostly closed."""
    return solve(problem, LOOP)


def place_greedily(problem: PlacementProblem) -> Plan:
    """In the order of the problem (overdue ones first, then by arrival): home, else most room."""
    return _one_by_one(problem, np.argsort(-problem.classes, kind="stable"))


def place_short_first(problem: PlacementProblem) -> Plan:
    """The same rule, smallest sessions first."""
    return _one_by_one(problem, np.lexsort((problem.tokens, -problem.classes)))


def _one_by_one(problem: PlacementProblem, order: Int64) -> Plan:
    left = problem.budgets.copy()
    places = problem.session_limits
    slots = np.full(len(left), len(order)) if places is None else places.copy()
    backend_of = np.full(problem.num_sessions, -1, np.int64)
    for session in order:
        weights = problem.weights[session]
        fits = problem.eligible[session] & (weights <= left) & (slots > 0)
        if not fits.any():
            continue
        rank = np.lexsort((left, problem.credits[session], fits))
        backend = int(rank[-1])
        backend_of[session] = backend
        left[backend] -= weights[backend]
        slots[backend] -= 1
    objective = objective_of(problem, backend_of)
    best_credit = np.where(problem.eligible, problem.credits, 0).max(axis=1, initial=0)
    everything = Objective(
        int(problem.classes.sum()),
        int(best_credit.sum()),
        int(problem.ready.sum()),
        int(problem.tokens.sum()),
        problem.num_sessions,
    )
    return Plan(
        backend_of=backend_of,
        objective=objective,
        certificate=Certificate.of(objective, everything),
        rung=Rung.TRIVIAL,
        work=len(order) * len(left),
    )


PLACEMENTS: Final[dict[str, Place]] = {
    "joint": place_instantly,
    "thorough": place_thoroughly,
    "greedy": place_greedily,
    "short-first": place_short_first,
}
"""What `tao:placement=...` may say."""
