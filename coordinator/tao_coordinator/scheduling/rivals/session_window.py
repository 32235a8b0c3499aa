"""A window of active sessions per backend: what both CONCUR policies turn.

A session has a home (the backend with the fewest sessions when it first asked). *Active* sessions
run freely, tools included; at most `window` of them per backend. Others wait in order of arrival.
When the window has shrunk, the newest active sessions leave, each at its next boundary between two
calls; calls in flight are never cut off. Who leaves is unpublished; newest first is our choice.
"""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field

from tao_coordinator.core.model import Backend, Session, SessionKey, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.rivals.notes import SessionNotes, is_live
from tao_coordinator.scheduling.rivals.pacing import Every


@dataclass(slots=True)
class Gate:
    """One backend's window and who is inside, in order of admission."""

    window: float
    active: dict[SessionKey, Session] = field(default_factory=dict[SessionKey, Session])

    def leaving(self) -> list[Session]:
        """The newest sessions that are too many."""
        excess = len(self.active) - int(self.window)
        return list(self.active.values())[-excess:] if excess > 0 else []


class SessionWindows(ABC):
    """Base of policies that hold by a window of active sessions."""

    name: str

    def __init__(self, *, interval_s: float, window_initial: float) -> None:
        """Adjust every `interval_s`, starting at `window_initial` sessions per backend."""
        self._clock = Every(interval_s)
        self._window_initial = window_initial
        self.gates: dict[str, Gate] = {}
        """By backend id."""
        self._homes: SessionNotes[str] = SessionNotes()
        """Backend ids."""

    @abstractmethod
    def adjust(self, state: State, backend: Backend, gate: Gate, now_s: float) -> None:
        """Set `gate.window` from what is seen now; called once per interval."""

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Active sessions go at once, unless this is the boundary at which they leave."""
        session = turn.session
        backend = self._home(state, session)
        if backend is None:
            return None
        gate = self._gate(backend)
        if gate.active.get(session.key) is not session:
            return None
        if not session.lease_ids and any(other is session for other in gate.leaving()):
            del gate.active[session.key]
            return None
        return Assignment(turn=turn, backend=backend, reason="active")

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """Adjust the windows when it is time; the idle sessions that had to leave."""
        self._forget(state)
        if self._clock.due(now_s, state.parameters):
            for backend in state.backends.values():
                if backend.usable:
                    self.adjust(state, backend, self._gate(backend), now_s)
        left: list[Session] = []
        for gate in self.gates.values():
            for session in gate.leaving():
                if not session.lease_ids:
                    del gate.active[session.key]
                    left.append(session)
        return [s for s in left if s.seat is not None and not s.seat.released]

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """In order of arrival at each home, while its window has room."""
        self._forget(state)
        found: list[Assignment] = []
        # A window that is full stays full on the way: nobody overtakes at the same home.
        for turn in state.held.values():
            session = turn.session
            backend = self._home(state, session)
            if backend is None:
                continue
            gate = self._gate(backend)
            if session.key not in gate.active:
                if len(gate.active) >= int(gate.window):
                    continue
                gate.active[session.key] = session
            found.append(Assignment(turn=turn, backend=backend, reason="window"))
        return found

    def _gate(self, backend: Backend) -> Gate:
        gate = self.gates.get(backend.backend_id)
        if gate is None:
            gate = self.gates[backend.backend_id] = Gate(self._window_initial)
        return gate

    def _home(self, state: State, session: Session) -> Backend | None:
        """The session's backend, chosen when there is none or it cannot be used any more."""
        home_id = self._homes.get(session)
        home = state.backends.get(home_id or "")
        if home is not None and home.usable and home.serves(session.key.model):
            return home
        if home_id is not None and home_id in self.gates:
            self.gates[home_id].active.pop(session.key, None)
        eligible = state.eligible(session)
        if not eligible:
            return None
        self._homes.sweep(state)
        count = Counter(home_id for _, home_id in self._homes)
        chosen = min(eligible, key=lambda b: count[b.backend_id])
        self._homes.put(session, chosen.backend_id)
        return chosen

    def _forget(self, state: State) -> None:
        self._homes.sweep(state)
        for name, gate in list(self.gates.items()):
            if name not in state.backends:
                del self.gates[name]
                continue
            for key, session in list(gate.active.items()):
                if not is_live(state, session):
                    del gate.active[key]
