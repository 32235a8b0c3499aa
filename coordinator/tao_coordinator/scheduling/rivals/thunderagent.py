"""Pause and resume by token counts, on a loop of 5 s, blind to caches and to tools.

Original: ThunderAgent `main` @ a7eef77, `scheduler/router.py` and `backend/state.py`, mode `tr`.
A session is *reasoning* while it has a call running or waiting and *acting* otherwise; it is on one
backend or *paused* in one pool for the whole fleet.

    used(b)      = reasoning tokens + acting_weight * acting tokens + buffer * sessions on b
    remaining(b) = capacity - used(b)

- A new session goes at once to the backend with the fewest tokens among those with room for it, but
  only while nobody at all is paused; else it joins the pool.
- Every 5 s: *resume*, then *pause*.
  Resume: pool sorted by tokens (as of the pause), waiting sessions first, then those in their
  first turn, then idle ones; take all whose sum fits the room of the whole fleet; place them
  largest first onto the backend with most room ("best fit decreasing", in fact worst fit),
  wherever they came from.
  Pause, where remaining < 0: acting sessions smallest first; if that is not enough, *all* reasoning
  ones are marked and paused when their call ends, since the loop tests `remaining`, which marking
  does not change (`future_paused_tokens` is kept but never read by the loop).
- A turn held for 1,800 s is forced through to where its session was paused.

`shared_tokens` is subtracted from `used` there, but nothing ever sets it: it is 0 and left out.
With `uses_decay`, resuming counts acting tokens as tokens * 2^-(seconds idle) while pausing counts
them in full: the same sessions are resumed and paused again, each time perhaps elsewhere.
"""

from dataclasses import dataclass

from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.rivals.notes import SessionNotes
from tao_coordinator.scheduling.rivals.pacing import Every, engine_second_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ThunderAgentParameters:
    """Defaults of its command line and constants of its code."""

    interval_s: float = 5.0
    """`--scheduler-interval`."""
    acting_weight: float = 1.0
    """`--acting-token-weight`."""
    uses_decay: bool = False
    """`--use-acting-token-decay`."""
    acting_half_life_s: float = 1.0
    """Of the decay; 2^-t there."""
    buffer_tokens: int = 100
    """`BUFFER_PER_PROGRAM`."""
    forced_resume_s: float = 1800.0
    """`_wait_for_resume`."""


@dataclass(slots=True)
class Standing:
    """What the policy knows of one session."""

    asked_tokens: int = 0
    """Prompt of its latest call."""
    num_calls: int = 0
    backend_id: str | None = None
    """`None`: paused, or not placed yet."""
    origin_id: str | None = None
    """Where it was paused; `None`: it never was on a backend."""
    is_paused: bool = False
    paused_tokens: int = 0
    """Its size when it was paused: the pool's order."""
    is_marked: bool = False
    """To be paused when its call ends."""


@dataclass(slots=True)
class Load:
    """Sums over the sessions on one backend."""

    reasoning: int = 0
    acting: int = 0
    acting_decayed: float = 0.0
    num_sessions: int = 0


def is_acting(session: Session) -> bool:
    """No call running and none waiting."""
    return not session.lease_ids and not session.held_ids


def size_tokens(session: Session, standing: Standing) -> int:
    """Prompt while a call runs or waits, prompt + output of the last reply otherwise."""
    if is_acting(session):
        return session.context_tokens or standing.asked_tokens
    return standing.asked_tokens


