"""The project's own format: times, calls, damaged rows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_rows import agent_rows, lines

from tao_coordinator.traces.agent_trace import read
from tao_coordinator.traces.records import MalformedTrace


def test_turns_and_calls_are_read() -> None:
    trace = read(lines(agent_rows()), "file")
    assert trace.skipped.count == 0
    (session,) = trace.sessions
    assert (session.session_id, session.model, session.harness) == ("s", "m", "claude-code")
    first, second = session.turns
    assert (first.arrival_s, first.duration_s, first.input_tokens) == (0.0, 4.0, 1000)
    assert (second.arrival_s, second.output_tokens) == (6.5, 30)
    (call,) = second.tools
    assert (call.tool, call.key, call.start_s, call.end_s) == ("Bash", "make", 4.0, 6.5)
    assert (call.timeout_s, call.is_error, call.background) == (60.0, True, False)
    assert (trace.num_turns, trace.num_tool_calls) == (2, 1)


def test_release_times_follow_waits_delays_and_tool_time() -> None:
    rows = agent_rows()
    for row in rows:
        del row["arrival_ms"]
    rows[1]["delay"] = 250
    (session,) = read(lines(rows), "file").sessions
    # End of the first turn at 4 s, 2.5 s of tools, 0.25 s of something else.
    assert session.turns[1].arrival_s == 6.75
    assert session.turns[1].gap_s == 0.25


def test_open_loop_timestamps_place_sessions_and_turns() -> None:
    rows = agent_rows()
    for row, timestamp in zip(rows, (90_000, 96_500), strict=True):
        del row["arrival_ms"]
        row["timestamp"] = timestamp
    (session,) = read(lines(rows), "file").sessions
    assert session.arrival_s == 90.0
    assert [turn.arrival_s for turn in session.turns] == [0.0, 6.5]


@pytest.mark.parametrize("start_ms", [0, 1_770_000_000_000])
def test_tool_times_of_another_clock_are_moved_before_their_turn(start_ms: int) -> None:
    rows = agent_rows()
    event = {"tool_class": "Bash", "started_at_unix_ms": start_ms, "duration_ms": 2500}
    rows[1]["tool_events"] = [event]
    if start_ms == 0:
        # Their own zero shows only where it would lie before the previous turn.
        rows[0]["arrival_ms"], rows[1]["arrival_ms"] = 20_000, 26_500
    (session,) = read(lines(rows), "file").sessions
    (call,) = session.turns[1].tools
    assert call.end_s == pytest.approx(session.turns[1].arrival_s)
    assert call.duration_s == 2.5


def test_hash_runs_and_hash_ids_are_the_same_blocks() -> None:
    rows = agent_rows()
    rows[0] |= {"hash_ids": [5, 6, 7, 20, 21], "block_size": 64}
    rows[1] |= {"hash_runs": [[5, 3], [20, 2]], "block_size": 64}
    (session,) = read(lines(rows), "file").sessions
    assert session.turns[0].block_runs == session.turns[1].block_runs == ((5, 3), (20, 2))


def test_gap_before_a_turn_and_whose_it_is() -> None:
    rows = agent_rows()
    rows[1] |= {"gap_before_ms": 12_000, "gap_kind": "user"}
    (session,) = read(lines(rows), "file").sessions
    assert (session.turns[1].gap_s, session.turns[1].gap_is_person) == (12.0, True)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"session_id": None}, "session_id"),
        ({"request_id": 7}, "request_id"),
        ({"llm_ms": -1}, "llm_ms"),
        ({"llm_ms": 1e300}, "llm_ms"),
        ({"arrival_ms": "soon"}, "arrival_ms"),
        ({"arrival_ms": float("nan")}, "arrival_ms"),
        ({"input_length": True}, "input_length"),
        ({"tool_events": 3}, "tool_events"),
        ({"tool_events": [3]}, "tool event"),
        ({"tool_events": [{"tool_class": "Bash", "started_at_ms": 0}]}, "duration_ms"),
        ({"tool_events": [{"tool_class": "Bash", "duration_ms": 0}]}, "started_at_ms"),
        ({"hash_runs": [[1, 0]]}, "empty run"),
        ({"hash_runs": [[1]]}, "hash_runs"),
        ({"hash_ids": ["a"]}, "hash_ids"),
        ({"request_id": "s:0"}, "before"),
    ],
)
def test_damaged_row_costs_only_itself_and_is_named(change: dict[str, object], word: str) -> None:
    rows = agent_rows()
    rows[1] |= change
    trace = read(lines(rows), "file")
    assert trace.num_turns == 1
    assert trace.skipped.count == 1
    assert trace.skipped.messages[0].startswith("line 2: ")
    assert word in trace.skipped.messages[0]


@pytest.mark.parametrize("text", ["", "\n\n", "no json\n", "[1]\n", "{}\n", "[" * 100_000])
def test_text_without_a_usable_row_is_no_trace(text: str) -> None:
    with pytest.raises(MalformedTrace, match="file"):
        read(text, "file")


def test_many_damaged_rows_are_all_counted_and_some_named() -> None:
    text = lines(agent_rows()) + "oops\n" * 500
    skipped = read(text, "file").skipped
    assert skipped.count == 500
    assert len(skipped.messages) == 20


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted({k for r in agent_rows() for k in r})), json_values))
def test_any_values_in_known_fields_are_read_or_refused(row: dict[str, object]) -> None:
    text = lines(agent_rows()) + json.dumps(row) + "\n"
    trace = read(text, "file")
    assert trace.num_turns + trace.skipped.count == 3
