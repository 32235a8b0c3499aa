"""What joint decisions cost: seconds of this machine per plan, those by fallback apart.

Like all wall times these are of the machine that ran the study, in one process among others.
"""

import time

import numpy as np

from tao_coordinator.scheduling.placement import PlacementProblem, Plan
from tao_coordinator.scheduling.rivals.grid_decision import Decide, Decision
from tao_coordinator.scheduling.tao.started import Place
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.watches.watch import Watch


class CostWatch(Watch):
    """Times every plan."""

    sees_plans = True

    def __init__(self) -> None:
        """Nothing was planned yet."""
        self.solved_s: list[float] = []
        self.failed_s: list[float] = []
        """Searches that failed, with the fallback that decided instead."""

    def decide(self, decide: Decide) -> Decide:
        """See `Watch`."""

        def timed(problem: PlacementProblem, quantum_tokens: int, states_max: int) -> Decision:
            began_s = time.perf_counter()
            found = decide(problem, quantum_tokens, states_max)
            spent_s = time.perf_counter() - began_s
            (self.failed_s if found.used_fallback else self.solved_s).append(spent_s)
            return found

        return timed

    def place(self, place: Place) -> Place:
        """See `Watch`."""

        def timed(problem: PlacementProblem) -> Plan:
            began_s = time.perf_counter()
            plan = place(problem)
            self.solved_s.append(time.perf_counter() - began_s)
            return plan

        return timed

    def measures(self, record: RunRecord) -> dict[str, float]:
        """Milliseconds per plan; shares of the run's virtual time."""
        both = np.array(self.solved_s + self.failed_s)
        if not len(both) or not record.sessions:
            return {}
        makespan_s = max(row.ended_s for row in record.sessions)
        failed_s = sum(self.failed_s)
        return {
            "plan_ms_mean": float(both.mean()) * 1e3,
            "plan_ms_p50": float(np.percentile(both, 50)) * 1e3,
            "plan_ms_p99": float(np.percentile(both, 99)) * 1e3,
            "plan_share": float(both.sum()) / makespan_s,
            "plan_share_solved": sum(self.solved_s) / makespan_s,
            "decision_share_solved": (sum(record.decision_s) - failed_s) / makespan_s,
        }
