"""`tao.*` event records as core events.

A record that breaks the table in `docs/protocol.md` is invalid as a whole: half an event would
mislead the scheduler more than none. Relative times count from the record's own timestamp, so the
record's age is taken off them; where sender and receiver clearly share no clock the age is 0.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from tao_client import semconv
from tao_coordinator.adapters.otlp_records import AttributeValue, LogRow
from tao_coordinator.core.events import (
    Event,
    SessionDeadlineSet,
    SessionEnded,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)

AGE_S_MAX: Final = 30.0
"""A record that seems older was stamped by another clock: its age is not believed."""
DURATION_S_MAX: Final = 31_536_000.0
"""One year; longer is a mistake of units."""
PRIORITY_MAX: Final = 1_000_000
NAME_LENGTH_MAX: Final = 256
OPEN_CALLS_MAX: Final = 1_024

_SESSION_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class InvalidRecord(ValueError):
    """A `tao.*` record breaks the event table; the message names the attribute."""


def record_age_s(time_unix_ns: int, now_unix_s: float) -> float:
    """Seconds since the record's timestamp, 0 where the clocks cannot be the same."""
    if time_unix_ns <= 0:
        return 0.0
    age_s = now_unix_s - time_unix_ns / 1e9
    return age_s if 0.0 < age_s <= AGE_S_MAX else 0.0


def event_from_row(row: LogRow, age_s: float) -> Event | None:
    """Translate one row.

    Args:
        row: The record.
        age_s: Its age; taken off every relative time in it.

    Returns:
        The event; `None` for a name that this coordinator has no use for.

    Raises:
        InvalidRecord: The name is known and an attribute is missing, of the wrong type or absurd.
    """
    reader = _READERS.get(row.event_name)
    return None if reader is None else reader(_Attributes(row.attributes, age_s))


class _Attributes:
    """Typed, bounded access to the attributes of one record."""

    __slots__ = ("_age_s", "_values")

    def __init__(self, values: Mapping[str, AttributeValue], age_s: float) -> None:
        self._values = values
        self._age_s = age_s

    def session_id(self, key: str = semconv.CONVERSATION_ID) -> str:
        value = self._values.get(key)
        if not isinstance(value, str) or not _SESSION_ID.fullmatch(value):
            raise InvalidRecord(f"{key} must be 1-128 characters of [A-Za-z0-9._:-]")
        return value

    def session_id_or_none(self, key: str) -> str | None:
        return self.session_id(key) if key in self._values else None

    def text(self, key: str) -> str:
        """A string that may be absent (then empty)."""
        value = self._values.get(key, "")
        if not isinstance(value, str) or len(value) > NAME_LENGTH_MAX:
            raise InvalidRecord(f"{key} must be a string of at most {NAME_LENGTH_MAX} characters")
        return value

    def name(self, key: str) -> str:
        """A string that must be there."""
        value = self.text(key)
        if not value:
            raise InvalidRecord(f"{key} is missing")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._values.get(key, ())
        if not isinstance(value, tuple) or len(value) > OPEN_CALLS_MAX:
            raise InvalidRecord(f"{key} must be an array of at most {OPEN_CALLS_MAX} strings")
        if any(not 0 < len(item) <= NAME_LENGTH_MAX for item in value):
            raise InvalidRecord(f"{key} must hold strings of 1-{NAME_LENGTH_MAX} characters")
        return value

    def flag(self, key: str) -> bool:
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            raise InvalidRecord(f"{key} must be a boolean")
        return value

    def priority(self, key: str) -> int:
        value = self._values.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_MAX:
            raise InvalidRecord(f"{key} must be an integer in -{PRIORITY_MAX}..{PRIORITY_MAX}")
        return value

    def number(self, key: str, maximum: float) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidRecord(f"{key} must be a number")
        if not (math.isfinite(value) and 0.0 <= value <= maximum):
            raise InvalidRecord(f"{key} must be in 0..{maximum:g}")
        return float(value)

    def duration_s(self, key: str) -> float | None:
        return self.number(key, DURATION_S_MAX)

    def remaining_s(self, key: str) -> float | None:
        """A duration that counts from the record's timestamp."""
        value = self.duration_s(key)
        return None if value is None else max(0.0, value - self._age_s)


def _session_start(fields: _Attributes) -> Event:
    return SessionStarted(
        session_id=fields.session_id(),
        agent=fields.text(semconv.AGENT_NAME),
        model=fields.text(semconv.REQUEST_MODEL),
        root_session_id=fields.session_id_or_none(semconv.ROOT_SESSION_ID),
        parent_session_id=fields.session_id_or_none(semconv.PARENT_SESSION_ID),
        priority=fields.priority(semconv.SESSION_PRIORITY),
    )


def _session_end(fields: _Attributes) -> Event:
    return SessionEnded(session_id=fields.session_id(), agent=fields.text(semconv.AGENT_NAME))


def _session_wait(fields: _Attributes) -> Event:
    return SessionWaiting(
        session_id=fields.session_id(),
        reason=fields.text(semconv.WAIT_REASON),
        expected_duration_s=fields.remaining_s(semconv.WAIT_EXPECTED),
    )


def _session_deadline(fields: _Attributes) -> Event:
    session_id = fields.session_id()
    remaining_s = fields.remaining_s(semconv.DEADLINE_REMAINING)
    if remaining_s is None:
        raise InvalidRecord(f"{semconv.DEADLINE_REMAINING} is missing")
    return SessionDeadlineSet(session_id=session_id, remaining_s=remaining_s)


def _session_heartbeat(fields: _Attributes) -> Event:
    return SessionHeartbeat(
        session_id=fields.session_id(), open_call_ids=fields.texts(semconv.OPEN_CALL_IDS)
    )


def _tool_start(fields: _Attributes) -> Event:
    return ToolStarted(
        session_id=fields.session_id(),
        call_id=fields.name(semconv.TOOL_CALL_ID),
        name=fields.name(semconv.TOOL_NAME),
        key=fields.text(semconv.TOOL_KEY),
        agent=fields.text(semconv.AGENT_NAME),
        timeout_s=fields.remaining_s(semconv.TOOL_TIMEOUT),
        remaining_s=fields.remaining_s(semconv.TOOL_REMAINING),
        background=fields.flag(semconv.TOOL_BACKGROUND),
    )


def _tool_progress(fields: _Attributes) -> Event:
    return ToolProgressed(
        session_id=fields.session_id(),
        call_id=fields.name(semconv.TOOL_CALL_ID),
        ratio=fields.number(semconv.TOOL_PROGRESS_RATIO, 1.0),
        remaining_s=fields.remaining_s(semconv.TOOL_REMAINING),
    )


def _tool_end(fields: _Attributes) -> Event:
    return ToolEnded(
        session_id=fields.session_id(),
        call_id=fields.name(semconv.TOOL_CALL_ID),
        name=fields.text(semconv.TOOL_NAME),
        key=fields.text(semconv.TOOL_KEY),
        duration_s=fields.duration_s(semconv.TOOL_DURATION),
        error_type=fields.text(semconv.ERROR_TYPE) or None,
    )


_READERS: Final[Mapping[str, Callable[[_Attributes], Event]]] = {
    semconv.SESSION_START: _session_start,
    semconv.SESSION_END: _session_end,
    semconv.SESSION_WAIT: _session_wait,
    semconv.SESSION_DEADLINE: _session_deadline,
    semconv.SESSION_HEARTBEAT: _session_heartbeat,
    semconv.TOOL_START: _tool_start,
    semconv.TOOL_PROGRESS: _tool_progress,
    semconv.TOOL_END: _tool_end,
}
