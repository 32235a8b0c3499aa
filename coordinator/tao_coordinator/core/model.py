"""Live values of the engine: sessions, seats, leases, held turns, backends, tool calls.

Mutable and slotted: `core.state` and `core.ledger` are the only modules that write to them.
Policies read them. All times are seconds on the engine's monotonic clock, all sizes integer tokens.

Token words used throughout:
- *context*: prompt + output of a session's last reply, as the engine counted them;
- *private*: context minus the prefix that many sessions share on that backend;
- *need*: private tokens of the coming prompt plus the expected output;
- *growth*: what a seated session is expected to add before it ends, reserved beside its seat.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tao_coordinator.core.cache_reports import CacheReports
from tao_coordinator.core.effects import Receipt
from tao_coordinator.core.events import Headers
from tao_coordinator.core.evidence import CacheEvidence
from tao_coordinator.core.foreign_load import ForeignLoad
from tao_coordinator.core.host_tier import HostTier
from tao_coordinator.core.rates import BackendRates
from tao_coordinator.core.shadow_cache import ShadowCache


class SessionKey(NamedTuple):
    """What has one growing prompt: agents and models of one session id do not share theirs."""

    session_id: str
    agent: str
    model: str


@dataclass(slots=True)
class ToolCall:
    """One open tool call of a session id; when it will end is the predictor's business."""

    call_id: str
    name: str
    started_s: float
    expires_s: float
    """When the harness kills it, or when the coordinator stops believing in it."""
    background: bool


@dataclass(slots=True)
class Activity:
    """What is known of a session id outside its model calls; shared by its agents."""

    open_tools: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    waiting_for: str = ""
    """Reason of a `wait` that is no tool; empty: none."""


@dataclass(slots=True)
class Seat:
    """A session's tokens counted against one backend's budget."""

    backend_id: str
    tokens: int
    """Need while a call runs, private context while idle."""
    released: bool = False
    """Its room may be promised again; the cache may still be there."""
    given_up: bool = False
    """Released in the host tier too, or there is none: its room there may be promised again."""


@dataclass(slots=True)
class Session:
    """One agent run with a growing prompt."""

    key: SessionKey
    root_id: str
    parent_id: str | None
    tenant: str
    priority: int
    last_activity_s: float
    context_tokens: int = 0
    shared_prefix_tokens: int | None = None
    """As told by the SDK; `None`: the backend's learned value is used."""
    turns: int = 0
    seat: Seat | None = None
    lease_ids: set[str] = field(default_factory=set[str])
    """Calls in flight; several when the agent calls in parallel."""
    held_ids: set[str] = field(default_factory=set[str])
    queued_s: float | None = None
    """Since when it stands in line for its first turn, a refusal that told it to come again
    included; `None`: it never has."""
    place_kept_until_s: float = float("-inf")
    """Coming back by then, it has its old place in the line."""
    admitted_s: float | None = None
    """When it got its first lease."""
    last_backend_id: str | None = None
    idle_since_s: float | None = None
    """End of the last reply; `None` while a call is in flight or before the first."""
    completed_s: float = -1.0
    """When a call of it last completed; -1: never."""
    ended: bool = False

    @property
    def is_started(self) -> bool:
        """True once a turn was completed: there is a cache to lose."""
        return self.turns > 0


@dataclass(slots=True)
class Turn:
    """A model call that asked for a lease."""

    request_id: str
    session: Session
    arrived_s: float
    queued_s: float
    """Its place in the line: when it arrived, or a turn of it that was told to come again."""
    input_tokens: int
    output_tokens: int
    """Expected, at most the caller's own limit."""
    timeout_s: float | None
    poll_deadline_s: float | None = None
    """When the caller counts as gone; `None` while it is connected."""


@dataclass(slots=True)
class Lease:
    """The committed right of one turn to run on a backend."""

    lease_id: str
    request_id: str
    session: Session
    backend_id: str
    granted_s: float
    expires_s: float
    started: bool
    input_tokens: int
    need_tokens: int
    predicted_tokens: int
    """Private tokens predicted to be cached when the lease was granted."""
    chain_tokens: int
    """The same, with what lies beyond this prompt: more where the session's prompt was cut."""
    depth_ratio: float
    """Share of the pool that was newer in the LRU than its chain, the chain included."""
    was_first: bool
    """First turn of its session: what it finds cached is the shared prefix."""
    is_evidence: bool
    """What it finds cached says something about the capacity: its session's newest prefix was left
    on this backend, since the cache was last lost, and no other call of it was running."""
    receipt: Receipt | None = None
    """Why it was granted; told again when the caller asks again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A completed call, as far as what it found cached can teach something."""

    lease: Lease
    prompt_tokens: int
    grew: bool
    """The prompt is no shorter than the last context: it was not rewritten."""
    ttft_s: float | None
    ended_s: float


