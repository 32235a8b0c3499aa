"""At most K sessions per backend, the rest waits in order: the cap that operators set by hand.

A session keeps its place from its first turn to its end, tool calls included, and stays on its
backend; whoever finds no place waits, first come, first served. No size, no cache, no feedback: K
has to be found by trial for each model and each kind of agent.
"""

from dataclasses import dataclass

from tao_coordinator.core.model import Backend, Session, SessionKey, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCapParameters:
    """The one number of this policy."""

    sessions_max: int = 8
    """K, sessions per backend. The policy study's sweep found 6-8 best for coding agents on a pool
    of 307k tokens, 5-12 with long tools, 14-22 on a pool of 2.2M."""

    def __post_init__(self) -> None:
        """A cap of nobody would hold everybody for ever."""
        if self.sessions_max < 1:
            raise ValueError(f"sessions_max must be at least 1, got {self.sessions_max}")


class StaticCap:
    """First come, first served, K at a time on each backend."""

    name = "static-cap"

    def __init__(self, parameters: StaticCapParameters | None = None) -> None:
        """Decide by `parameters`."""
        self.parameters = parameters or StaticCapParameters()

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Sessions that have a place use it."""
        seat = turn.session.seat
        backend = None if seat is None else state.backends[seat.backend_id]
        if backend is None or not (backend.usable and backend.serves(turn.session.key.model)):
            return None
        return Assignment(turn=turn, backend=backend, reason="seated")

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """None: a place is kept to the end."""
        return []

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """In order of arrival, each to the backend with most places left."""
        places = {
            b.backend_id: self.parameters.sessions_max - b.num_committed
            for b in state.backends.values()
        }
        placed: dict[SessionKey, Backend] = {}
        found: list[Assignment] = []
        # Places only get fewer on the way: nobody of the same model overtakes one that finds none.
        for turn in state.held.values():
            seated = self.immediate(state, turn, now_s)
            if seated is not None:
                found.append(seated)
                continue
            key = turn.session.key
            if key not in placed:
                free = [b for b in state.eligible(turn.session) if places[b.backend_id] > 0]
                if not free:
                    continue
                placed[key] = max(free, key=lambda b: places[b.backend_id])
                places[placed[key].backend_id] -= 1
            found.append(Assignment(turn=turn, backend=placed[key], reason="place-free"))
        return found
