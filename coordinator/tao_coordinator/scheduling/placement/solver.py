"""The one entry: a problem and an effort in, a plan out."""

from tao_coordinator.scheduling.placement import ladder
from tao_coordinator.scheduling.placement.effort import FULL, Effort, Meter
from tao_coordinator.scheduling.placement.packing import pack
from tao_coordinator.scheduling.placement.plan import Plan
from tao_coordinator.scheduling.placement.problem import PlacementProblem


def solve(problem: PlacementProblem, effort: Effort = FULL) -> Plan:
    """Place sessions as well as the effort allows; deterministic unless a clock cuts it short."""
    meter = Meter(effort)
    incumbent = ladder.climb(pack(problem), effort, meter)
    return Plan(
        backend_of=incumbent.backend_of,
        objective=incumbent.objective,
        certificate=incumbent.certificate(),
        rung=incumbent.rung,
        work=meter.spent,
        elapsed_s=None if effort.elapsed_s is None else effort.elapsed_s(),
    )
