"""How one turn gets its lease: wire values and the flow, without I/O.

`turn_flow` is a generator that says what to do next (`Ask` the coordinator, `Pause`) and is told
what came of it; `_channel` drives it, once for threads and once for event loops. So the rules stand
here once:

    ask ──granted──────────────> Grant
        ──held─> poll (long) ──> granted | held again | refused | time-out of the caller
        ──refused──────────────> None: the call goes to its own base URL
        ──no answer────────────> None, and the breaker opens

Whatever ends the flow before the coordinator has settled the request (no answer, time-out, an
exception thrown in while held) makes it abandon the request, so that no seat waits for nobody.
"""

import json
import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from tao_client.errors import HoldTimeoutError

ANSWER_LIMIT_S = 0.5
"""The first answer is due within 250 ms; twice that is given."""
POLL_S = 10
"""Longest hold of one request (`Prefer: wait=10`)."""
POLL_SLACK_S = 0.25
NO_HEALTHY_BACKEND = "no_healthy_backend"


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What is asked for one turn; the body of `POST /tao/v1/leases`."""

    request_id: str
    session_id: str
    root_session_id: str | None = None
    parent_session_id: str | None = None
    agent: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    """Estimated prompt tokens. None: unknown."""
    max_output_tokens: int | None = None
    priority: int = 0
    tenant: str | None = None
    timeout_s: float | None = None
    """The caller's own time-out, which a hold counts against. None: it has none."""
    released: Mapping[str, object] | None = None
    """The session's turn before, where its release may not have arrived yet."""

    def to_json(self) -> bytes:
        """The request body; what is unknown is left out."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        present = {name: value for name, value in fields.items() if value not in (None, "")}
        return json.dumps(present, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Affinity:
    """Where a turn shall run."""

    backend_id: str
    base_url: str
    """The engine's API root, without `/v1`."""
    headers: Mapping[str, str]
    """Headers that a gateway in front of the backends obeys; often none."""
    strength: Literal["hard", "soft"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Why it shall run there, and what it waited."""

    policy: str
    reason: str
    hold_s: float
    cache_credit_tokens: int
    """Prompt tokens predicted to be cached on that backend."""
    plan_id: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease: the right to run one turn on a backend now."""

    lease_id: str
    start_within_s: float
    affinity: Affinity
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class HoldInfo:
    """A turn that waits for its lease; what `on_hold` is given."""

    session_id: str
    request_id: str
    held_s: float
    """Seconds since the turn was asked for."""
    queue_position: int | None
    estimated_wait_s: float | None
    """Further seconds, as the coordinator expects. None: it does not say."""


@dataclass(frozen=True, slots=True)
class Held:
    """Answer 202."""

    queue_position: int | None
    estimated_wait_s: float | None
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that the coordinator means: no lease, and nothing is wrong with it."""

    status: int
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Nothing that could be an answer."""

    reason: str
    was_sent: bool = True
    """False: the coordinator cannot have seen the request (connection refused)."""


Reply = Grant | Held | Refusal | NoAnswer


@dataclass(frozen=True, slots=True)
class Ask:
    """Send the request, holding it up to `wait_s` there, and give it `time_limit_s` in all."""

    request: TurnRequest
    wait_s: int
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before asking again."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class FlowHooks:
    """What the flow tells the rest of the SDK."""

    now_s: Callable[[], float]
    """Monotonic seconds."""
    on_answer: Callable[[], None]
    on_no_answer: Callable[[str], None]
    on_refusal: Callable[[Refusal], None]
    on_hold: Callable[[HoldInfo], None]
    abandon: Callable[[str], None]
    """The request with this id is no longer wanted."""


TurnFlow = Generator[Ask | Pause, Reply | None, Grant | None]


def turn_flow(request: TurnRequest, hooks: FlowHooks) -> TurnFlow:
    """Get a lease for one turn; the return value is None when the call shall pass through.

    Raises:
        HoldTimeoutError: held until the caller's own time-out had passed.
    """
    started_s = hooks.now_s()
    deadline_s = math.inf if request.timeout_s is None else started_s + request.timeout_s
    time_limit_s = min(ANSWER_LIMIT_S, deadline_s - started_s)
    wait_s = 0
    is_settled = False
    try:
        while True:
            reply = yield Ask(request, wait_s, time_limit_s)
            held_s = hooks.now_s() - started_s
            if isinstance(reply, Grant):
                hooks.on_answer()
                is_settled = True
                return reply
            if isinstance(reply, Refusal):
                hooks.on_answer()
                is_settled = True
                hooks.on_refusal(reply)
                return None
            if not isinstance(reply, Held):
                no_answer = reply or NoAnswer("no reply")
                if wait_s and hooks.now_s() >= deadline_s:
                    raise HoldTimeoutError(held_s)
                is_settled = not (no_answer.was_sent or wait_s)
                hooks.on_no_answer(no_answer.reason)
                return None
            hooks.on_answer()
            hooks.on_hold(
                HoldInfo(
                    request.session_id,
                    request.request_id,
                    held_s,
                    reply.queue_position,
                    reply.estimated_wait_s,
                )
            )
            if reply.retry_after_s > 0:
                yield Pause(max(0.0, min(reply.retry_after_s, deadline_s - hooks.now_s())))
            remaining_s = deadline_s - hooks.now_s()
            if remaining_s <= 0:
                raise HoldTimeoutError(hooks.now_s() - started_s)
            wait_s = max(1, min(POLL_S, math.ceil(min(remaining_s, POLL_S))))
            time_limit_s = min(wait_s + POLL_SLACK_S, remaining_s)
    finally:
        if not is_settled:
            hooks.abandon(request.request_id)


def read_reply(status: int, body: bytes) -> Reply:
    """What an HTTP answer to a lease request means."""
    try:
        document: object = json.loads(body)
    except ValueError:
        return NoAnswer(f"status {status} without JSON")
    if not isinstance(document, dict):
        return NoAnswer(f"status {status} with JSON of another shape")
    fields = cast("dict[str, object]", document)
    try:
        if status == 200:
            return _read_grant(fields)
        if status == 202:
            return Held(
                queue_position=_optional_int(fields.get("queue_position")),
                estimated_wait_s=_optional_number(fields.get("estimated_wait_s")),
                retry_after_s=_optional_number(fields.get("retry_after_s")) or 0.0,
            )
        error = _mapping(fields["error"])
        refusal = Refusal(status, _text(error["type"]), str(error.get("message", "")))
    except (KeyError, TypeError, ValueError) as mismatch:
        return NoAnswer(f"status {status} with JSON of another shape ({mismatch!r})")
    if status >= 500 and refusal.type != NO_HEALTHY_BACKEND:
        return NoAnswer(f"status {status} {refusal.type}")
    return refusal


def _read_grant(fields: dict[str, object]) -> Grant:
    affinity = _mapping(fields["affinity"])
    base_url = _text(affinity["base_url"]).rstrip("/")
    if not base_url.startswith(("http://", "https://")):
        raise ValueError("base_url is no URL")
    headers = _mapping(affinity.get("headers") or {})
    receipt = _mapping(fields.get("receipt") or {})
    plan_id = receipt.get("plan_id")
    return Grant(
        lease_id=_text(fields["lease_id"]),
        start_within_s=_optional_number(fields.get("start_within_s")) or 5.0,
        affinity=Affinity(
            backend_id=str(affinity.get("backend_id", "")),
            base_url=base_url,
            headers={name: _text(value) for name, value in headers.items()},
            strength="hard" if affinity.get("strength") == "hard" else "soft",
        ),
        receipt=Receipt(
            policy=str(receipt.get("policy", "")),
            reason=str(receipt.get("reason", "")),
            hold_s=_optional_number(receipt.get("hold_s")) or 0.0,
            cache_credit_tokens=_optional_int(receipt.get("cache_credit_tokens")) or 0,
            plan_id=None if plan_id is None else str(plan_id),
        ),
    )


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return cast("dict[str, object]", value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("not a string")
    return value


def _optional_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _optional_int(value: object) -> int | None:
    number = _optional_number(value)
    return None if number is None else int(number)
