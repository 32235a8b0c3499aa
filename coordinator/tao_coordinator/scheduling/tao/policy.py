"""Resident bypass, joint placement of held sessions, bounded waiting.

1. *Bypass*. A session whose cache is still where its seat is goes at once, whatever the budget
   says, as long as the pool holds it beside the calls in flight. Parallel calls of one session
   share its seat. A cache that only the host tier still has is as good: a reload is short.
2. *Stage 1* (`started`). Held started sessions compete jointly for what the budgets leave; overdue
   ones lead the objective. While an overdue one stays unplaced, nobody else is admitted where it
   could run.
3. *Bounds* (`bounds`). An overdue session that found no place may be forced in, at most a share phi
   of a backend's time; past the hard bound it is forced in regardless.
4. *Stage 2* (`arrivals`). New sessions in arrival order (tenants take turns, priority inside a
   tenant), each to the backend with the most room, stopping at the first that does not fit. While a
   plan is being made beside the loop they wait for what it leaves.

A seat weighs its tokens plus a reserve for growth; a new session also has to leave room for a share
nu of the released seats, which may come back. Source: DESIGN section 7.4 and the policy study,
section 5.
"""

from collections import Counter

from tao_coordinator.core import host_seats
from tao_coordinator.core.effects import SolvePlan
from tao_coordinator.core.events import PlanSolved
from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.plans import PlanLog
from tao_coordinator.core.state import State
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.tao import arrivals, release
from tao_coordinator.scheduling.tao.bounds import force
from tao_coordinator.scheduling.tao.room import Room, is_overdue
from tao_coordinator.scheduling.tao.started import Place, StartedSessions, place_instantly


class Tao:
    """Joint placement with resident bypass and bounded waiting."""

    name = "tao"

    def __init__(
        self,
        readiness: ReadinessPredictor,
        *,
        loop_pairs_max: int | None = None,
        place: Place = place_instantly,
    ) -> None:
        """Decide on what `readiness` says, which the engine feeds.

        Args:
            readiness: predictor.
            loop_pairs_max: problems with more pairs of session and backend are asked for
                (`take_question`) and answered later; `None`: everything is decided at once.
            place: makes the plans within a step; another one is for comparisons.
        """
        self.readiness = readiness
        self.plans = PlanLog()
        self._idle = release.IdleSeats(readiness)
        self.place = place
        self._started = StartedSessions(self.plans, loop_pairs_max, place)

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Bypass for residents; everybody else queues, if only for this one step."""
        if state.typical.passes_through:
            return self._pass_through(state, turn, Counter())
        session = turn.session
        if session.seat is not None:
            backend = state.backends[session.seat.backend_id]
            if backend.usable and backend.serves(session.key.model):
                reason = self._bypass_reason(state, turn, backend)
                if reason is not None:
                    return Assignment(turn=turn, backend=backend, reason=reason, keeps_pool=True)
        return None

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """Idle seats whose price is too high, while anybody waits for room."""
        if not state.held:
            return []
        return self._idle.not_worth_keeping(state, now_s)

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Stage 1, bounds, stage 2."""
        if state.typical.passes_through:
            given: Counter[str] = Counter()
            passed = [self._pass_through(state, turn, given) for turn in state.held.values()]
            return [assignment for assignment in passed if assignment is not None]
        room = Room(state)
        turns = sorted(state.held.values(), key=lambda turn: turn.arrived_s)
        started = [turn for turn in turns if turn.session.is_started]
        placed = self._started.place(state, started, room, now_s)
        is_planning = placed is None
        placed = placed or []
        done = {assignment.turn.request_id for assignment in placed}
        unplaced = [turn for turn in started if turn.request_id not in done]
        overdue = [turn for turn in unplaced if is_overdue(state, turn, now_s)]
        forced = force(state, overdue, room, now_s, only_hard=is_planning)
        forced_ids = {assignment.turn.request_id for assignment in forced}
        stuck = [turn for turn in unplaced if turn.request_id not in forced_ids]
        found = placed + forced
        if not is_planning:
            room.wait_for_nobody()
            for turn in stuck:
                behind = len(stuck) >= state.parameters.overtake_limit
                home = state.backends.get(turn.session.last_backend_id or "")
                # Above a host tier the pool is then full of running calls: one more adds nothing.
                is_full = home is not None and home.tier is not None
                if behind or is_full or is_overdue(state, turn, now_s):
                    room.wait_for(turn)
            if not stuck:
                room.open_all_to_new()
            new = [turn for turn in turns if not turn.session.is_started]
            found += arrivals.admit(state, new, room)
        self._started.look_ahead(state, stuck, room, now_s)
        return found

    def take_question(self) -> SolvePlan | None:
        """A plan to be made beside the loop, once."""
        return self._started.take_question()

    def answer(self, solved: PlanSolved) -> None:
        """The plan that was asked for, or that there is none."""
        self._started.answer(solved)

    @staticmethod
    def _pass_through(state: State, turn: Turn, given: Counter[str]) -> Assignment | None:
        """Without reuse: home where it is resident, else where least is in flight.

        `given`: tokens that go along with the turns before it in this step, by backend.
        """
        eligible = state.eligible_for(turn)
        if not eligible:
            return None
        backend = max(
            eligible,
            key=lambda b: (
                turn.session.is_started and state.is_resident(turn.session, b),
                -b.cache.in_flight_tokens - given[b.backend_id],
            ),
        )
        given[backend.backend_id] += state.need_tokens(turn, backend)
        return Assignment(turn=turn, backend=backend, reason="pass-through")

    # --- bypass ----------------------------------------------------------------------------------

    @staticmethod
    def _bypass_reason(state: State, turn: Turn, backend: Backend) -> str | None:
        session = turn.session
        pool = state.pool_tokens(backend)
        need = state.need_tokens(turn, backend)
        running = bool(session.lease_ids)
        own = backend.cache.resident_tokens(session.key) if running else 0
        if pool is not None and backend.cache.in_flight_tokens + max(0, need - own) > pool:
            return None
        if running:
            return "parallel"
        if not state.is_resident(session, backend):
            return None
        return "reload" if host_seats.has_to_reload(state, session, backend) else "resident"
