"""TraceLab: turns, calls at a time, calls in the background, sub-agents, damage."""

import json
from typing import Any

import pytest
from trace_rows import at, lines, tracelab_rows

from tao_coordinator.traces import tracelab
from tao_coordinator.traces.records import MalformedTrace, SessionRecord

Rows = list[dict[str, Any]]
ZERO_S = 1_770_415_920.5
"""Of the first prompt, 2026-02-06 22:12:00.5."""


@pytest.fixture
def rows() -> Rows:
    return tracelab_rows()


def session_of(rows: Rows) -> SessionRecord:
    trace = tracelab.read(lines(rows), "file")
    assert trace.skipped.count == 0
    (session,) = trace.sessions
    return session


def test_turns_last_from_their_last_input_to_their_last_output(rows: Rows) -> None:
    session = session_of(rows)
    assert (session.session_id, session.harness, session.model) == (
        "claude:tl",
        "claude-code",
        "opus",
    )
    assert (session.arrival_s, session.parent_session_id) == (ZERO_S, None)
    assert [turn.arrival_s for turn in session.turns] == [0.0, 8.5, 30.5]
    # The report of usage that follows the last text is no output.
    assert [turn.duration_s for turn in session.turns] == [3.5, 2.0, 1.5]
    assert [turn.input_tokens for turn in session.turns] == [1003, 1100, 1150]
    assert [turn.cached_tokens for turn in session.turns] == [900, 1003, 1100]
    assert [turn.output_tokens for turn in session.turns] == [60, 40, 30]
    # 11 s to 31 s: nobody but the person.
    assert [turn.gap_s for turn in session.turns] == [0.0, 0.0, 20.0]
    assert [turn.gap_is_person for turn in session.turns] == [False, False, True]


def test_calls_at_a_time_belong_to_the_turn_that_takes_their_results(rows: Rows) -> None:
    first, second, third = session_of(rows).turns
    assert not first.tools and not third.tools
    bash, read = second.tools
    assert (bash.tool, bash.key, bash.timeout_s) == ("Bash", "git status", 120.0)
    assert (bash.start_s, bash.duration_s, bash.is_error) == (2.5, 6.0, True)
    assert (read.tool, read.key, read.is_error) == ("Read", "", False)
    # The agent waits for the result, whatever the tool says of itself (1 ms).
    assert (read.start_s, read.duration_s, read.background) == (3.5, 0.5, False)


def test_rows_of_sessions_may_be_mixed_and_out_of_order(rows: Rows) -> None:
    others: Rows = [{**row, "session_id": "codex:b", "provider": "codex"} for row in rows]
    mixed = [others[2], rows[2], rows[0], others[0], others[1], rows[1]]
    other, session = tracelab.read(lines(mixed), "file").sessions
    assert session == session_of(rows)
    assert (other.session_id, other.harness) == ("codex:b", "codex")
    assert [turn.arrival_s for turn in other.turns] == [0.0, 8.5, 30.5]


def test_call_that_outlives_the_next_request_is_in_the_background(rows: Rows) -> None:
    rows[0]["tools"][0] |= {"result_at": at(29.0), "tool_wall_latency_ms": 26_000}
    del rows[1]["timing_events"][1]
    _, second, third = session_of(rows).turns
    # Asked for as soon as the other result was there.
    assert (second.arrival_s, second.gap_s) == (4.0, 0.0)
    assert [(call.tool, call.background) for call in second.tools] == [
        ("Bash", True),
        ("Read", False),
    ]
    assert second.tools[0].duration_s == 26.0
    assert not third.tools


def test_call_without_a_result_is_no_call(rows: Rows) -> None:
    rows[0]["tools"][0] |= {"result_at": None, "tool_wall_latency_ms": None}
    assert [call.tool for call in session_of(rows).turns[1].tools] == ["Read"]


