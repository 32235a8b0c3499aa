"""How one turn gets its lease: wire values and the flow, without I/O.

`turn_flow` is a generator that says what to do next (`Ask` the coordinator, `Pause`) and is told
what came of it; `_channel` drives it, once for threads and once for event loops. So the rules stand
here once:

    ask ──granted──────────────> Grant
        ──held─> poll (long) ──> granted | held again | refused | time-out of the caller
        ──refused──────────────> None: the call goes to its own base URL
        ──no answer────────────> its breaker opens; the next coordinator is asked; without one, None

All the asking of one call takes `ANSWER_LIMIT_S` at most, however many coordinators there are: who
is asked gets an equal share of what is left. A hold does not count; where it ends in silence, the
others get the same time again. Whatever ends the flow before a coordinator has settled the request
(no answer, time-out, an exception thrown in while held) makes it abandon the request there, so that
no seat waits for nobody.
"""

import json
import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast
from urllib.parse import urlsplit

from tao_client.errors import HoldTimeoutError

ANSWER_LIMIT_S = 0.5
"""The first answer is due within 250 ms; twice that is given, to all coordinators together."""
POLL_S = 10
"""Longest hold of one request (`Prefer: wait=10`)."""
POLL_SLACK_S = 0.25
SHORTEST_POLL_S = 0.1
"""So that one which answers each long poll at once is not asked in a busy loop."""
NO_HEALTHY_BACKEND = "no_healthy_backend"
NOT_LEADER = "not_leader"
_LEASE_ID = re.compile(r"[!-~]{1,256}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE = re.compile(r"[!-~](?:[\t -~]{0,2046}[!-~])?")
_FRAMING_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
"""They belong to the connection that the call goes over, and to nobody else."""


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
    served_by_headers: tuple[str, ...] = ()
    """Response headers that tell which backend a gateway took; they go back with the release."""


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
    endpoint: str = ""
    """The coordinator that gave it."""


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
    may_hold: bool = True
    """False: it keeps nothing of the request (connection refused, or it is not the leader)."""
    leader: str | None = None
    """URL of the leader, as one that is not has named it."""


Reply = Grant | Held | Refusal | NoAnswer


@dataclass(frozen=True, slots=True)
class Ask:
    """Send the request, holding it up to `wait_s` there, and give it `time_limit_s` in all."""

    request: TurnRequest
    endpoint: str
    wait_s: int
    time_limit_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before asking again."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class FlowHooks:
    """What the flow asks of the rest of the SDK, and tells it. An `endpoint` is a coordinator."""

    now_s: Callable[[], float]
    """Monotonic seconds."""
    present: Callable[[], Sequence[str]]
    """The coordinators to ask, the best first."""
    on_answer: Callable[[str], None]
    """This endpoint has answered."""
    on_no_answer: Callable[[str, NoAnswer], None]
    """This endpoint has not."""
    on_refusal: Callable[[Refusal], None]
    on_hold: Callable[[HoldInfo], None]
    abandon: Callable[[str, str], None]
    """The request with this id is no longer wanted, of this endpoint."""


TurnFlow = Generator[Ask | Pause, Reply | None, Grant | None]


@dataclass(slots=True)
class _Times:
    """Of one turn, on the clock of the hooks."""

    started_s: float
    deadline_s: float
    """The caller's own time-out."""
    answer_by_s: float
    """The end of all the asking."""


def turn_flow(request: TurnRequest, hooks: FlowHooks) -> TurnFlow:
    """Get a lease for one turn; the return value is None when the call shall pass through.

    Raises:
        HoldTimeoutError: held until the caller's own time-out had passed.
    """
    started_s = hooks.now_s()
    deadline_s = math.inf if request.timeout_s is None else started_s + request.timeout_s
    times = _Times(started_s, deadline_s, min(started_s + ANSWER_LIMIT_S, deadline_s))
    silent: set[str] = set()
    while present := [one for one in hooks.present() if one not in silent]:
        left_s = times.answer_by_s - hooks.now_s()
        if left_s <= 0:
            return None
        outcome = yield from _ask_one(request, hooks, present[0], left_s / len(present), times)
        if not isinstance(outcome, NoAnswer):
            return outcome
        silent.add(present[0])
        hooks.on_no_answer(present[0], outcome)
    return None


def _ask_one(
    request: TurnRequest, hooks: FlowHooks, endpoint: str, time_limit_s: float, times: _Times
) -> Generator[Ask | Pause, Reply | None, Grant | NoAnswer | None]:
    """Ask one coordinator, until it has granted, refused or fallen silent."""
    wait_s = 0
    is_settled = False
    try:
        while True:
            asked_s = hooks.now_s()
            reply = yield Ask(request, endpoint, wait_s, time_limit_s)
            if not isinstance(reply, Grant | Refusal | Held):
                no_answer = reply or NoAnswer("no reply")
                if wait_s and hooks.now_s() >= times.deadline_s:
                    raise HoldTimeoutError(hooks.now_s() - times.started_s)
                is_settled = not (no_answer.may_hold or wait_s)
                if wait_s:
                    times.answer_by_s = min(hooks.now_s() + ANSWER_LIMIT_S, times.deadline_s)
                return no_answer
            hooks.on_answer(endpoint)
            if isinstance(reply, Grant):
                is_settled = True
                return replace(reply, endpoint=endpoint)
            if isinstance(reply, Refusal):
                is_settled = True
                hooks.on_refusal(reply)
                return None
            hooks.on_hold(_hold_info(request, reply, hooks.now_s() - times.started_s))
            rest_s = asked_s + SHORTEST_POLL_S - hooks.now_s() if wait_s else 0.0
            asked_again_s = min(reply.retry_after_s, POLL_S)
            pause_s = min(max(asked_again_s, rest_s), times.deadline_s - hooks.now_s())
            if pause_s > 0:
                yield Pause(pause_s)
            remaining_s = times.deadline_s - hooks.now_s()
            if remaining_s <= 0:
                raise HoldTimeoutError(hooks.now_s() - times.started_s)
            wait_s = max(1, min(POLL_S, math.ceil(min(remaining_s, POLL_S))))
            time_limit_s = min(wait_s + POLL_SLACK_S, remaining_s)
    finally:
        if not is_settled:
            hooks.abandon(request.request_id, endpoint)


def _hold_info(request: TurnRequest, held: Held, held_s: float) -> HoldInfo:
    return HoldInfo(
        request.session_id, request.request_id, held_s, held.queue_position, held.estimated_wait_s
    )


def read_reply(status: int, body: bytes) -> Reply:
    """What an HTTP answer to a lease request means."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
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
        leader = error.get("leader")
    except (KeyError, TypeError, ValueError) as mismatch:
        return NoAnswer(f"status {status} with JSON of another shape ({mismatch!r})")
    if refusal.type == NOT_LEADER:
        named = leader.rstrip("/") if isinstance(leader, str) else None
        return NoAnswer(NOT_LEADER, may_hold=False, leader=named)
    if status >= 500 and refusal.type != NO_HEALTHY_BACKEND:
        return NoAnswer(f"status {status} {refusal.type}")
    return refusal


def _texts(value: object) -> tuple[str, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    return tuple(item for item in listed if isinstance(item, str))


def _read_grant(fields: dict[str, object]) -> Grant:
    affinity = _mapping(fields["affinity"])
    receipt = _mapping(fields.get("receipt") or {})
    plan_id = receipt.get("plan_id")
    return Grant(
        lease_id=_matching(_LEASE_ID, fields["lease_id"]),
        start_within_s=_optional_number(fields.get("start_within_s")) or 5.0,
        affinity=Affinity(
            backend_id=str(affinity.get("backend_id", "")),
            base_url=_base_url(affinity["base_url"]),
            headers=_headers(affinity.get("headers") or {}),
            strength="hard" if affinity.get("strength") == "hard" else "soft",
            served_by_headers=_texts(affinity.get("served_by_headers")),
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


def _base_url(value: object) -> str:
    url = _text(value).rstrip("/")
    parts = urlsplit(url)
    # Looking at the port checks it; line breaks and tabs are dropped unseen by `urlsplit`.
    is_whole = parts.hostname and (parts.port is None or parts.port > 0)
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not is_whole or not is_plain:
        raise ValueError("base_url is no URL")
    return url


def _headers(value: object) -> dict[str, str]:
    """Only such as can be sent: what an HTTP client refuses would fail the agent's own call."""
    headers = {
        _matching(_HEADER_NAME, name): _matching(_HEADER_VALUE, value)
        for name, value in _mapping(value).items()
    }
    if any(name.lower() in _FRAMING_HEADERS for name in headers):
        raise ValueError("headers of a connection are no affinity")
    return headers


def _matching(pattern: re.Pattern[str], value: object) -> str:
    text = _text(value)
    if not pattern.fullmatch(text):
        raise ValueError(f"unusable text of {len(text)} characters")
    return text


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError("not a string")
    return value


def _optional_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _optional_int(value: object) -> int | None:
    number = _optional_number(value)
    return None if number is None else int(number)