class SharedPrefix:
    """What first calls find cached on one backend: the prefix that sessions have in common."""

    __slots__ = ("_found", "tokens")

    def __init__(self) -> None:
        self._found: deque[int] = deque(maxlen=16)
        self.tokens = 0
        """The smallest count of the latest first calls; 0 until two of them agree."""

    def found(self, cached_tokens: int) -> None:
        """A first call has found so much cached."""
        self._found.append(cached_tokens)
        self.tokens = min(self._found) if len(self._found) >= 2 else 0


@dataclass(slots=True)
class Backend:
    """One engine replica with its own KV cache."""

    backend_id: str
    base_url: str
    capacity_override_tokens: int | None
    capacity_scale: float
    affinity_headers: Headers = ()
    served_by: Headers = ()
    capacity_reported_tokens: int | None = None
    models: tuple[str, ...] = ()
    healthy: bool = False
    draining: bool = False
    failures: int = 0
    """Failed polls in a row."""
    successes: int = 0
    """Good polls in a row since it was lost."""
    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None
    prefix_cache_queries_tokens: int | None = None
    prefix_cache_hits_tokens: int | None = None
    preemptions: int | None = None
    sampled_s: float | None = None
    foreign: ForeignLoad = field(default_factory=ForeignLoad)
    """Load that does not come through the coordinator."""
    cache: ShadowCache = field(default_factory=ShadowCache)
    """What is predicted to be cached in the pool."""
    host: HostTier | None = None
    """As told by the operator; see `tier`."""
    seen_tokens: dict[str, int] = field(default_factory=dict[str, int])
    """What the engine's own events say is cached, by session id, shared prefix included."""
    rates: BackendRates = field(default_factory=BackendRates)
    evidence: CacheEvidence = field(default_factory=CacheEvidence)
    """Another object where its capacity is to be estimated from the beginning."""
    capacity_factor: float = 1.0
    """gamma: what the capacity controller makes of the reported capacity."""
    shared_prefix: SharedPrefix = field(default_factory=SharedPrefix)
    prefix_cached_s: float | None = None
    """End of the first first call since the cache was empty: later ones may find its prefix."""
    cache_lost_s: float = -1.0
    """When its cache was last taken to be lost; -1: never."""
    reports: CacheReports[Reply] = field(default_factory=CacheReports[Reply])
    prompt_tokens: int = 0
    """Sum over the replies whose cached tokens are known, shared prefixes included."""
    cached_tokens: int = 0
    """Of these, found cached."""
    next_forced_s: float = 0.0
    # Sums over seats, kept up to date by the ledger (checked by core.invariants).
    committed_tokens: int = 0
    num_committed: int = 0
    released_tokens: int = 0
    num_released: int = 0
    given_up_tokens: int = 0
    """Of the released ones, those that are given up in the host tier too, if there is one."""
    num_given_up: int = 0

    @property
    def capacity_tokens(self) -> int | None:
        """KV pool after override and scale; `None`: unknown, then nothing is held for its sake."""
        tokens = self.capacity_override_tokens or self.capacity_reported_tokens
        return None if tokens is None else int(tokens * self.capacity_scale)

    @property
    def tier(self) -> HostTier | None:
        """The host tier where it holds more than the pool does already."""
        host = self.host
        if host is None:
            return None
        capacity = self.capacity_tokens
        return host if capacity is not None and host.tokens > capacity else None

    @property
    def usable(self) -> bool:
        """May receive new leases."""
        return self.healthy and not self.draining

    @property
    def is_empty(self) -> bool:
        """No call in flight and no unreleased seat."""
        return self.num_committed == 0 and self.cache.in_flight_tokens == 0

    def forget_engine(self) -> None:
        """Another one is there now: what was learned of the one before is not true of it."""
        self.healthy, self.sampled_s = False, None
        self.capacity_reported_tokens = self.prefix_cache_queries_tokens = None
        self.models = ()
        self.rates = BackendRates()
        self.shared_prefix = SharedPrefix()
        self.reports = CacheReports()
        self.next_forced_s = 0.0
        self.forget_capacity_factor()

    def forget_capacity_factor(self) -> None:
        """What it corrected is reported anew."""
        self.evidence = CacheEvidence()
        self.capacity_factor = 1.0

    def serves(self, model: str) -> bool:
        """True when the model is served or either side does not say."""
        return not model or not self.models or model in self.models
