"""What the engine shows of itself: immutable views for the state API, the metrics and the tests.

All times are ages or durations in seconds at the moment of the observation; all counts of tokens
are integers. Nothing here is used to decide.
"""

from dataclasses import dataclass

from tao_coordinator.core.plans import PlanTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendView:
    """One backend as the engine sees it."""

    backend_id: str
    base_url: str
    models: tuple[str, ...]
    """Empty: not known, taken to serve everything."""
    healthy: bool
    draining: bool
    capacity_tokens: int | None
    """KV pool in tokens after override and scale; `None`: not known yet."""
    budget_tokens: int | None
    """What may be committed by plan: `theta * capacity - shared prefix`."""
    capacity_factor: float
    """gamma of the capacity controller; 1: the engine's word is taken."""
    committed_tokens: int
    """Tokens of held seats plus their growth reserve."""
    released_tokens: int
    """Tokens of released seats: their room may be promised again."""
    in_flight_tokens: int
    num_in_flight: int
    num_seats: int
    shared_prefix_tokens: int
    prefill_tokens_per_s: float | None
    """Learned rate; `None`: no cold call seen yet."""
    running: int | None
    """The engine's own count at the last sample."""
    waiting: int | None
    kv_usage_ratio: float | None
    num_foreign: int
    """Requests in the engine that did not come through the coordinator."""
    foreign_tokens: int
    """Taken off the pool for them."""
    prefix_cache_queries_tokens: int | None
    """By the engine's own count since its start."""
    prefix_cache_hits_tokens: int | None
    preemptions: int | None
    sample_age_s: float | None
    """Age of the last good sample; `None`: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenToolView:
    """One open tool call."""

    name: str
    age_s: float
    """Since its start was told."""
    background: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One live session."""

    session_id: str
    agent: str
    model: str
    root_session_id: str
    phase: str
    """`inference`, `held`, `tool`, `wait` or `idle`; derived, never stored."""
    context_tokens: int
    turns: int
    """Completed turns."""
    seat_backend_id: str | None
    seat_released: bool
    resident_tokens: int
    """Predicted to be cached on its seat's or last backend."""
    open_tool_calls: tuple[str, ...]
    """Their ids; agents and models of one session id share them."""
    open_tools: tuple[OpenToolView, ...]
    """The same calls, in the same order."""
    idle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldView:
    """One held turn, in queue order."""

    request_id: str
    session_id: str
    input_tokens: int
    hold_s: float
    started: bool
    overdue: bool
    because: str
    """Why it still waits: `in_order` for a new session, else why the newest plan left it out
    (`core.plans.Candidate.why`); empty before it has competed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Totals since start. `granted` splits by receipt reason, `rejected` by reason."""

    granted: dict[str, int]
    rejected: dict[str, int]
    released: dict[str, int]
    """Leases over, by outcome."""
    abandoned: int
    """Turns whose caller went away while held."""
    seats_released: int
    """Idle seats given up by price."""
    tool_starts: int
    tool_ends: int
    tools_expired: int
    hold_s_sum: float
    hold_started_s_max: float
    """Longest hold of a started session."""
    hold_new_s_max: float
    prompt_tokens: int
    cached_tokens: int
    served_elsewhere: int
    """Turns that a gateway sent to another backend than the planned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView:
    """How far the readiness predictor's answers could be trusted so far."""

    num_forecasts: float
    """Resolved answers of the kind "back within `horizon_s`"; old ones fade."""
    horizon_s: float
    brier: float
    """Mean squared difference of probability and outcome; 0 is perfect."""
    calibration_error: float
    """Mean absolute difference of probability and observed share."""
    interval_coverage: float
    """Share of idle times inside the stated 90 % interval."""
    detail: dict[str, object]
    """The reliability tables, as plain values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The whole picture."""

    policy: str
    passes_through: bool
    """The gate for traffic without reuse is open: nobody is held."""
    uptime_s: float
    backends: tuple[BackendView, ...]
    sessions: tuple[SessionView, ...]
    held: tuple[HeldView, ...]
    counters: Counters
    plans: PlanTotals
