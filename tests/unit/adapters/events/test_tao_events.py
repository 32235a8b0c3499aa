"""The event table: each `tao.*` record to its core event, and what makes a record invalid."""

import math
from collections.abc import Mapping

import pytest

from tao_client import semconv
from tao_coordinator.adapters.events.attributes import AttributeValue, Unreadable
from tao_coordinator.adapters.events.tao_events import READERS, InvalidRecord
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

SESSION: dict[str, AttributeValue] = {semconv.CONVERSATION_ID: "swe-17"}
CALL = SESSION | {semconv.TOOL_CALL_ID: "call_1", semconv.TOOL_NAME: "bash"}


def read(name: str, attributes: Mapping[str, AttributeValue], age_s: float = 0.0) -> Event:
    return READERS[name](attributes, age_s)


def test_session_start_carries_every_field() -> None:
    event = read(
        semconv.SESSION_START,
        SESSION
        | {
            semconv.AGENT_NAME: "coder",
            semconv.REQUEST_MODEL: "qwen3",
            semconv.ROOT_SESSION_ID: "root",
            semconv.PARENT_SESSION_ID: "parent",
            semconv.SESSION_PRIORITY: -2,
        },
    )
    assert event == SessionStarted(
        session_id="swe-17",
        agent="coder",
        model="qwen3",
        root_session_id="root",
        parent_session_id="parent",
        priority=-2,
    )


def test_tool_start_carries_every_field() -> None:
    event = read(
        semconv.TOOL_START,
        CALL
        | {
            semconv.TOOL_KEY: "python -m pytest",
            semconv.AGENT_NAME: "coder",
            semconv.TOOL_TIMEOUT: 600,
            semconv.TOOL_REMAINING: 12.5,
            semconv.TOOL_BACKGROUND: True,
        },
    )
    assert event == ToolStarted(
        session_id="swe-17",
        call_id="call_1",
        name="bash",
        key="python -m pytest",
        agent="coder",
        timeout_s=600.0,
        remaining_s=12.5,
        background=True,
    )


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        (semconv.SESSION_END, SESSION, SessionEnded(session_id="swe-17")),
        (
            semconv.SESSION_END,
            SESSION | {semconv.AGENT_NAME: "coder"},
            SessionEnded(session_id="swe-17", agent="coder"),
        ),
        (
            semconv.SESSION_WAIT,
            SESSION | {semconv.WAIT_REASON: "approval", semconv.WAIT_EXPECTED: 30},
            SessionWaiting(session_id="swe-17", reason="approval", expected_duration_s=30.0),
        ),
        (
            semconv.SESSION_DEADLINE,
            SESSION | {semconv.DEADLINE_REMAINING: 0},
            SessionDeadlineSet(session_id="swe-17", remaining_s=0.0),
        ),
        (
            semconv.SESSION_HEARTBEAT,
            SESSION | {semconv.OPEN_CALL_IDS: ("a", "b")},
            SessionHeartbeat(session_id="swe-17", open_call_ids=("a", "b")),
        ),
        (
            semconv.SESSION_HEARTBEAT,
            SESSION,
            SessionHeartbeat(session_id="swe-17", open_call_ids=()),
        ),
        (
            semconv.TOOL_PROGRESS,
            CALL | {semconv.TOOL_PROGRESS_RATIO: 0.25, semconv.TOOL_REMAINING: 9.0},
            ToolProgressed(session_id="swe-17", call_id="call_1", ratio=0.25, remaining_s=9.0),
        ),
        (
            semconv.TOOL_END,
            CALL | {semconv.TOOL_DURATION: 1.5, semconv.ERROR_TYPE: "timeout"},
            ToolEnded(
                session_id="swe-17",
                call_id="call_1",
                name="bash",
                duration_s=1.5,
                error_type="timeout",
            ),
        ),
    ],
)
def test_record_becomes_its_event(
    name: str, attributes: Mapping[str, AttributeValue], expected: Event
) -> None:
    assert read(name, attributes) == expected


