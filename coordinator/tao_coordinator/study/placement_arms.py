"""Ways to place held sessions, to compare joint placement with: greedy ones, and a witness.

`GREEDY` is what a careful operator would write: each session in turn to the backend that has its
cache if it fits there, else to the one with most room. `SHORT_FIRST` is the greedy rule that TAO's
Appendix H compares its programme with. `Witness` decides jointly and notes what they would have
done with the same snapshot.
"""

from collections.abc import Callable
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


class Witness:
    """Decides as the default policy does; counts what greedy rules would have missed."""

    def __init__(self) -> None:
        """No snapshot seen yet."""
        self.counts = dict.fromkeys(
            [f"{rule}_{word}" for rule in _RULES for word in ("better", "equal", "worse")], 0
        )
        self.num_snapshots = 0
        """Those in which at least two sessions compete."""
        self.num_proved = 0
        """Of these, plans whose whole objective the ladder proved."""
        self.num_instant_optimal = 0
        """Of the proved ones, those that the quick pass within a step had reached."""
        self._credit = dict.fromkeys(["jointly", *_RULES], 0)

    def __call__(self, problem: PlacementProblem) -> Plan:
        """Place, and compare where there is something to choose."""
        quick = place_instantly(problem)
        if problem.num_sessions < 2:
            return quick
        self.num_snapshots += 1
        thorough = place_thoroughly(problem)
        if thorough.certificate.is_optimal:
            self.num_proved += 1
            self.num_instant_optimal += quick.objective == thorough.objective
        self._credit["jointly"] += thorough.objective.credit
        for rule, place in _RULES.items():
            other = place(problem)
            self._credit[rule] += other.objective.credit
            word = "equal"
            if thorough.objective != other.objective:
                word = "better" if thorough.objective > other.objective else "worse"
            self.counts[f"{rule}_{word}"] += 1
        return quick

    def measures(self) -> dict[str, float]:
        """Shares of the snapshots, and the credit that joint placement keeps."""
        number = max(1, self.num_snapshots)
        found = {f"snapshots_{name}": count / number for name, count in self.counts.items()}
        for rule in _RULES:
            kept = self._credit[rule]
            found[f"credit_over_{rule}"] = self._credit["jointly"] / kept if kept else 1.0
        found["snapshots"] = float(self.num_snapshots)
        found["snapshots_proved"] = self.num_proved / number
        found["quick_is_optimal"] = self.num_instant_optimal / max(1, self.num_proved)
        return found


_RULES: Final[dict[str, Place]] = {"greedy": place_greedily, "short_first": place_short_first}

PLACEMENTS: Final[dict[str, Callable[[], Place]]] = {
    "joint": lambda: place_instantly,
    "thorough": lambda: place_thoroughly,
    "greedy": lambda: place_greedily,
    "short-first": lambda: place_short_first,
    "witness": Witness,
}
"""What `tao:placement=...` may say."""
