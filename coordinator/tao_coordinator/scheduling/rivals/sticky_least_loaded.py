"""A session stays on its backend; a new one goes to the backend with the fewest sessions.

Original: vLLM router, `sticky_least_loaded` (`src/policies/sticky_least_loaded.rs`): load is the
number of live sessions, nobody is held.
"""

from collections import Counter

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.never_holds import NeverHolds


class StickyLeastLoaded(NeverHolds):
    """Keeps every cache at home, but lets any number of sessions into the pool."""

    name = "sticky-least-loaded"

    def choose(
        self, state: State, turn: Turn, eligible: list[Backend], now_s: float
    ) -> tuple[Backend, str]:
        """Home if it lives, else the backend with the fewest live sessions."""
        for backend in eligible:
            if backend.backend_id == turn.session.last_backend_id:
                return backend, "sticky"
        load = Counter(
            session.last_backend_id for session in state.sessions.values() if not session.ended
        )
        return min(eligible, key=lambda b: load[b.backend_id]), "least-loaded"
