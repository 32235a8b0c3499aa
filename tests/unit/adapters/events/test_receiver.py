"""From rows to events: sources, ages, sessions by trace, each event once."""

import pytest

from tao_client import semconv
from tao_coordinator.adapters.events.attributes import Attributes
from tao_coordinator.adapters.events.log_records import LogRow
from tao_coordinator.adapters.events.order import Outcome
from tao_coordinator.adapters.events.receiver import (
    AGE_S_MAX,
    EventReceiver,
    Received,
    Tally,
    age_of,
)
from tao_coordinator.adapters.events.spans import SpanRow
from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionEvent,
    ToolEnded,
    ToolStarted,
)

NOW_S = 1_796_000_000.0
NOW_NS = int(NOW_S * 1e9)
TRACE = bytes(range(16))
CALL: Attributes = {
    semconv.CONVERSATION_ID: "s",
    semconv.TOOL_CALL_ID: "c",
    semconv.TOOL_NAME: "bash",
}
ANONYMOUS: Attributes = {k: v for k, v in CALL.items() if k != semconv.CONVERSATION_ID}


class Fixture:
    """A receiver and what became of everything it was given."""

    def __init__(self) -> None:
        self.receiver = EventReceiver()
        self.tally = Tally()

    def logs(self, *rows: LogRow) -> list[SessionEvent]:
        return [received.event for received in self.receive(*rows)]

    def receive(self, *rows: LogRow) -> list[Received]:
        return self.receiver.logs(rows, NOW_S, self.tally)

    def spans(self, *rows: SpanRow) -> list[SessionEvent]:
        tool_spans = self.receiver.look_over(rows)
        received = self.receiver.spans(rows, tool_spans, NOW_S, self.tally)
        return [one.event for one in received]


def span(
    attributes: Attributes,
    *,
    name: str = "execute_tool bash",
    span_id: bytes = b"span-one",
    parent: bytes = b"",
) -> SpanRow:
    start_ns = NOW_NS - 3 * 10**9
    return SpanRow(name, TRACE, span_id, parent, start_ns, NOW_NS - 10**9, False, attributes)


@pytest.mark.parametrize(
    ("stamped_s", "expected_s"),
    [(998.0, 2.0), (1000.0, 0.0), (1005.0, 0.0), (1000.0 - AGE_S_MAX - 1, 0.0), (0.0, 0.0)],
)
def test_age_of_another_clock_is_not_believed(stamped_s: float, expected_s: float) -> None:
    assert age_of(int(stamped_s * 1e9), now_unix_s=1000.0) == expected_s


def test_invalid_record_is_rejected_alone() -> None:
    fixture = Fixture()
    broken = LogRow(semconv.TOOL_START, 0, {semconv.CONVERSATION_ID: "s"})
    foreign = LogRow("of.somebody.else", 0, {})
    (event,) = fixture.logs(broken, LogRow(semconv.TOOL_END, 0, CALL), foreign, broken)
    assert event == ToolEnded(session_id="s", call_id="c", name="bash")
    assert fixture.tally.rejected == {semconv.TOOL_START: 2}
    assert semconv.TOOL_CALL_ID in fixture.tally.first_message
    assert fixture.tally.num_ignored == 1


def test_age_is_taken_off_relative_times() -> None:
    attributes = {semconv.CONVERSATION_ID: "s", semconv.DEADLINE_REMAINING: 100.0}
    (received,) = Fixture().receive(LogRow(semconv.SESSION_DEADLINE, NOW_NS - 10**10, attributes))
    assert received.event == SessionDeadlineSet(session_id="s", remaining_s=90.0)
    assert (received.age_s, received.source) == (10.0, "event")


@pytest.mark.parametrize("uid", ["u1", None])
def test_record_counts_once(uid: str | None) -> None:
    fixture = Fixture()
    attributes = CALL if uid is None else {**CALL, semconv.RECORD_UID: uid}
    row = LogRow(semconv.TOOL_START, NOW_NS, attributes)
    assert len(fixture.logs(row, row)) == 1
    assert fixture.logs(row) == []
    assert fixture.tally.dropped == {Outcome.DUPLICATE: 2}


def test_record_that_nothing_identifies_counts_each_time() -> None:
    row = LogRow(semconv.SESSION_WAIT, 0, {semconv.CONVERSATION_ID: "s"})
    assert len(Fixture().logs(row, row)) == 2