def test_duration_is_told_by_either_field(rows: Rows) -> None:
    rows[0]["tools"][0]["tool_wall_latency_ms"] = None
    rows[0]["tools"][1]["result_at"] = None
    bash, read = session_of(rows).turns[1].tools
    assert (bash.duration_s, read.duration_s) == (6.0, 0.5)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ('{"cmd": "python -m pytest SECRET", "workdir": "/x"}', "python -m pytest"),
        ("*** Begin Patch", ""),
        ({"command": ["ls"]}, ""),
        (["ls"], ""),
        (None, ""),
    ],
)
def test_command_heads_of_arguments_that_were_kept(rows: Rows, given: object, key: str) -> None:
    rows[0]["tools"][0]["input"] = given
    assert session_of(rows).turns[1].tools[0].key == key


def test_released_rows_have_no_arguments(rows: Rows) -> None:
    for row in rows:
        for call in row["tools"]:
            del call["input"]
    assert [call.key for call in session_of(rows).turns[1].tools] == ["", ""]


def test_sub_agent_of_a_trace_of_ones_own_has_its_parent(rows: Rows) -> None:
    for row in rows:
        row["session_id"] = "claude:tl/subagents/agent-a7"
    assert session_of(rows).parent_session_id == "claude:tl"


def test_total_is_made_of_its_parts_where_it_is_missing(rows: Rows) -> None:
    del rows[0]["input_tokens_total"]
    assert session_of(rows).turns[0].input_tokens == 1003


def test_turn_that_nothing_asked_for_begins_with_its_first_output(rows: Rows) -> None:
    rows[2]["timing_events"] = rows[2]["timing_events"][1:]
    turn = session_of(rows).turns[2]
    assert (turn.arrival_s, turn.duration_s, turn.gap_is_person) == (32.0, None, False)


def test_turn_that_put_nothing_out_is_there_for_its_tokens(rows: Rows) -> None:
    rows[2]["timing_events"] = rows[2]["timing_events"][:1]
    turn = session_of(rows).turns[2]
    assert (turn.arrival_s, turn.duration_s, turn.gap_is_person) == (30.5, None, True)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"session_id": None}, "session_id"),
        ({"session_id": 5}, "session_id"),
        ({"round_id": None}, "round_id"),
        ({"round_id": True}, "round_id"),
        ({"round_id": 1.5}, "round_id"),
        ({"project": 5}, "project"),
        ({"session_file": ["a"]}, "session_file"),
        ({"round_id": "m0"}, "before"),
        ({"model": 5}, "model"),
        ({"output_tokens": -1}, "output_tokens"),
        ({"input_tokens_total": 1e300}, "input_tokens_total"),
        ({"prefix_tokens": 2000}, "prefix_tokens"),
        ({"tools": 3}, "tools"),
        ({"timing_events": []}, "timing_events"),
        ({"timing_events": None}, "timing_events"),
        ({"timing_events": {"a": 1}}, "timing_events"),
        ({"timing_events": [3]}, "timing event"),
        ({"timing_events": [{"event_type": "text", "timestamp": "soon"}]}, "timestamp"),
        ({"timing_events": [{"event_type": "text", "timestamp": "0001-01-01"}]}, "timestamp"),
        (
            {
                "timing_events": [
                    {"event_type": "user_message", "timestamp": "1980-01-01T00:00:00Z"},
                    {"event_type": "text", "timestamp": at(1.0)},
                ]
            },
            "apart",
        ),
    ],
)
def test_damaged_row_costs_only_itself_and_is_named(
    rows: Rows, change: dict[str, object], word: str
) -> None:
    rows[1] |= change
    trace = tracelab.read(lines(rows), "file")
    assert (trace.num_turns, trace.skipped.count) == (2, 1)
    assert trace.skipped.messages[0].startswith("line 2: ")
    assert word in trace.skipped.messages[0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"emitted_at": None}, "emitted_at"),
        ({"emitted_at": "9999-12-31T00:00:00Z"}, "emitted_at"),
        ({"result_at": at(1.0), "tool_wall_latency_ms": None}, "result_at"),
        ({"result_at": 7}, "result_at"),
        ({"tool_wall_latency_ms": -40}, "tool_wall_latency_ms"),
        ({"tool_name": None}, "tool_name"),
        ({"input": {"timeout": "long"}}, "timeout"),
    ],
)
def test_damaged_call_costs_only_itself_and_is_named(
    rows: Rows, change: dict[str, object], word: str
) -> None:
    rows[0]["tools"][0] |= change
    trace = tracelab.read(lines(rows), "file")
    assert (trace.num_turns, trace.num_tool_calls, trace.skipped.count) == (3, 1, 1)
    assert trace.skipped.messages[0].startswith("line 1 tool call 0: ")
    assert word in trace.skipped.messages[0]


