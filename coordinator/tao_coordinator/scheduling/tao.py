"""The default policy: resident bypass, joint placement of held sessions, bounded waiting.

1. *Bypass*. A session whose cache is still where its seat is goes at once, whatever the budget
   says, as long as the pool holds it beside the calls in flight. Parallel calls of one session
   share its seat.
2. *Stage 1*. Held started sessions compete jointly (`cohen_katz_raz`) for what the budgets leave;
   overdue ones lead the objective. While an overdue one stays unplaced, nobody else is admitted.
3. *Bounds*. An overdue session that found no place may be forced in, at most a share phi of a
   backend's time; past the hard bound it is forced in regardless.
4. *Stage 2*. New sessions in arrival order (tenants take turns, priority inside a tenant), each to
   the backend with the most room, stopping at the first that does not fit.

A seat weighs its tokens plus a reserve for growth; a new session also has to leave room for a share
nu of the released seats, which may come back. Source: DESIGN section 7.4 and the policy study,
section 5.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.state import State
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.scheduling import release
from tao_coordinator.scheduling.placement import INSTANT, PlacementProblem, solve
from tao_coordinator.scheduling.policy import Assignment

UNLIMITED_TOKENS = 1 << 40
"""Room of a backend whose capacity nobody knows: it is warned about, and holds nobody."""
COMPETING_MAX = 256
"""Held started turns that enter one placement problem; the rest waits for the next."""


@dataclass(slots=True)
class Room:
    """What is left on the eligible backends while one decision is put together."""

    state: State
    left: dict[str, int] = field(default_factory=dict[str, int])
    needs: dict[str, int] = field(default_factory=dict[str, int])
    """Tokens of the assignments so far, by backend."""
    waited_for: set[str] = field(default_factory=set[str])
    """Backends that a turn ahead in the queue waits for: nobody behind it may take their room."""

    def __post_init__(self) -> None:
        """Read the budgets once."""
        for backend in self.state.backends.values():
            budget = self.state.budget_tokens(backend)
            committed = self.state.committed_tokens(backend)
            # What runs counts in full, even where a seat has moved on without it.
            used = max(committed, backend.cache.in_flight_tokens)
            self.left[backend.backend_id] = UNLIMITED_TOKENS if budget is None else budget - used

    def take(self, backend: Backend, need: int, growth: int = 0) -> None:
        """Count an assignment: what it needs, and what is reserved beside it."""
        name = backend.backend_id
        self.left[name] -= need + growth
        self.needs[name] = self.needs.get(name, 0) + need

    def wait_for(self, turn: Turn) -> None:
        """The turn found no place: what frees up where it could run is for it."""
        self.waited_for.update(
            b.backend_id for b in self.state.eligible_beside_running(turn.session)
        )

    def is_untouched(self, backend: Backend) -> bool:
        """Nothing was assigned to it yet."""
        return backend.backend_id not in self.needs

    def fits_pool(self, backend: Backend, need: int) -> bool:
        """Beside the calls in flight and what was assigned already, whatever the budget says."""
        pool = self.state.pool_tokens(backend)
        in_flight = backend.cache.in_flight_tokens + self.needs.get(backend.backend_id, 0)
        return pool is None or in_flight + need <= pool


class Tao:
    """Joint placement with resident bypass and bounded waiting."""

    name = "tao"

    def __init__(self, readiness: ReadinessPredictor) -> None:
        """Decide on what `readiness` says, which the engine feeds."""
        self.readiness = readiness
        self._idle = release.IdleSeats(readiness)

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """Bypass for residents; everybody else queues, if only for this one step."""
        if state.typical.passes_through:
            return self._pass_through(state, turn)
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
            passed = [self._pass_through(state, turn) for turn in state.held.values()]
            return [assignment for assignment in passed if assignment is not None]
        room = Room(state)
        turns = sorted(state.held.values(), key=lambda turn: turn.arrived_s)
        started = [turn for turn in turns if turn.session.is_started]
        placed = self._place_started(state, started, room, now_s)
        done = {assignment.turn.request_id for assignment in placed}
        unplaced = [turn for turn in started if turn.request_id not in done]
        overdue = [turn for turn in unplaced if is_overdue(state, turn, now_s)]
        forced = self._force(state, overdue, room, now_s)
        forced_ids = {assignment.turn.request_id for assignment in forced}
        stuck = [turn for turn in unplaced if turn.request_id not in forced_ids]
        room.waited_for.clear()
        for turn in stuck:
            behind = len(stuck) >= state.parameters.overtake_limit
            if behind or is_overdue(state, turn, now_s):
                room.wait_for(turn)
        new = [turn for turn in turns if not turn.session.is_started]
        return placed + forced + self._admit_new(state, new, room)

    @staticmethod
    def _pass_through(state: State, turn: Turn) -> Assignment | None:
        """Without reuse: home where it is resident, else where least is in flight."""
        eligible = state.eligible_beside_running(turn.session)
        if not eligible:
            return None
        backend = max(
            eligible,
            key=lambda b: (
                turn.session.is_started and state.is_resident(turn.session, b),
                -b.cache.in_flight_tokens,
            ),
        )
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
        return "resident" if state.is_resident(session, backend) else None

    # --- stage 1 ---------------------------------------------------------------------------------

    def _place_started(
        self, state: State, started: list[Turn], room: Room, now_s: float
    ) -> list[Assignment]:
        if not started:
            return []
        # Overdue ones first, so that the limit on the problem's size never hides them.
        late = {t.request_id for t in started if is_overdue(state, t, now_s)}
        competing = sorted(started, key=lambda t: t.request_id not in late)[:COMPETING_MAX]
        backends = [b for b in state.backends.values() if b.usable]
        if not backends:
            return []
        problem = _problem(state, competing, backends, room, late)
        placement = solve(problem, INSTANT)
        indices: list[int] = placement.backend_of.tolist()
        chosen = [(turn, backends[b]) for turn, b in zip(competing, indices, strict=True) if b >= 0]
        placed_ids = {turn.request_id for turn, _ in chosen}
        for turn in competing:
            if turn.request_id in late and turn.request_id not in placed_ids:
                room.wait_for(turn)
        # Nobody overtakes an overdue session.
        chosen = [
            (turn, backend)
            for turn, backend in chosen
            if turn.request_id in late or backend.backend_id not in room.waited_for
        ]
        assignments = [self._planned(state, turn, backend, room) for turn, backend in chosen]
        return assignments + self._place_alone(state, competing, placed_ids, room)

    @staticmethod
    def _planned(state: State, turn: Turn, backend: Backend, room: Room) -> Assignment:
        room.take(backend, state.need_tokens(turn, backend), state.growth_tokens())
        return Assignment(
            turn=turn,
            backend=backend,
            reason="planned",
            is_planned=True,
            keeps_pool=True,
            keeps_budget=True,
        )

    @staticmethod
    def _place_alone(
        state: State, turns: list[Turn], placed_ids: set[str], room: Room
    ) -> list[Assignment]:
        """A session that no budget can ever hold gets an empty backend to itself."""
        found: list[Assignment] = []
        for turn in turns:
            if turn.request_id in placed_ids or not is_oversize(state, turn):
                continue
            for backend in state.eligible_beside_running(turn.session):
                waited_for = backend.backend_id in room.waited_for
                if backend.is_empty and room.is_untouched(backend) and not waited_for:
                    room.take(backend, state.need_tokens(turn, backend))
                    found.append(Assignment(turn=turn, backend=backend, reason="alone"))
                    break
        return found

    # --- bounds ----------------------------------------------------------------------------------

    @staticmethod
    def _force(state: State, overdue: list[Turn], room: Room, now_s: float) -> list[Assignment]:
        found: list[Assignment] = []
        taken: set[str] = set()
        for turn in overdue:
            eligible = state.eligible_beside_running(turn.session)
            if not eligible:
                continue
            backend = _home_or_emptiest(state, turn, eligible, room)
            past_hard = now_s - turn.arrived_s >= state.parameters.hold_hard_s
            if not past_hard:
                fits = room.fits_pool(backend, state.need_tokens(turn, backend))
                if not fits or now_s < backend.next_forced_s or backend.backend_id in taken:
                    continue
                taken.add(backend.backend_id)
            room.take(backend, state.need_tokens(turn, backend), state.growth_tokens())
            found.append(
                Assignment(turn=turn, backend=backend, reason="forced", keeps_pool=not past_hard)
            )
        return found

    # --- stage 2 ---------------------------------------------------------------------------------

    def _admit_new(self, state: State, new: list[Turn], room: Room) -> list[Assignment]:
        queues: defaultdict[str, deque[Turn]] = defaultdict(deque)
        for turn in sorted(new, key=lambda t: (-t.session.priority, t.arrived_s)):
            queues[turn.session.tenant].append(turn)
        active = _active_roots(state, queues) if len(queues) > 1 else Counter[str]()
        found: list[Assignment] = []
        while queues:
            tenant = min(queues, key=lambda name: _claim(state, name, active, queues))
            turn = queues[tenant][0]
            assignment = self._place_new(state, turn, room)
            if assignment is None:
                # Nobody later takes the room it waits for; who can run elsewhere may.
                room.wait_for(turn)
                del queues[tenant]
                continue
            found.append(assignment)
            active[tenant] += 1
            queues[tenant].popleft()
            if not queues[tenant]:
                del queues[tenant]
        return found

    @staticmethod
    def _place_new(state: State, turn: Turn, room: Room) -> Assignment | None:
        growth = state.growth_tokens()
        weight = state.parameters.released_weight
        best: tuple[tuple[int, int], Backend] | None = None
        for backend in state.eligible_beside_running(turn.session):
            if backend.backend_id in room.waited_for:
                continue
            coming_back = int(weight * state.released_tokens(backend))
            left = room.left[backend.backend_id]
            if state.need_tokens(turn, backend) + growth + coming_back > left:
                continue
            # Near the parent where it fits, else where most room is left.
            rank = (state.credit_tokens(turn.session, backend), left)
            if best is None or rank > best[0]:
                best = (rank, backend)
        if best is not None:
            room.take(best[1], state.need_tokens(turn, best[1]), growth)
            return Assignment(
                turn=turn, backend=best[1], reason="planned", keeps_pool=True, keeps_budget=True
            )
        alone = Tao._place_alone(state, [turn], set(), room)
        return alone[0] if alone else None


def is_overdue(state: State, turn: Turn, now_s: float) -> bool:
    """A started session held longer than the soft bound."""
    return turn.session.is_started and now_s - turn.arrived_s >= state.parameters.hold_soft_s


def is_oversize(state: State, turn: Turn) -> bool:
    """No eligible backend's budget can ever hold this turn and its growth, though a pool can."""
    growth = state.growth_tokens()
    for backend in state.eligible_beside_running(turn.session):
        budget = state.budget_tokens(backend)
        if budget is None or state.need_tokens(turn, backend) + growth <= budget:
            return False
    return True


