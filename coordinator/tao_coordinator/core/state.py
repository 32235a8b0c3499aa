"""All live state of the engine and its look-ups; the invariants are asserted in `check`.

Three dictionaries carry everything: sessions (with their seats), held turns in arrival order,
leases. Memory is bounded by live sessions: ended and long idle ones are dropped by `core.expiry`.
"""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from tao_coordinator.core.effects import Reject
from tao_coordinator.core.eligibility import Eligibility
from tao_coordinator.core.growth import SessionGrowth
from tao_coordinator.core.model import (
    Activity,
    Backend,
    Lease,
    Session,
    SessionKey,
    ToolCall,
    Turn,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.queue_pace import QueuePace
from tao_coordinator.core.shadow_cache import ShadowCache
from tao_coordinator.core.turn_cycle import TurnCycle

UNLIMITED_TOKENS = 1 << 40
"""Where nobody knows a capacity: it is warned about, and nobody is held for its sake."""
FINISHED_MAX = 65_536
"""Request ids remembered after they are over, so that a late repeat gets no second lease."""


@dataclass(slots=True)
class Totals:
    """Counts since start; see `core.observation.Counters` for their meaning."""

    granted: Counter[str] = field(default_factory=Counter[str])
    rejected: Counter[str] = field(default_factory=Counter[str])
    released: Counter[str] = field(default_factory=Counter[str])
    abandoned: int = 0
    seats_released: int = 0
    tool_starts: int = 0
    tool_ends: int = 0
    tools_expired: int = 0
    hold_s_sum: float = 0.0
    hold_started_s_max: float = 0.0
    hold_new_s_max: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    served_elsewhere: int = 0
    """Turns that a gateway sent to another backend than the planned one."""


@dataclass(slots=True)
class Typical:
    """Exponentially weighted averages over all turns; gains and priors from the policy study."""

    output_tokens: float = 300.0
    """Output of one turn."""
    growth_tokens: float = 1200.0
    """Growth of a session's context per turn, clipped."""
    p_continues: float = 0.97
    """Probability that a session goes on after a reply."""
    prediction_quality: float = 1.0
    """Share of the tokens predicted from shallow chains that were found cached."""
    passes_through: bool = False
    """The gate for traffic without reuse is open."""
    session_s: float | None = None
    """From a session's first lease to its end; `None`: none has ended yet."""
    turns_mean: float = 25.0
    """Turns per ended session."""
    turns_square_mean: float = 625.0

    def remaining_turns(self) -> float:
        """Expected further turns of a session, looked at after a random one of its turns.

        E[N^2] / (2 E[N]) - 1/2 for N turns per session: half of what is left of sessions that are
        all alike, more where lengths differ (a random turn lies in a long session more often), and
        0 for single calls.
        """
        return max(0.0, self.turns_square_mean / (2.0 * self.turns_mean) - 0.5)

    def growth_reserve_tokens(self, turns: float) -> int:
        """Expected further growth of a seated session, over at most `turns` turns."""
        return int(self.growth_tokens * min(turns, self.remaining_turns()))


class State:
    """Sessions, held turns, leases, backends; plus what was learned across them."""

    def __init__(self, parameters: Parameters, lease_prefix: str = "l") -> None:
        """Start empty."""
        self.parameters = parameters
        self.lease_prefix = lease_prefix
        self._tenant_weights = dict(parameters.tenant_weights)
        self.backends: dict[str, Backend] = {}
        self.eligibility = Eligibility(self.backends)
        self.sessions: dict[SessionKey, Session] = {}
        self.keys_by_id: dict[str, set[SessionKey]] = {}
        self.activities: dict[str, Activity] = {}
        self.held: dict[str, Turn] = {}
        self.leases: dict[str, Lease] = {}
        self.lease_by_request: dict[str, str] = {}
        self.finished: OrderedDict[str, Reject | None] = OrderedDict()
        """Requests that are over, and the refusal that ended them; `None`: they had a lease."""
        self.growth = SessionGrowth()
        self.cycle = TurnCycle()
        self._growth_limit_tokens = UNLIMITED_TOKENS
        self.growth_peak_tokens = UNLIMITED_TOKENS
        """Reserve beside each seat, as of the last look (`core.reserve`)."""
        self.host_growth_tokens = 0
        """Growth kept free in host tiers beside each session that they keep (`core.host_seats`)."""
        self.totals = Totals()
        self.typical = Typical()
        self.num_leases = 0
        self.replies_ended: list[str] = []
        """Ids of sessions whose last running call has ended since the engine last looked."""
        self.ids_gone: list[str] = []
        """Session ids forgotten since the engine last looked."""
        self.pace_started = QueuePace()
        self.pace_new = QueuePace()
        self.num_held_started = 0
        """As of the last tick."""
        self.seat_free_interval_s = 1.0
        """Time between two seats given up for good, as far as one can tell without a queue."""

    # --- look-ups --------------------------------------------------------------------------------

    def pool_tokens(self, backend: Backend) -> int | None:
        """Private tokens the whole pool can hold; `None` while the capacity is unknown.

        Reported capacity times the controller's factor gamma, minus the shared prefix and what
        others than the coordinator's sessions have in flight there. With a host tier replies tell
        of both tiers together: gamma corrects the larger one, in `host_tokens`.
        """
        capacity = backend.capacity_tokens
        if capacity is None:
            return None
        factor = 1.0 if backend.tier else backend.capacity_factor
        left = int(factor * capacity) - backend.shared_prefix.tokens - backend.foreign.tokens
        return left if left > 0 else 0

    def host_tokens(self, backend: Backend) -> int:
        """Private tokens that the host tier can hold; 0 without one."""
        if backend.host is None:
            return 0
        held = int(backend.capacity_factor * backend.host.tokens)
        return max(0, held - backend.shared_prefix.tokens)

    def caches(self, backend: Backend) -> list[tuple[ShadowCache, int | None]]:
        """The predicted contents of its tiers and the private tokens that each can hold."""
        pool = (backend.cache, self.pool_tokens(backend))
        host = backend.host
        return [pool] if host is None else [pool, (host.cache, self.host_tokens(backend))]

    def budget_tokens(self, backend: Backend) -> int | None:
        """Private tokens that planned grants may commit, growth included."""
        pool = self.pool_tokens(backend)
        return None if pool is None else int(pool * self.parameters.budget_ratio)

    def growth_tokens(self) -> int:
        """Growth reserved beside each unreleased seat: its own, less where many seats pool it.

        The smallest pool bounds it too.
        """
        reserve = self.typical.growth_reserve_tokens(self.parameters.growth_turns)
        return min(reserve, self._growth_limit_tokens, self.growth_peak_tokens)

    def fleet_changed(self) -> None:
        """Backends came, went, or changed what they can take: look at them anew."""
        self.eligibility.fleet_changed()
        # No reserve is larger than its share of the smallest capacity.
        known = [b.capacity_tokens for b in self.backends.values() if b.capacity_tokens]
        share = self.parameters.growth_pool_ratio
        self._growth_limit_tokens = int(share * min(known)) if known else UNLIMITED_TOKENS

    def growth_beside(self, backend: Backend) -> int:
        """The same on this backend: none where what outgrows the pool is loaded again."""
        return 0 if backend.tier else self.growth_tokens()

    def committed_tokens(self, backend: Backend) -> int:
        """Unreleased seats and their growth."""
        return backend.committed_tokens + backend.num_committed * self.growth_beside(backend)

    def released_tokens(self, backend: Backend) -> int:
        """Released seats and their growth: what may come back at any moment."""
        return backend.released_tokens + backend.num_released * self.growth_beside(backend)

    def private_tokens(self, session: Session, backend: Backend) -> int:
        """The session's context without what it shares with others on this backend."""
        return max(0, session.context_tokens - self.shared_tokens(session, backend))

    def need_tokens(self, turn: Turn, backend: Backend) -> int:
        """Private tokens of the coming prompt plus its expected output."""
        shared = self.shared_tokens(turn.session, backend)
        return max(0, turn.input_tokens - shared) + turn.output_tokens

    def resident_tokens(self, session: Session, backend: Backend) -> int:
        """Cache credit k: private tokens of the session that are cached on this backend.

        As the engine's own events say, where they say anything of this session; else as predicted.
        """
        predicted = self.predicted_tokens(session, backend)
        session_id = session.key.session_id
        seen = backend.seen_tokens.get(session_id)
        if seen is None or session.last_backend_id != backend.backend_id:
            return predicted
        if len(self.keys_by_id.get(session_id, ())) > 1:
            return predicted  # the events do not tell the agents of one session apart
        if backend.tier is not None:  # the events tell of the pool only
            below = backend.tier.cache.resident_tokens(session.key)
            seen = max(seen, below + self.shared_tokens(session, backend))
        private = max(0, seen - self.shared_tokens(session, backend))
        return min(private, self.private_tokens(session, backend))

    def predicted_tokens(self, session: Session, backend: Backend) -> int:
        """Private tokens of the session predicted to be cached on this backend, in either tier.

        Only the newest prefix earns credit; what an older home still holds is out of date.
        """
        if session.last_backend_id != backend.backend_id:
            return 0
        pool = backend.cache.resident_tokens(session.key)
        tier = backend.tier
        return pool if tier is None else max(pool, tier.cache.resident_tokens(session.key))

    def credit_tokens(self, session: Session, backend: Backend) -> int:
        """Credit for placement: a session's own, before its first turn that of its parent.

        A sub-agent's first call goes near its parent, whose prefix it may share; how much of it is
        not known before the engine has told.
        """
        if session.is_started or session.parent_id is None:
            return self.resident_tokens(session, backend)
        parents = [p for p in self.of_id(session.parent_id) if p.key.model == session.key.model]
        return max((self.resident_tokens(parent, backend) for parent in parents), default=0)

    def tenant_weight(self, tenant: str) -> float:
        """Share of the fleet that a tenant is entitled to, beside the others' weights."""
        return self._tenant_weights.get(tenant, 1.0)

    def is_resident(self, session: Session, backend: Backend) -> bool:
        """At least `resident_ratio` of its private context is predicted to be in either tier."""
        return self.is_most(session, backend, self.resident_tokens(session, backend))

    def is_most(self, session: Session, backend: Backend, tokens: int) -> bool:
        """Whether so many tokens are at least `resident_ratio` of its private context."""
        private = max(1, self.private_tokens(session, backend))
        return tokens >= self.parameters.resident_ratio * private

    @staticmethod
    def shared_tokens(session: Session, backend: Backend) -> int:
        """Leading tokens that the session has in common with others on this backend."""
        told = session.shared_prefix_tokens
        # A prefix counts once per backend only as far as the backend is known to share it.
        learned = backend.shared_prefix.tokens
        return learned if told is None else min(told, learned)

    def eligible(self, session: Session) -> list[Backend]:
        """Backends that may get this session's next turn; the list is not to be changed."""
        return self.eligibility.of(session.key.model).backends

    def eligible_beside_running(self, session: Session) -> list[Backend]:
        """The same, but parallel calls share a seat, hence its backend while that is usable."""
        if session.lease_ids and session.seat is not None:
            home = self.backends[session.seat.backend_id]
            if home.usable and home.serves(session.key.model):
                return [home]
        return self.eligible(session)

    def eligible_for(self, turn: Turn) -> list[Backend]:
        """The same, where the prompt fits the whole pool: elsewhere the engine would refuse it.

        Of these the ones that did not miss their last poll, if there are any.
        """
        beside = self.eligible_beside_running(turn.session)
        of_model = self.eligibility.of(turn.session.key.model)
        if len(beside) == 1 and any(b is beside[0] for b in of_model.fitting(turn.input_tokens)):
            return beside
        return of_model.preferred(turn.input_tokens)

    def activity(self, session_id: str) -> Activity:
        """Tools and waits of a session id; made on first use."""
        found = self.activities.get(session_id)
        if found is None:
            found = self.activities[session_id] = Activity()
        return found

    def blocking_tools(self, session_id: str) -> list[ToolCall]:
        """Open tool calls that the session waits for."""
        found = self.activities.get(session_id)
        return [] if found is None else [t for t in found.open_tools.values() if not t.background]

    # --- the queue -------------------------------------------------------------------------------

    def see_queue(self, now_s: float) -> None:
        """Keep the paces of both queues up to date; O(sessions)."""
        self.num_held_started = sum(t.session.is_started for t in self.held.values())
        self.pace_started.see(now_s, self.num_held_started)
        self.pace_new.see(now_s, len(self.held) - self.num_held_started)
        ages_s = [
            now_s - s.admitted_s
            for s in self.sessions.values()
            if s.admitted_s is not None and s.seat is not None and not s.seat.released
        ]
        if ages_s:
            # A session met by chance is, on average, halfway through.
            known_s = self.typical.session_s or 2.0 * sum(ages_s) / len(ages_s)
            self.seat_free_interval_s = known_s / len(ages_s)

    def estimated_wait_s(self, position: int, *, is_started: bool) -> float:
        """Until the turn at `position` (from 1) of its own queue gets its lease."""
        if not is_started:
            return self.pace_new.wait_s(position, self.seat_free_interval_s)
        soft_s = self.parameters.hold_soft_s
        return self.pace_started.wait_s(position, min(self.seat_free_interval_s, soft_s / 4.0))

    # --- sessions --------------------------------------------------------------------------------

    def session(
        self,
        key: SessionKey,
        now_s: float,
        *,
        root_id: str | None = None,
        parent_id: str | None = None,
        tenant: str = "",
        priority: int = 0,
    ) -> Session:
        """Find or make a session and mark it active."""
        found = self.sessions.get(key) or self._adopt(key)
        if found is None:
            found = Session(
                key=key,
                root_id=root_id or key.session_id,
                parent_id=parent_id,
                tenant=tenant,
                priority=priority,
                last_activity_s=now_s,
            )
            self.sessions[key] = found
            self.keys_by_id.setdefault(key.session_id, set()).add(key)
        if root_id is not None:
            found.root_id = root_id
        if parent_id is not None:
            found.parent_id = parent_id
        found.tenant = tenant or found.tenant
        found.last_activity_s = now_s
        found.ended = False  # a session that was told to be over, and asks again, is not
        return found

    def _adopt(self, key: SessionKey) -> Session | None:
        """The session that an event without a model announced, now that its model is known."""
        for agent in (key.agent, ""):
            blank = self.sessions.get(SessionKey(key.session_id, agent, ""))
            if blank is not None and blank.turns == 0 and not (blank.lease_ids or blank.held_ids):
                del self.sessions[blank.key]
                self.keys_by_id[key.session_id].discard(blank.key)
                blank.key = key
                self.sessions[key] = blank
                self.keys_by_id[key.session_id].add(key)
                return blank
        return None

    def of_id(self, session_id: str) -> list[Session]:
        """All sessions (agents, models) of one session id."""
        return [self.sessions[key] for key in self.keys_by_id.get(session_id, ())]

    def forget(self, session: Session) -> None:
        """Drop a session that has neither seat nor call; its cached chain stays in the shadow."""
        assert session.seat is None and not session.lease_ids and not session.held_ids
        del self.sessions[session.key]
        keys = self.keys_by_id[session.key.session_id]
        keys.discard(session.key)
        if not keys:
            del self.keys_by_id[session.key.session_id]
            self.activities.pop(session.key.session_id, None)
            self.ids_gone.append(session.key.session_id)

    def finish_request(self, request_id: str, refusal: Reject | None = None) -> None:
        """Remember that this request had its one lease, or why it got none."""
        self.finished[request_id] = refusal
        while len(self.finished) > FINISHED_MAX:
            self.finished.popitem(last=False)