def test_rows_without_a_usable_one_are_refused() -> None:
    text = json.dumps({"timing_events": [], "round_id": "m", "session_id": "s"})
    reason = r"file: no usable TraceLab row \(line 1: timing_events has no time\)"
    with pytest.raises(MalformedTrace, match=reason):
        tracelab.read(text, "file")


def test_round_ids_may_be_numbers(rows: Rows) -> None:
    for number, row in enumerate(rows):
        row["round_id"] = number
    assert [turn.request_id for turn in session_of(rows).turns] == [
        "claude:tl:0",
        "claude:tl:1",
        "claude:tl:2",
    ]


@pytest.mark.parametrize("name", ["project", "session_file"])
def test_same_ids_in_another_project_or_file_are_another_session(rows: Rows, name: str) -> None:
    others: Rows = [{**row, name: "b"} for row in rows]
    trace = tracelab.read(lines([*rows, *others]), "file")
    assert trace.skipped.count == 0
    first, second = trace.sessions
    assert (first.session_id, second.session_id) == ("claude:tl", "claude:tl#2")
    assert first.turns == second.turns == session_of(rows).turns


def test_number_of_a_session_is_no_other_sessions_id(rows: Rows) -> None:
    others: Rows = [{**row, "project": "b"} for row in rows]
    third: Rows = [{**row, "session_id": "claude:tl#2"} for row in rows]
    trace = tracelab.read(lines([*rows, *others, *third]), "file")
    names = [session.session_id for session in trace.sessions]
    assert names == ["claude:tl", "claude:tl#3", "claude:tl#2"]


def test_colons_in_ids_make_no_two_rounds_one(rows: Rows) -> None:
    one = {**rows[0], "session_id": "a:b", "round_id": "c"}
    other = {**rows[0], "session_id": "a", "round_id": "b:c"}
    trace = tracelab.read(lines([one, other]), "file")
    assert (trace.skipped.count, trace.num_turns, len(trace.sessions)) == (0, 2, 2)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("year", ["1970", "2200"])
@pytest.mark.parametrize("kinds", [("user_message", "text"), ("text",)])
def test_row_of_another_age_is_left_out(
    rows: Rows, place: int, year: str, kinds: tuple[str, ...]
) -> None:
    rows[place]["timing_events"] = [
        {"event_type": kind, "timestamp": f"{year}-01-02T00:00:0{second}Z"}
        for second, kind in enumerate(kinds)
    ]
    trace = tracelab.read(lines(rows), "file")
    assert (trace.num_turns, trace.skipped.count) == (2, 1)
    assert trace.skipped.messages[0].startswith(f"line {place + 1}: timing_events lie ")
    assert max(turn.gap_s for turn in trace.sessions[0].turns) < 60.0


def test_outputs_that_nothing_asked_for_lie_within_reason_too(rows: Rows) -> None:
    rows[1]["timing_events"] = [
        {"event_type": "text", "timestamp": at(1.0)},
        {"event_type": "text", "timestamp": "2200-01-01T00:00:00Z"},
    ]
    assert tracelab.read(lines(rows), "file").skipped.count == 1