class ThunderAgent:
    """Admission by size: smallest first in, smallest first out."""

    def __init__(self, parameters: ThunderAgentParameters | None = None) -> None:
        """Decide by `parameters`."""
        self.parameters = parameters or ThunderAgentParameters()
        self.name = "thunderagent-decay" if self.parameters.uses_decay else "thunderagent"
        self._clock = Every(self.parameters.interval_s)
        self._standings: SessionNotes[Standing] = SessionNotes()

    # --- protocol --------------------------------------------------------------------------------

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """At once when its session is on a backend, or is new and meets no queue."""
        session = turn.session
        standing = self._standings.get(session)
        if standing is None:
            standing = self._standings.put(session, Standing())
        if standing.is_marked and not session.lease_ids:
            self._pause(session, standing)
        standing.num_calls += 1
        standing.asked_tokens = turn.input_tokens
        if standing.is_paused:
            return None
        backend = self._home(state, session, standing)
        if backend is not None:
            return Assignment(turn=turn, backend=backend, reason="sticky")
        self._standings.sweep(state)
        backend = self._room_for_new(state, session, standing, now_s)
        if backend is None:
            standing.backend_id, standing.is_paused = None, True
            standing.paused_tokens = turn.input_tokens
            return None
        standing.backend_id = backend.backend_id
        return Assignment(turn=turn, backend=backend, reason="new")

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """Runs the loop when it is due; the sessions that it paused."""
        self._standings.sweep(state)
        for session, standing in self._standings:
            if standing.is_marked and not session.lease_ids:
                self._pause(session, standing)
        if self._clock.due(now_s, state.parameters):
            self.resume_paused(state, now_s)
            self.pause_until_safe(state, now_s)
        return [
            session
            for session, standing in self._standings
            if standing.is_paused
            and session.seat is not None
            and not session.seat.released
            and not session.lease_ids
        ]

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Turns of sessions that were resumed, and those that waited too long."""
        limit_s = self.parameters.forced_resume_s * engine_second_s(state.parameters)
        found: list[Assignment] = []
        for turn in state.held.values():
            session = turn.session
            standing = self._standings.get(session)
            if standing is None:
                continue
            reason = "resumed"
            if standing.is_paused and now_s - turn.arrived_s >= limit_s:
                self._force(state, session, standing)
                reason = "forced-resume"
            backend = None if standing.is_paused else self._home(state, session, standing)
            if backend is not None:
                found.append(Assignment(turn=turn, backend=backend, reason=reason))
            elif not standing.is_paused:
                # Its backend went away before the call could go: back to the pool.
                standing.backend_id, standing.is_paused = None, True
                standing.paused_tokens = size_tokens(session, standing)
        return found

    @property
    def paused(self) -> list[Session]:
        """The pool, in no order."""
        return [session for session, standing in self._standings if standing.is_paused]

    # --- loop ------------------------------------------------------------------------------------

    def resume_paused(self, state: State, now_s: float) -> None:
        """Take from the pool what fits the fleet's room, largest onto the emptiest backend."""
        buffer = self.parameters.buffer_tokens
        rooms: list[tuple[Backend, int]] = []
        loads = self._loads(state, now_s)
        for backend in state.backends.values():
            if backend.usable and backend.capacity_tokens is not None:
                room = self._remaining(backend, loads[backend.backend_id], for_resume=True)
                if room > buffer:
                    rooms.append((backend, room))
        chosen = self._first_that_fit(sum(room for _, room in rooms))
        chosen.sort(key=lambda pair: -size_tokens(*pair))
        for session, standing in chosen:
            needed = size_tokens(session, standing) + buffer
            rooms.sort(key=lambda pair: -pair[1])
            model = session.key.model
            index = next((i for i, (b, _) in enumerate(rooms) if b.serves(model)), None)
            if index is None or needed > rooms[index][1]:
                continue  # smaller ones may fit still
            backend, room = rooms.pop(index)
            self._resume(standing, backend)
            if room - needed > buffer:
                rooms.append((backend, room - needed))

    def pause_until_safe(self, state: State, now_s: float) -> None:
        """Where more is used than there is, pause acting sessions; not enough: mark all others."""
        loads = self._loads(state, now_s)
        for backend in state.backends.values():
            if backend.capacity_tokens is None:
                continue
            load = loads[backend.backend_id]
            here = [(s, n) for s, n in self._standings if n.backend_id == backend.backend_id]
            acting = [(s, n) for s, n in here if is_acting(s)]
            for session, standing in sorted(acting, key=lambda pair: size_tokens(*pair)):
                if self._remaining(backend, load) >= 0:
                    break
                load.acting -= size_tokens(session, standing)
                load.num_sessions -= 1
                self._pause(session, standing)
            if self._remaining(backend, load) < 0:
                for session, standing in here:
                    standing.is_marked = standing.is_marked or not is_acting(session)

    def _first_that_fit(self, total_room: int) -> list[tuple[Session, Standing]]:
        pool = [(s, n) for s, n in self._standings if n.is_paused]
        pool.sort(key=lambda pair: (_group(*pair), pair[1].paused_tokens))
        chosen: list[tuple[Session, Standing]] = []
        taken = 0
        for session, standing in pool:
            needed = size_tokens(session, standing) + self.parameters.buffer_tokens
            if taken + needed <= total_room:
                chosen.append((session, standing))
                taken += needed
        return chosen

    def _loads(self, state: State, now_s: float) -> dict[str, Load]:
        half_life_s = self.parameters.acting_half_life_s * engine_second_s(state.parameters)
        loads = {name: Load() for name in state.backends}
        for session, standing in self._standings:
            load = loads.get(standing.backend_id or "")
            if load is None:
                continue
            load.num_sessions += 1
            tokens = size_tokens(session, standing)
            if not is_acting(session):
                load.reasoning += tokens
                continue
            load.acting += tokens
            if session.idle_since_s is not None:
                idle_s = now_s - session.idle_since_s
                load.acting_decayed += tokens * 2.0 ** (-idle_s / half_life_s)
        return loads

    def _remaining(self, backend: Backend, load: Load, *, for_resume: bool = False) -> int:
        """Room in tokens, negative when overfull; asked only where the capacity is known."""
        assert backend.capacity_tokens is not None
        parameters = self.parameters
        if for_resume and parameters.uses_decay:
            counted = int(load.reasoning + load.acting_decayed)
        else:
            counted = int(load.reasoning + parameters.acting_weight * load.acting)
        return backend.capacity_tokens - counted - parameters.buffer_tokens * load.num_sessions

    # --- one session -----------------------------------------------------------------------------

    @staticmethod
    def _home(state: State, session: Session, standing: Standing) -> Backend | None:
        backend = state.backends.get(standing.backend_id or "")
        if backend is None or not (backend.usable and backend.serves(session.key.model)):
            return None
        return backend

    def _room_for_new(
        self, state: State, session: Session, standing: Standing, now_s: float
    ) -> Backend | None:
        if any(other.is_paused for _, other in self._standings):
            return None
        standing.backend_id = None
        needed = standing.asked_tokens + self.parameters.buffer_tokens
        loads = self._loads(state, now_s)
        best: tuple[int, Backend] | None = None
        for backend in state.eligible(session):
            load = loads[backend.backend_id]
            if backend.capacity_tokens is not None and self._remaining(backend, load) < needed:
                continue
            active = int(load.reasoning + self.parameters.acting_weight * load.acting)
            if best is None or active < best[0]:
                best = (active, backend)
        return None if best is None else best[1]

    @staticmethod
    def _pause(session: Session, standing: Standing) -> None:
        standing.paused_tokens = size_tokens(session, standing)
        standing.origin_id, standing.backend_id = standing.backend_id, None
        standing.is_paused, standing.is_marked = True, False

    @staticmethod
    def _resume(standing: Standing, backend: Backend) -> None:
        standing.backend_id, standing.origin_id = backend.backend_id, None
        standing.is_paused = False

    def _force(self, state: State, session: Session, standing: Standing) -> None:
        eligible = state.eligible(session)
        if not eligible:
            return
        origin = [b for b in eligible if b.backend_id == standing.origin_id]
        counts = {b.backend_id: 0 for b in eligible}
        for _, other in self._standings:
            if other.backend_id in counts:
                counts[other.backend_id] += 1
        fewest = min(eligible, key=lambda b: counts[b.backend_id])
        self._resume(standing, origin[0] if origin else fewest)


def _group(session: Session, standing: Standing) -> int:
    """0: a call waits; 1: still in its first turn, idle or not; 2: idle."""
    if standing.num_calls == 1:
        return 1
    return 2 if is_acting(session) else 0