def _claim(
    state: State, tenant: str, active: Counter[str], queues: Mapping[str, deque[Turn]]
) -> tuple[float, float]:
    """Smallest goes first: seated root sessions over weight, then who has waited longest."""
    return (active[tenant] / state.tenant_weight(tenant), queues[tenant][0].arrived_s)


def _problem(
    state: State, turns: list[Turn], backends: list[Backend], room: Room, late: set[str]
) -> PlacementProblem:
    growth = state.growth_tokens()
    bucket = state.parameters.credit_bucket_tokens
    weights = [[state.need_tokens(t, b) + growth for b in backends] for t in turns]
    credits = [[state.credit_tokens(t.session, b) // bucket for b in backends] for t in turns]
    allowed = [{b.backend_id for b in state.eligible_beside_running(t.session)} for t in turns]
    eligible = [[b.backend_id in names for b in backends] for names in allowed]
    return PlacementProblem(
        weights=np.array(weights, np.int64),
        budgets=np.array([max(0, room.left[b.backend_id]) for b in backends], np.int64),
        classes=np.array([t.request_id in late for t in turns], np.int64),
        credits=np.array(credits, np.int64),
        ready=np.ones(len(turns), np.int64),  # a held turn is here: its session is ready
        tokens=np.array([t.input_tokens for t in turns], np.int64),
        eligible=np.array(eligible, bool),
    )


def _home_or_emptiest(state: State, turn: Turn, eligible: list[Backend], room: Room) -> Backend:
    for backend in eligible:
        if backend.backend_id == turn.session.last_backend_id and state.is_resident(
            turn.session, backend
        ):
            return backend
    return max(eligible, key=lambda b: room.left[b.backend_id])


def _active_roots(state: State, tenants: Mapping[str, deque[Turn]]) -> Counter[str]:
    roots = {
        (s.tenant, s.root_id)
        for s in state.sessions.values()
        if s.tenant in tenants and s.seat is not None and not s.seat.released
    }
    return Counter(tenant for tenant, _ in roots)