@pytest.mark.parametrize(
    ("name", "attributes", "culprit"),
    [
        (semconv.TOOL_START, {}, semconv.CONVERSATION_ID),
        (semconv.SESSION_END, {semconv.CONVERSATION_ID: ""}, semconv.CONVERSATION_ID),
        (semconv.SESSION_END, {semconv.CONVERSATION_ID: "x" * 129}, semconv.CONVERSATION_ID),
        (semconv.SESSION_END, {semconv.CONVERSATION_ID: "a b"}, semconv.CONVERSATION_ID),
        (semconv.SESSION_END, {semconv.CONVERSATION_ID: "swe\n"}, semconv.CONVERSATION_ID),
        (semconv.SESSION_END, {semconv.CONVERSATION_ID: 17}, semconv.CONVERSATION_ID),
        (semconv.SESSION_START, SESSION | {semconv.SESSION_PRIORITY: True}, "priority"),
        (semconv.SESSION_START, SESSION | {semconv.SESSION_PRIORITY: 1.5}, "priority"),
        (semconv.SESSION_START, SESSION | {semconv.SESSION_PRIORITY: 10**9}, "priority"),
        (semconv.SESSION_START, SESSION | {semconv.ROOT_SESSION_ID: ""}, semconv.ROOT_SESSION_ID),
        (semconv.TOOL_START, SESSION | {semconv.TOOL_CALL_ID: "c"}, semconv.TOOL_NAME),
        (semconv.TOOL_START, CALL | {semconv.TOOL_CALL_ID: ""}, semconv.TOOL_CALL_ID),
        (semconv.TOOL_START, CALL | {semconv.TOOL_CALL_ID: "x" * 257}, semconv.TOOL_CALL_ID),
        (semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: math.nan}, semconv.TOOL_TIMEOUT),
        (semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: math.inf}, semconv.TOOL_TIMEOUT),
        (semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: 1e308}, semconv.TOOL_TIMEOUT),
        (semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: -1}, semconv.TOOL_TIMEOUT),
        (semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: "30"}, semconv.TOOL_TIMEOUT),
        (semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: True}, semconv.TOOL_TIMEOUT),
        (semconv.TOOL_START, CALL | {semconv.TOOL_BACKGROUND: 1}, semconv.TOOL_BACKGROUND),
        (semconv.TOOL_START, CALL | {semconv.TOOL_KEY: Unreadable.VALUE}, semconv.TOOL_KEY),
        (semconv.TOOL_PROGRESS, CALL | {semconv.TOOL_PROGRESS_RATIO: 1.5}, "ratio"),
        (semconv.SESSION_DEADLINE, SESSION, semconv.DEADLINE_REMAINING),
        (semconv.SESSION_HEARTBEAT, SESSION | {semconv.OPEN_CALL_IDS: "a"}, "call_ids"),
        (semconv.SESSION_HEARTBEAT, SESSION | {semconv.OPEN_CALL_IDS: ("",)}, "call_ids"),
        (semconv.SESSION_HEARTBEAT, SESSION | {semconv.OPEN_CALL_IDS: ("a",) * 1025}, "call_ids"),
    ],
)
def test_invalid_attribute_is_named(
    name: str, attributes: Mapping[str, AttributeValue], culprit: str
) -> None:
    with pytest.raises(InvalidRecord, match=culprit):
        read(name, attributes)


def test_age_shortens_what_counts_from_the_timestamp_only() -> None:
    started = read(
        semconv.TOOL_START, CALL | {semconv.TOOL_TIMEOUT: 30, semconv.TOOL_REMAINING: 1}, age_s=4.0
    )
    assert isinstance(started, ToolStarted)
    assert (started.timeout_s, started.remaining_s) == (26.0, 0.0)
    ended = read(semconv.TOOL_END, CALL | {semconv.TOOL_DURATION: 1.5}, age_s=4.0)
    assert isinstance(ended, ToolEnded)
    assert ended.duration_s == 1.5
