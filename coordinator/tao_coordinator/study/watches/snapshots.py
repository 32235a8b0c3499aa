"""Snapshot by snapshot: what the joint plan is worth beside greedy ones for the same problem.

Objectives are compared as the policy compares them: lexicographically, credit by the token for
`tao-paper`, by the bucket for `tao`. `short_first` is the rule of TAO's Appendix H: the smallest
session first, home if it fits there, else where most room is left. Plans of `tao-paper` that came
from its fallback are no joint plans and are not compared; its programme sees weights and budgets in
whole steps of its grid, so the rule is asked twice: with exact tokens, where it may fit what the
programme cannot, and on the same grid (`on_grid`), where nothing can be better than an optimum. For
`tao` the joint plan is the one that the whole ladder finds; whether the quick pass within a step
reached it is counted too.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from tao_coordinator.scheduling.placement import LOOP, Objective, PlacementProblem, Plan, solve
from tao_coordinator.scheduling.placement.plan import objective_of
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.rivals.grid_decision import Decide, Decision
from tao_coordinator.scheduling.tao.started import Place
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.placement_arms import place_greedily, place_short_first
from tao_coordinator.study.watches.watch import Series, Watch

_RULES: Final[dict[str, Place]] = {"greedy": place_greedily, "short_first": place_short_first}
_WORDS: Final[list[str]] = ["better", "equal", "worse"]
EXAMPLE_SESSIONS_MAX: Final = 30
"""More of them cannot be told apart in a picture."""
ROWS_MAX: Final = 4_000
CLEARLY: Final = 0.05
"""Credit by the token is hardly ever equal; this much more of it is worth having."""


class SnapshotWatch(Watch):
    """Counts what greedy rules would have missed, and keeps the clearest example."""

    sees_plans = True

    def __init__(self) -> None:
        """No snapshot seen yet."""
        self.counts = dict.fromkeys([f"{rule}_{word}" for rule in _RULES for word in _WORDS], 0)
        self.on_grid = dict.fromkeys(_WORDS, 0)
        self.num_snapshots = 0
        """Those in which at least two sessions compete."""
        self.num_all = 0
        self.num_clearly = 0
        """Snapshots in which the joint plan keeps `CLEARLY` more credit than short-first."""
        self.num_competing = 0
        """Sessions, over the snapshots."""
        self.num_proved = 0
        """Of the snapshots, plans whose whole objective the ladder proved."""
        self.num_instant_optimal = 0
        """Of the proved ones, those that the quick pass within a step had reached."""
        self._credit = dict.fromkeys(["jointly", *_RULES], 0)
        self._gains: Series = []
        self._example: tuple[int, PlacementProblem, Int64, Int64] | None = None

    def decide(self, decide: Decide) -> Decide:
        """See `Watch`."""

        def watched(problem: PlacementProblem, quantum_tokens: int, states_max: int) -> Decision:
            found = decide(problem, quantum_tokens, states_max)
            if not found.used_fallback:
                self.compare(problem, found.backend_of)
                self._compare_on_grid(problem, found.backend_of, quantum_tokens)
            return found

        return watched

    def place(self, place: Place) -> Place:
        """See `Watch`."""

        def watched(problem: PlacementProblem) -> Plan:
            quick = place(problem)
            if problem.num_sessions < 2:
                self.num_all += 1
                return quick
            thorough = solve(problem, LOOP)
            if thorough.certificate.is_optimal:
                self.num_proved += 1
                self.num_instant_optimal += quick.objective == thorough.objective
            self.compare(problem, thorough.backend_of)
            return quick

        return watched

    def compare(self, problem: PlacementProblem, jointly: Int64) -> None:
        """Count one snapshot."""
        self.num_all += 1
        if problem.num_sessions < 2:
            return
        self.num_snapshots += 1
        self.num_competing += problem.num_sessions
        best = objective_of(problem, jointly)
        self._credit["jointly"] += best.credit
        for rule, place in _RULES.items():
            other = place(problem)
            self._credit[rule] += other.objective.credit
            self.counts[f"{rule}_{_word(best, other.objective)}"] += 1
            if rule == "short_first":
                self._note(problem, jointly, best, other)

    def _compare_on_grid(
        self, problem: PlacementProblem, jointly: Int64, quantum_tokens: int
    ) -> None:
        if problem.num_sessions < 2:
            return
        grid = replace(
            problem,
            weights=-(-problem.weights // quantum_tokens) * quantum_tokens,
            budgets=problem.budgets // quantum_tokens * quantum_tokens,
        )
        best = objective_of(problem, jointly)
        self.on_grid[_word(best, place_short_first(grid).objective)] += 1

    def _note(
        self, problem: PlacementProblem, jointly: Int64, best: Objective, other: Plan
    ) -> None:
        gain = best.credit - other.objective.credit
        self.num_clearly += gain > CLEARLY * best.credit
        if len(self._gains) < ROWS_MAX:
            self._gains.append([float(best.credit), float(other.objective.credit)])
        few = int((jointly >= 0).sum()) <= EXAMPLE_SESSIONS_MAX
        if few and gain > 0 and (self._example is None or gain > self._example[0]):
            self._example = (gain, problem, jointly, other.backend_of)

    def measures(self, record: RunRecord) -> dict[str, float]:
        """Shares of the snapshots, and the credit that joint placement keeps."""
        if not self.num_all:
            return {}
        number = max(1, self.num_snapshots)
        found = {f"snapshots_{name}": count / number for name, count in self.counts.items()}
        for rule in _RULES:
            kept = self._credit[rule]
            found[f"credit_over_{rule}"] = self._credit["jointly"] / kept if kept else 1.0
        if any(self.on_grid.values()):
            found |= {f"snapshots_on_grid_{word}": n / number for word, n in self.on_grid.items()}
        better = self.counts["short_first_better"]
        found["snapshots_clearly_better"] = self.num_clearly / number
        found["snapshots_competing"] = self.num_competing / number
        found["snapshots"] = float(self.num_snapshots)
        found["snapshots_all"] = float(self.num_all)
        found["snapshots_all_short_first_better"] = better / self.num_all
        found["snapshots_proved"] = self.num_proved / number
        found["quick_is_optimal"] = self.num_instant_optimal / max(1, self.num_proved)
        return found

    def series(self, record: RunRecord) -> dict[str, Series]:
        """What Figures 10 and 11 need.

        `gains`: credit jointly and short-first, per snapshot. Of the snapshot in which most credit
        was gained: `example_budgets` per backend, and `example` per session that either places:
        backend, weight there, credit there, first jointly, then short-first; -1 = waits.
        """
        found = {"gains": self._gains}
        if self._example is not None:
            _, problem, jointly, greedy = self._example
            found["example"] = [
                [*_pair(problem, i, int(jointly[i])), *_pair(problem, i, int(greedy[i]))]
                for i in range(problem.num_sessions)
                if max(jointly[i], greedy[i]) >= 0
            ]
            found["example_budgets"] = [[float(c)] for c in np.maximum(0, problem.budgets)]
        return found


def _word(best: Objective, other: Objective) -> str:
    if best == other:
        return "equal"
    return "better" if best > other else "worse"


def _pair(problem: PlacementProblem, i: int, b: int) -> list[float]:
    if b < 0:
        return [-1.0, 0.0, 0.0]
    return [float(b), float(problem.weights[i, b]), float(problem.credits[i, b])]
