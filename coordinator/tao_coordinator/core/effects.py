"""Orders that leave the engine. Imperative, frozen; the service carries them out.

Every `TurnRequested` is answered by exactly one of `Grant`, `Hold` or `Reject` in the step that saw
it; a held turn later gets one `Grant` or `Reject`, unless its caller abandons it.
"""

from dataclasses import dataclass
from enum import StrEnum

from tao_coordinator.core.events import Headers


class RejectReason(StrEnum):
    """Why a turn gets no lease. The service maps each to one HTTP status."""

    MODEL_NOT_SERVED = "model_not_served"
    TOO_LARGE = "larger_than_any_backend"
    QUEUE_FULL = "queue_full"
    WAITED_TOO_LONG = "waited_too_long"
    NO_HEALTHY_BACKEND = "no_healthy_backend"
    SESSION_ENDED = "session_ended"
    ABANDONED = "abandoned"
    """The turn was taken back by its caller, or its caller stopped asking."""
    LEASE_EXPIRED = "lease_expired"
    """The lease of this request is over; a new turn needs a new request id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Why this turn runs where it runs."""

    policy: str
    reason: str
    """`resident`, `planned`, `forced`, `parallel`, or the rule of a baseline policy."""
    hold_s: float
    cache_credit_tokens: int
    plan_id: int | None
    """Number of the placement plan; `None` when no plan was needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Give this turn the right to run on a backend."""

    request_id: str
    lease_id: str
    backend_id: str
    base_url: str
    start_within_s: float
    strength: str
    """`hard` or `soft`."""
    receipt: Receipt
    session_id: str = ""
    """Whose turn it is, for people."""
    affinity_headers: Headers = ()
    """What goes along with the call, as the service told with the backend."""
    served_by_names: tuple[str, ...] = ()
    """Response headers that the caller reports when it gives the lease back."""
    is_repeat: bool = False
    """True: the caller asked again for a lease that it was given before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keep this turn waiting."""

    request_id: str
    queue_position: int
    """1 = next in line."""
    estimated_wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Refuse this turn."""

    request_id: str
    reason: RejectReason
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Tell the operator, once per `code` and subject."""

    code: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SolvePlan:
    """Make this plan beside the loop and answer with `PlanSolved`."""

    plan_id: int
    problem: object
    """A placement problem (`scheduling.placement`); whoever carries this out need not look in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendLeft:
    """Nothing runs on this backend any more and it is forgotten: stop asking it."""

    backend_id: str


Effect = Grant | Hold | Reject | Warn | SolvePlan | BackendLeft
