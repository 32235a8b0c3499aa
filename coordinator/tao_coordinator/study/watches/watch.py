"""What a watch may look at: it stands between a policy and its parts and changes no answer."""

from dataclasses import dataclass

from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.rivals.grid_decision import Decide
from tao_coordinator.scheduling.tao.started import Place
from tao_coordinator.simulation.run_record import RunRecord

Series = list[list[float]]
"""Rows of numbers that a study draws; what they mean is said where they are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatePlan:
    """A plan that was made at s and met the state of t.

    All arrays are over everybody who competed at either time, in one order; who did not compete at
    one of them is eligible for nothing then, with the values of the other.
    """

    then: PlacementProblem
    """At s."""
    live: PlacementProblem
    """At t."""
    planned: Int64
    """[n] what was decided at s; -1 = waits."""
    carried_out: Int64
    """[n] what was done at t."""
    used_fallback: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedPlan:
    """A late plan of a policy that states the right-hand side of Eq. 12 itself; leading class 0."""

    feasibility_change: int
    """A, in the unit of `live.credits`, as the three below."""
    value_drift: int
    execution_loss: int
    solver_gap: int
    value: int
    """What was carried out is worth at t."""
    num_planned: int
    """Sessions."""
    num_carried_out: int
    live: PlacementProblem
    """At t, with everybody who competes."""
    unit_tokens: int
    """Tokens per unit of credit."""


class Watch:
    """Looks on; this one at nothing."""

    sees_plans = False
    """True: every plan of `tao` must be made within its step, where it can be seen."""
    hears_late_plans = False
    """True: every plan of `tao` must be made beside the loop, and `late` told of it."""

    def readiness(self, predictor: ReadinessPredictor) -> ReadinessPredictor:
        """The policy's predictor, or one that passes everything on to it."""
        return predictor

    def decide(self, decide: Decide) -> Decide:
        """How `tao-paper` decides jointly."""
        return decide

    def place(self, place: Place) -> Place:
        """How `tao` places within a step."""
        return place

    def late(self, plan: LatePlan | BoundedPlan) -> None:
        """A plan met a later state than it was made for."""

    def measures(self, record: RunRecord) -> dict[str, float]:
        """What was found, once the run is over."""
        return {}

    def series(self, record: RunRecord) -> dict[str, Series]:
        """What is drawn, by name."""
        return {}
