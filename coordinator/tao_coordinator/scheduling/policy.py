"""What a policy is: three questions that the engine asks, answered without changing anything.

1. `immediate`: may this turn, which just arrived, go at once? Asked for every turn: keep it cheap.
2. `interrupts`: whose idle seat may be promised again? Asked once per tick, and when a first turn
   is held.
3. `admit`: which held turns go now, and where? Asked while turns are held and something changed.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tao_coordinator.core.effects import SolvePlan
from tao_coordinator.core.events import PlanSolved
from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.plans import PlanLog
from tao_coordinator.core.state import State
from tao_coordinator.prediction.predictor import ReadinessPredictor


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One turn to one backend, and why."""

    turn: Turn
    backend: Backend
    reason: str
    """`resident`, `parallel` (bypass); `planned` (within the budget); `alone` (larger than any
    budget, on an empty backend); `forced`; or the rule of a baseline policy."""
    plan_id: int | None = None
    """Number of the joint placement plan that it came out of."""
    keeps_pool: bool = False
    """True: the policy claims that calls in flight fit the pool; the engine asserts it."""
    keeps_budget: bool = False
    """True: the policy claims that the backend's budget is kept; the engine asserts it."""


class Policy(Protocol):
    """A way to decide. It may keep notes of its own, but never writes to the state."""

    name: str

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Assignment for a turn that just arrived, or `None`: hold it."""
        ...

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """Sessions without a call in flight whose seat is to be released."""
        ...

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Held turns that go now, in the order in which they are to be granted."""
        ...


@runtime_checkable
class ReadsReadiness(Protocol):
    """A policy that asks a predictor of its own choice; the engine feeds that one."""

    readiness: ReadinessPredictor


@runtime_checkable
class KeepsPlans(Protocol):
    """A policy that writes down its joint plans."""

    plans: PlanLog


@runtime_checkable
class MakesPlansAside(Protocol):
    """A policy that may ask for a plan to be made beside the loop, one at a time."""

    def take_question(self) -> SolvePlan | None:
        """The plan that is wanted now, told once."""
        ...

    def answer(self, solved: PlanSolved) -> None:
        """A plan that was asked for, or that there is none; any number may also never come."""
        ...
