"""Baseline: every turn to the next backend in turn; nobody is ever held."""

from tao_coordinator.core.model import Session, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment


class RoundRobin:
    """What a plain load balancer does: sessions lose their cache to every other backend."""

    name = "round-robin"

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """The next eligible backend; the count of leases so far is the pointer."""
        eligible = state.eligible(turn.session)
        if not eligible:
            return None
        backend = eligible[state.num_leases % len(eligible)]
        return Assignment(turn=turn, backend=backend, reason="round-robin")

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """None: nobody waits for room."""
        return []

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Turns that found no backend when they came."""
        found = [self.immediate(state, turn, now_s) for turn in state.held.values()]
        return [assignment for assignment in found if assignment is not None]
