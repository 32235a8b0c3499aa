"""Facts that enter the engine. Past tense, frozen, one dataclass per kind.

Time is not inside an event: `Engine.step(now_s, events)` dates all events of one step with the
coordinator's own monotonic clock. Durations (`timeout_s`, `remaining_s`) count from then on. An
adapter that knows how old a record is subtracts that age before it builds the event.

`None` always means "not told"; it is never 0 and never -1. Token counts are integers >= 0.
"""

from dataclasses import dataclass
from enum import StrEnum

Headers = tuple[tuple[str, str], ...]
"""Names and values of HTTP headers; opaque here."""


class TurnOutcome(StrEnum):
    """How a turn ended, as the releasing side saw it."""

    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"
    LOST = "lost"
    """Nobody renewed or released the lease in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStarted:
    """A session announced itself. Optional: its first turn or tool call creates it too."""

    session_id: str
    agent: str = ""
    model: str = ""
    root_session_id: str | None = None
    parent_session_id: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded:
    """No further turn will come. Held turns of the session are cancelled, its seats given up."""

    session_id: str
    agent: str = ""
    """Empty: all agents of this session id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWaiting:
    """The session waits for something that is no tool: a person, an approval, a schedule."""

    session_id: str
    reason: str = ""
    expected_duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDeadlineSet:
    """The session wants its backend again in `remaining_s` (0 = now)."""

    session_id: str
    remaining_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHeartbeat:
    """The agent lives and exactly these tool calls are open: repairs lost ends."""

    session_id: str
    open_call_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call began. A second start of an open (session, call id) is ignored."""

    session_id: str
    call_id: str
    name: str
    key: str = ""
    """Command head, e.g. `python -m pytest`; empty when the emitter keeps it to itself."""
    agent: str = ""
    timeout_s: float | None = None
    """Seconds until the harness kills the call."""
    remaining_s: float | None = None
    """Expected seconds until the call ends."""
    background: bool = False
    """True: the session goes on without waiting for this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgressed:
    """A running tool call told how far it is."""

    session_id: str
    call_id: str
    ratio: float | None = None
    """Share done, 0..1."""
    remaining_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool call ended, well or not. Without a known start it is only history."""

    session_id: str
    call_id: str
    name: str = ""
    key: str = ""
    duration_s: float | None = None
    """By the emitter's clock; `None`: the time since the start event is taken."""
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnObserved:
    """A harness tells of a model call that is over. Only the journal listens.

    Where the call had a lease, its release has told the same.
    """

    session_id: str
    agent: str = ""
    model: str = ""
    input_tokens: int
    """The whole prompt, cached or not."""
    cached_tokens: int | None = None
    output_tokens: int | None = None
    duration_s: float
    """Send to last token."""
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequested:
    """A session asks for a lease. The same `request_id` again is a poll, never a second request."""

    request_id: str
    session_id: str
    root_session_id: str | None = None
    parent_session_id: str | None = None
    agent: str = ""
    model: str = ""
    input_tokens: int | None = None
    """Prompt length by the caller's estimate; `None`: taken from the session's last reply."""
    max_output_tokens: int | None = None
    shared_prefix_tokens: int | None = None
    """Leading tokens that many sessions have in common (system prompt, tool schemas)."""
    priority: int = 0
    tenant: str = ""
    timeout_s: float | None = None
    """The caller's own time-out: waiting longer is useless to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollStarted:
    """The caller of a held turn is connected and waits."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PollEnded:
    """The caller was told "still held"; it has `poll_grace_s` to ask again."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAbandoned:
    """The caller no longer wants this turn (DELETE, or its connection closed while held).

    A lease that was granted but not yet delivered is taken back.
    """

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRenewed:
    """The caller of a running turn is alive."""

    lease_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReleased:
    """A turn is over. Idempotent: the second release of a lease is ignored."""

    lease_id: str
    outcome: TurnOutcome = TurnOutcome.COMPLETED
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """`None`: the engine did not report it (it needs a flag), which is not 0."""
    output_tokens: int | None = None
    ttft_s: float | None = None
    """Send to first token, without the hold."""
    duration_s: float | None = None
    served_by: Headers = ()
    """What the response said of who served it: lower-case names and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAdded:
    """A backend may be used from now on. Repeating it updates URL and overrides."""

    backend_id: str
    base_url: str
    capacity_tokens: int | None = None
    """Override by the operator; `None`: what the engine reports."""
    capacity_scale: float = 1.0
    host_tier_tokens: int | None = None
    """KV tokens that its host memory holds below the pool; `None`: what is evicted is lost."""
    host_reload_tokens_per_s: float | None = None
    """From there to the pool; told together with `host_tier_tokens`."""
    affinity_headers: Headers = ()
    """What goes along with every turn that runs there, as the service understands it."""
    served_by: Headers = ()
    """Response headers that show that it was this backend that served a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendDrained:
    """No new lease on this backend; running turns finish."""

    backend_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRemoved:
    """A draining backend is to be forgotten; ignored while a turn runs there."""

    backend_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSampled:
    """A poll of the engine's metrics succeeded: it is alive. `None`: that metric was missing."""

    backend_id: str
    capacity_tokens: int | None = None
    models: tuple[str, ...] | None = None
    """Served model names; `None`: not asked in this poll; empty: the engine did not say."""
    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None
    """0..1. vLLM counts referenced blocks only: an idle session looks like free memory."""
    prefix_cache_queries_tokens: int | None = None
    """Since the engine's start: a smaller value than before means that it was restarted."""
    prefix_cache_hits_tokens: int | None = None
    preemptions: int | None = None
    """Requests that the engine threw out of its batch for lack of room, since its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCacheSeen:
    """What an engine's own KV events say of its cache: certain where it says anything."""

    backend_id: str
    was_cleared: bool
    """The whole cache was emptied."""
    is_lost: bool
    """Everything told before no longer counts."""
    sessions: tuple[tuple[str, int | None], ...]
    """Session ids and the tokens of their prompts that are cached, shared prefixes included;
    `None`: that cannot be said (any more)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendUnreachable:
    """A poll of the engine failed. Several in a row make it unhealthy."""

    backend_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSolved:
    """A plan that was ordered (`effects.SolvePlan`) is there, or will never be."""

    plan_id: int
    plan: object | None
    """A `scheduling.placement.Plan` for the problem that was given; `None`: nobody made one."""


SessionEvent = (
    SessionStarted
    | SessionEnded
    | SessionWaiting
    | SessionDeadlineSet
    | SessionHeartbeat
    | ToolStarted
    | ToolProgressed
    | ToolEnded
    | TurnObserved
)
"""What emitters tell of a session; every one carries its `session_id`."""

Event = (
    SessionEvent
    | TurnRequested
    | PollStarted
    | PollEnded
    | TurnAbandoned
    | LeaseRenewed
    | LeaseReleased
    | BackendAdded
    | BackendDrained
    | BackendRemoved
    | BackendSampled
    | BackendCacheSeen
    | BackendUnreachable
    | PlanSolved
)
