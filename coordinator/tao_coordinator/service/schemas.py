"""Readers of the lease protocol's bodies: JSON in, core events out, or one error naming the field.

Written by hand: four shapes, checked in a few microseconds, with messages that a person can act on.
`null` is the same as absent; unknown keys are ignored, so that newer clients keep working.
"""

import math
import re
from typing import Final, cast

import orjson

from tao_client.semconv import TOKENS_MAX
from tao_coordinator.core.events import Headers, LeaseReleased, TurnOutcome, TurnRequested
from tao_coordinator.errors import MalformedRequest

PRIORITY_MAX: Final = 1_000_000
DURATION_S_MAX: Final = 31_536_000.0
NAME_LENGTH_MAX: Final = 256
POLL_WAIT_S_MAX: Final = 10.0
SERVED_BY_MAX: Final = 8
SERVED_BY_LENGTH_MAX: Final = 512

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,6}(?:\.\d{1,6})?)\"?\s*(?:$|[,;])")
_OUTCOMES = {
    outcome.value: outcome
    for outcome in (TurnOutcome.COMPLETED, TurnOutcome.ERROR, TurnOutcome.CANCELLED)
}


def ask_from_body(body: bytes) -> tuple[TurnRequested, LeaseReleased | None]:
    """Read the body of `POST /tao/v1/leases`: the turn, and the session's release before it.

    Raises:
        MalformedRequest: Names the first field that is missing, of the wrong type or out of range.
    """
    fields = _Fields(body)
    return _turn(fields), _released(fields)


def _released(fields: "_Fields") -> LeaseReleased | None:
    released = fields.get("released")
    if released is None:
        return None
    if not isinstance(released, dict):
        raise MalformedRequest("released must be an object")
    inner = _Fields.of(cast("dict[str, object]", released), prefix="released.")
    return _release(inner.id("lease_id"), inner)


def _turn(fields: "_Fields") -> TurnRequested:
    return TurnRequested(
        request_id=fields.id("request_id"),
        session_id=fields.id("session_id"),
        root_session_id=fields.id_or_none("root_session_id"),
        parent_session_id=fields.id_or_none("parent_session_id"),
        agent=fields.name("agent"),
        model=fields.name("model"),
        input_tokens=fields.tokens("input_tokens"),
        max_output_tokens=fields.tokens("max_output_tokens"),
        shared_prefix_tokens=_shared_prefix_tokens(fields),
        priority=fields.priority("priority"),
        tenant=fields.name("tenant"),
        timeout_s=fields.duration_s("timeout_s"),
    )


def release_from_body(lease_id: str, body: bytes) -> LeaseReleased:
    """Read the body of `POST /tao/v1/leases/{lease_id}/release`.

    Raises:
        MalformedRequest: Names the first field that is missing, of the wrong type or out of range.
    """
    return _release(lease_id, _Fields(body))


def _release(lease_id: str, fields: "_Fields") -> LeaseReleased:
    outcome = fields.get("outcome")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        raise MalformedRequest(f"outcome must be one of {', '.join(_OUTCOMES)}")
    return LeaseReleased(
        lease_id=lease_id,
        outcome=_OUTCOMES[outcome],
        input_tokens=fields.tokens("input_tokens"),
        cached_tokens=fields.tokens("cached_tokens"),
        output_tokens=fields.tokens("output_tokens"),
        ttft_s=fields.duration_s("ttft_s"),
        duration_s=fields.duration_s("duration_s"),
        served_by=_served_by(fields),
    )


def _served_by(fields: "_Fields") -> Headers:
    """Response headers by name; a gateway's few, never all of them."""
    headers = fields.get("served_by")
    if headers is None:
        return ()
    if not isinstance(headers, dict):
        raise MalformedRequest("served_by must be an object of header names and values")
    named = cast("dict[str, object]", headers)
    if len(named) > SERVED_BY_MAX:
        raise MalformedRequest(f"served_by must have at most {SERVED_BY_MAX} headers")
    found: list[tuple[str, str]] = []
    for name, value in named.items():
        if not isinstance(value, str) or max(len(name), len(value)) > SERVED_BY_LENGTH_MAX:
            raise MalformedRequest(
                f"served_by must have strings of at most {SERVED_BY_LENGTH_MAX} characters"
            )
        found.append((name.lower(), value))
    return tuple(found)


def path_id(name: str, value: str) -> str:
    """Check an id that stands in the path.

    Raises:
        MalformedRequest: It is none.
    """
    if not _ID.fullmatch(value):
        raise MalformedRequest(f"{name} must be 1-128 characters of [A-Za-z0-9._:-]")
    return value


def wait_s_from_prefer(prefer: str) -> float:
    """Seconds of the header `Prefer: wait=N`, at most 10; 0 when it is absent or not readable."""
    match = _WAIT.search(prefer)
    return min(float(match.group(1)), POLL_WAIT_S_MAX) if match else 0.0


def _shared_prefix_tokens(fields: "_Fields") -> int | None:
    prefix = fields.get("shared_prefix")
    if prefix is None:
        return None
    if not isinstance(prefix, dict):
        raise MalformedRequest("shared_prefix must be an object")
    inner = _Fields.of(cast("dict[str, object]", prefix), prefix="shared_prefix.")
    inner.name("digest")
    tokens = inner.tokens("tokens")
    if tokens is None:
        raise MalformedRequest("shared_prefix.tokens is missing")
    return tokens


class _Fields:
    """Typed, bounded access to one JSON object."""

    __slots__ = ("_prefix", "_values")

    def __init__(self, body: bytes) -> None:
        try:
            values: object = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedRequest("body must be JSON") from error
        if not isinstance(values, dict):
            raise MalformedRequest("body must be a JSON object")
        self._values = cast("dict[str, object]", values)
        self._prefix = ""

    @classmethod
    def of(cls, values: dict[str, object], prefix: str) -> "_Fields":
        fields = cls.__new__(cls)
        fields._values = values
        fields._prefix = prefix
        return fields

    def get(self, key: str) -> object:
        return self._values.get(key)

    def id(self, key: str) -> str:
        value = self._values.get(key)
        if value is None:
            raise MalformedRequest(f"{self._prefix}{key} is missing")
        if not isinstance(value, str) or not _ID.fullmatch(value):
            raise MalformedRequest(
                f"{self._prefix}{key} must be a string of 1-128 characters of [A-Za-z0-9._:-]"
            )
        return value

    def id_or_none(self, key: str) -> str | None:
        return None if self._values.get(key) is None else self.id(key)

    def name(self, key: str) -> str:
        value = self._values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str) or len(value) > NAME_LENGTH_MAX:
            raise MalformedRequest(
                f"{self._prefix}{key} must be a string of at most {NAME_LENGTH_MAX} characters"
            )
        return value

    def tokens(self, key: str) -> int | None:
        return self._integer(key, 0, TOKENS_MAX)

    def priority(self, key: str) -> int:
        return self._integer(key, -PRIORITY_MAX, PRIORITY_MAX) or 0

    def _integer(self, key: str, minimum: int, maximum: int) -> int | None:
        value = self._values.get(key)
        if value is None:
            return None
        if type(value) is not int or not minimum <= value <= maximum:
            raise MalformedRequest(
                f"{self._prefix}{key} must be an integer in {minimum}..{maximum}"
            )
        return value

    def duration_s(self, key: str) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MalformedRequest(f"{self._prefix}{key} must be a number of seconds")
        if not (math.isfinite(value) and 0.0 <= value <= DURATION_S_MAX):
            raise MalformedRequest(f"{self._prefix}{key} must be in 0..{DURATION_S_MAX:.0f}")
        return float(value)
