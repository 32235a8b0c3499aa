"""Baseline: a session stays on its backend; a new one goes to the backend with the fewest sessions.

As vLLM router's `sticky_least_loaded` does it: load is the number of live sessions, nobody is held.
"""

from collections import Counter

from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment


class StickyLeastLoaded:
    """Keeps every cache at home, but lets any number of sessions into the pool."""

    name = "sticky-least-loaded"

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Home if it lives, else the backend with the fewest live sessions."""
        eligible = state.eligible(turn.session)
        if not eligible:
            return None
        for backend in eligible:
            if backend.backend_id == turn.session.last_backend_id:
                return Assignment(turn=turn, backend=backend, reason="sticky")
        load = self._load(state)
        least: Backend = min(eligible, key=lambda b: load[b.backend_id])
        return Assignment(turn=turn, backend=least, reason="least-loaded")

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """None: nobody waits for room."""
        return []

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Turns that found no backend when they came."""
        found = [self.immediate(state, turn, now_s) for turn in state.held.values()]
        return [assignment for assignment in found if assignment is not None]

    @staticmethod
    def _load(state: State) -> Counter[str]:
        return Counter(
            session.last_backend_id
            for session in state.sessions.values()
            if session.last_backend_id is not None and not session.ended
        )
