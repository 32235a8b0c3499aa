"""Where sessions run: the lexicographic placement problem, its solver and its certificates.

    plan = solve(problem, LOOP)
    plan.check(problem)

The mathematics is in the modules' headers and, as one text, in docs/placement.md.
"""

from tao_coordinator.scheduling.placement.effort import FULL as FULL
from tao_coordinator.scheduling.placement.effort import INSTANT as INSTANT
from tao_coordinator.scheduling.placement.effort import INSTANT_OVERDUE as INSTANT_OVERDUE
from tao_coordinator.scheduling.placement.effort import LOOP as LOOP
from tao_coordinator.scheduling.placement.effort import Effort as Effort
from tao_coordinator.scheduling.placement.plan import Certificate as Certificate
from tao_coordinator.scheduling.placement.plan import Plan as Plan
from tao_coordinator.scheduling.placement.plan import Rung as Rung
from tao_coordinator.scheduling.placement.problem import Objective as Objective
from tao_coordinator.scheduling.placement.problem import PlacementProblem as PlacementProblem
from tao_coordinator.scheduling.placement.problem import (
    SparsePlacementProblem as SparsePlacementProblem,
)
from tao_coordinator.scheduling.placement.solver import solve as solve
