"""`tao.*` event records as core events.

A record that breaks the table in `docs/protocol.md` is invalid as a whole: half an event would
mislead the scheduler more than none. Relative times count from the record's own timestamp, so the
record's age is taken off them.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from tao_client import semconv
from tao_coordinator.adapters.events.attributes import Attributes, is_session_id
from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionEnded,
    SessionEvent,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)

DURATION_S_MAX: Final = 31_536_000.0
"""One year; longer is a mistake of units."""
PRIORITY_MAX: Final = 1_000_000
NAME_LENGTH_MAX: Final = 256
OPEN_CALLS_MAX: Final = 1_024


class InvalidRecord(ValueError):
    """A `tao.*` record breaks the event table; the message names the attribute."""


def _session_id(attributes: Attributes, key: str = semconv.CONVERSATION_ID) -> str:
    value = attributes.get(key)
    if not isinstance(value, str) or not is_session_id(value):
        raise InvalidRecord(f"{key} must be 1-128 characters of [A-Za-z0-9._:-]")
    return value


def _session_id_or_none(attributes: Attributes, key: str) -> str | None:
    return _session_id(attributes, key) if key in attributes else None


def _text(attributes: Attributes, key: str) -> str:
    """A string that may be absent (then empty)."""
    value = attributes.get(key, "")
    if not isinstance(value, str) or len(value) > NAME_LENGTH_MAX:
        raise InvalidRecord(f"{key} must be a string of at most {NAME_LENGTH_MAX} characters")
    return value


def _name(attributes: Attributes, key: str) -> str:
    """A string that must be there."""
    value = _text(attributes, key)
    if not value:
        raise InvalidRecord(f"{key} is missing")
    return value


def _texts(attributes: Attributes, key: str) -> tuple[str, ...]:
    value = attributes.get(key, ())
    if not isinstance(value, tuple) or len(value) > OPEN_CALLS_MAX:
        raise InvalidRecord(f"{key} must be an array of at most {OPEN_CALLS_MAX} strings")
    if any(not 0 < len(item) <= NAME_LENGTH_MAX for item in value):
        raise InvalidRecord(f"{key} must hold strings of 1-{NAME_LENGTH_MAX} characters")
    return value


def _flag(attributes: Attributes, key: str) -> bool:
    value = attributes.get(key, False)
    if not isinstance(value, bool):
        raise InvalidRecord(f"{key} must be a boolean")
    return value


def _priority(attributes: Attributes, key: str) -> int:
    value = attributes.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > PRIORITY_MAX:
        raise InvalidRecord(f"{key} must be an integer in -{PRIORITY_MAX}..{PRIORITY_MAX}")
    return value


def _number(attributes: Attributes, key: str, maximum: float = DURATION_S_MAX) -> float | None:
    value = attributes.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRecord(f"{key} must be a number")
    if not (math.isfinite(value) and 0.0 <= value <= maximum):
        raise InvalidRecord(f"{key} must be in 0..{maximum:g}")
    return float(value)


def _remaining_s(attributes: Attributes, key: str, age_s: float) -> float | None:
    """A duration that counts from the record's timestamp."""
    if key not in attributes:
        return None
    value = _number(attributes, key)
    return None if value is None else max(0.0, value - age_s)


def _session_start(attributes: Attributes, age_s: float) -> SessionEvent:
    return SessionStarted(
        session_id=_session_id(attributes),
        agent=_text(attributes, semconv.AGENT_NAME),
        model=_text(attributes, semconv.REQUEST_MODEL),
        root_session_id=_session_id_or_none(attributes, semconv.ROOT_SESSION_ID),
        parent_session_id=_session_id_or_none(attributes, semconv.PARENT_SESSION_ID),
        priority=_priority(attributes, semconv.SESSION_PRIORITY),
    )


def _session_end(attributes: Attributes, age_s: float) -> SessionEvent:
    return SessionEnded(
        session_id=_session_id(attributes), agent=_text(attributes, semconv.AGENT_NAME)
    )


def _session_wait(attributes: Attributes, age_s: float) -> SessionEvent:
    return SessionWaiting(
        session_id=_session_id(attributes),
        reason=_text(attributes, semconv.WAIT_REASON),
        expected_duration_s=_remaining_s(attributes, semconv.WAIT_EXPECTED, age_s),
    )


def _session_deadline(attributes: Attributes, age_s: float) -> SessionEvent:
    session_id = _session_id(attributes)
    remaining_s = _remaining_s(attributes, semconv.DEADLINE_REMAINING, age_s)
    if remaining_s is None:
        raise InvalidRecord(f"{semconv.DEADLINE_REMAINING} is missing")
    return SessionDeadlineSet(session_id=session_id, remaining_s=remaining_s)


def _session_heartbeat(attributes: Attributes, age_s: float) -> SessionEvent:
    return SessionHeartbeat(
        session_id=_session_id(attributes), open_call_ids=_texts(attributes, semconv.OPEN_CALL_IDS)
    )


def _tool_start(attributes: Attributes, age_s: float) -> SessionEvent:
    return ToolStarted(
        session_id=_session_id(attributes),
        call_id=_name(attributes, semconv.TOOL_CALL_ID),
        name=_name(attributes, semconv.TOOL_NAME),
        key=_text(attributes, semconv.TOOL_KEY),
        agent=_text(attributes, semconv.AGENT_NAME),
        timeout_s=_remaining_s(attributes, semconv.TOOL_TIMEOUT, age_s),
        remaining_s=_remaining_s(attributes, semconv.TOOL_REMAINING, age_s),
        background=_flag(attributes, semconv.TOOL_BACKGROUND),
    )


def _tool_progress(attributes: Attributes, age_s: float) -> SessionEvent:
    return ToolProgressed(
        session_id=_session_id(attributes),
        call_id=_name(attributes, semconv.TOOL_CALL_ID),
        ratio=_number(attributes, semconv.TOOL_PROGRESS_RATIO, 1.0),
        remaining_s=_remaining_s(attributes, semconv.TOOL_REMAINING, age_s),
    )


def _tool_end(attributes: Attributes, age_s: float) -> SessionEvent:
    return ToolEnded(
        session_id=_session_id(attributes),
        call_id=_name(attributes, semconv.TOOL_CALL_ID),
        name=_text(attributes, semconv.TOOL_NAME),
        key=_text(attributes, semconv.TOOL_KEY),
        duration_s=_number(attributes, semconv.TOOL_DURATION),
        error_type=_text(attributes, semconv.ERROR_TYPE) or None,
    )


Reader = Callable[[Attributes, float], SessionEvent]

READERS: Final[Mapping[str, Reader]] = {
    semconv.SESSION_START: _session_start,
    semconv.SESSION_END: _session_end,
    semconv.SESSION_WAIT: _session_wait,
    semconv.SESSION_DEADLINE: _session_deadline,
    semconv.SESSION_HEARTBEAT: _session_heartbeat,
    semconv.TOOL_START: _tool_start,
    semconv.TOOL_PROGRESS: _tool_progress,
    semconv.TOOL_END: _tool_end,
}
"""By event name: attributes and age in, event out. The age in seconds is taken off every relative
time. Raises `InvalidRecord` when an attribute is missing, of the wrong type or absurd.
"""
