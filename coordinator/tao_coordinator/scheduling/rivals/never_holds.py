"""What all routers without a gate share: every turn goes at once, nobody is interrupted."""

from abc import ABC, abstractmethod
from collections import Counter

from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment


class NeverHolds(ABC):
    """Base of pass-through policies: they only choose the backend."""

    name: str

    @abstractmethod
    def choose(
        self, state: State, turn: Turn, eligible: list[Backend], now_s: float
    ) -> tuple[Backend, str]:
        """The backend among `eligible` (never empty) and the reason for the receipt."""

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Always a backend, as long as one is eligible."""
        eligible = state.eligible(turn.session)
        if not eligible:
            return None
        backend, reason = self.choose(state, turn, eligible, now_s)
        return Assignment(turn=turn, backend=backend, reason=reason)

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """None: nobody waits for room."""
        return []

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Turns that found no backend when they came."""
        found = [self.immediate(state, turn, now_s) for turn in state.held.values()]
        return [assignment for assignment in found if assignment is not None]


def calls_in_flight(state: State) -> Counter[str]:
    """Running calls per backend id: what request-counting routers call load."""
    return Counter(lease.backend_id for lease in state.leases.values())


def shared_tokens(session: Session, backend: Backend) -> int:
    """Leading tokens of the session that any session has left on this backend."""
    learned = backend.shared_prefix.tokens
    told = session.shared_prefix_tokens
    return learned if told is None else min(told, learned)