def test_late_start_is_dropped() -> None:
    fixture = Fixture()
    end, start = (
        LogRow(name, NOW_NS - age_ns, CALL)
        for name, age_ns in ((semconv.TOOL_END, 0), (semconv.TOOL_START, 10**9))
    )
    assert fixture.logs(end, start) == [ToolEnded(session_id="s", call_id="c", name="bash")]
    assert fixture.tally.dropped == {Outcome.LATE: 1}


def test_record_without_conversation_belongs_to_its_trace() -> None:
    fixture = Fixture()
    nameless = LogRow(semconv.TOOL_START, 0, ANONYMOUS, TRACE)
    assert fixture.logs(nameless) == []
    fixture.logs(LogRow("of.somebody.else", 0, {"session.id": "s"}, TRACE))
    assert fixture.logs(nameless) == [ToolStarted(session_id="s", call_id="c", name="bash")]


def test_trace_of_a_broken_record_is_not_learned() -> None:
    fixture = Fixture()
    fixture.logs(LogRow("x", 0, {"session.id": "no session id"}, TRACE))
    fixture.logs(LogRow("x", 0, {"session.id": "s"}, TRACE * 1000))
    assert not fixture.receiver._session_of_trace


def test_foreign_records_become_events() -> None:
    claude = LogRow(
        "claude_code.tool_result",
        NOW_NS,
        {"session.id": "s", "tool_use_id": "t", "tool_name": "Read"},
    )
    codex = LogRow(
        "codex.tool_decision",
        NOW_NS,
        {"conversation.id": "x", "call_id": "t", "tool_name": "shell"},
    )
    received = Fixture().receive(claude, codex)
    assert [one.event for one in received] == [
        ToolEnded(session_id="s", call_id="t", name="Read"),
        ToolStarted(session_id="x", call_id="t", name="shell"),
    ]
    assert {one.source for one in received} == {"foreign"}


def test_tool_span_is_an_end() -> None:
    (event,) = Fixture().spans(span(CALL))
    assert event == ToolEnded(session_id="s", call_id="c", name="bash", duration_s=2.0)


def test_tool_span_belongs_to_the_session_of_its_agent() -> None:
    agent = span(
        {semconv.OPERATION_NAME: "invoke_agent", semconv.CONVERSATION_ID: "s"},
        name="invoke_agent coder",
        span_id=b"span-two",
    )
    fixture = Fixture()
    (event,) = fixture.spans(span(ANONYMOUS, parent=b"span-two"), agent)
    assert event.session_id == "s"
    assert fixture.tally.num_ignored == 1


def test_tool_span_of_nobody_is_history() -> None:
    (event,) = Fixture().spans(span(ANONYMOUS))
    assert event.session_id == f"trace:{TRACE.hex()}"


def test_mcp_request_inside_a_tool_counts_with_it() -> None:
    outer = span(CALL)
    inner = span(
        {semconv.OPERATION_NAME: "execute_tool", "mcp.method.name": "tools/call"},
        name="tools/call bash",
        span_id=b"span-two",
        parent=b"span-one",
    )
    fixture = Fixture()
    (event,) = fixture.spans(inner, outer)
    assert isinstance(event, ToolEnded)
    assert event.call_id == "c"
    assert fixture.tally.dropped == {Outcome.DUPLICATE: 1}


def test_span_of_a_call_that_the_sdk_has_told_is_a_duplicate() -> None:
    fixture = Fixture()
    fixture.logs(LogRow(semconv.TOOL_END, NOW_NS, CALL))
    assert fixture.spans(span(CALL)) == []


def test_hook_and_log_record_of_one_call_count_once() -> None:
    fixture = Fixture()
    started = ToolStarted(session_id="s", call_id="t", name="Bash")
    ended = ToolEnded(session_id="s", call_id="t", name="Bash")
    hooks = fixture.receiver.hook((started, ended), NOW_S, fixture.tally)
    assert [one.event for one in hooks] == [started, ended]
    attributes: Attributes = {"session.id": "s", "tool_use_id": "t", "tool_name": "Bash"}
    records = [
        LogRow(f"claude_code.tool_{what}", NOW_NS, attributes) for what in ("decision", "result")
    ]
    assert fixture.logs(*records) == []
    assert fixture.tally.dropped == {Outcome.LATE: 1, Outcome.DUPLICATE: 1}


def test_hook_that_says_nothing_is_counted() -> None:
    fixture = Fixture()
    assert fixture.receiver.hook((), NOW_S, fixture.tally) == []
    assert fixture.tally.num_ignored == 1
