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
    rows[0] |= {"input_length": 300, "hash_ids": [5, 6, 7, 20, 21], "block_size": 64}
    rows[1] |= {"input_length": 320, "hash_runs": [[5, 3], [20, 2]], "block_size": 64}
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
        ({"hash_ids": [1, 2], "block_size": 64}, "2 blocks of 64 tokens"),
        ({"hash_runs": [[1, 19]], "block_size": 64}, "19 blocks of 64 tokens"),
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


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(128, 2), (129, 2), (129, 3), (191, 2), (191, 3), (192, 3), (60, 1)]
)
def test_last_block_that_a_prompt_does_not_fill_may_be_told_or_not(
    tokens: int, blocks: int
) -> None:
    rows = agent_rows()
    rows[0] |= {"input_length": tokens, "block_size": 64, "hash_ids": list(range(blocks))}
    trace = read(lines(rows), "file")
    assert trace.skipped.count == 0
    assert trace.sessions[0].turns[0].block_runs == ((0, blocks),)


@pytest.mark.parametrize(("tokens", "blocks"), [(128, 1), (128, 3), (129, 1), (129, 4), (0, 1)])
def test_blocks_of_another_prompt_make_a_row_unusable(tokens: int, blocks: int) -> None:
    rows = agent_rows()
    rows[0] |= {"input_length": tokens, "block_size": 64, "hash_ids": list(range(blocks))}
    trace = read(lines(rows), "file")
    assert (trace.num_turns, trace.skipped.count) == (1, 1)


def test_blocks_of_unknown_size_are_not_counted() -> None:
    rows = agent_rows()
    rows[0]["hash_ids"] = [1]
    assert read(lines(rows), "file").skipped.count == 0


# --- wait_for ------------------------------------------------------------------------------------


def chain(number: int) -> list[dict[str, object]]:
    """Rows whose release is told by nothing but the row before: 1 s each, 2 s of tools between."""
    return [
        {
            "request_id": f"s:{turn}", "session_id": "s", "turn": turn, "input_length": 100,
            "llm_ms": 1000, "wait_for": [f"s:{turn - 1}"] if turn else [],
            "tool_wait_ms": 2000 if turn else 0,
        }
        for turn in range(number)
    ]  # fmt: skip


def arrivals_s(rows: list[dict[str, object]], count: int) -> list[float]:
    """Of the first session, where so many rows are left out."""
    trace = read(lines(rows), "file")
    assert trace.skipped.count == count, trace.skipped.messages
    return [turn.arrival_s for turn in trace.sessions[0].turns]


@pytest.mark.parametrize(
    ("wait_for", "word"),
    [
        (["s:9"], "there is no row 's:9'"),
        (["s:0", "s:9"], "there is no row 's:9'"),
        (["s:2"], "row 's:2' does not come before it"),
        (["s:1"], "row 's:1' does not come before it"),
        (["s:0", "s:3"], "row 's:3' does not come before it"),
        ([7], "there is no row"),
    ],
)
def test_row_that_waits_for_what_cannot_have_been_is_left_out(
    wait_for: list[object], word: str
) -> None:
    rows = chain(4)
    rows[1]["wait_for"] = wait_for
    # Those behind it follow the turns that are left.
    assert arrivals_s(rows, 1) == [0.0, 3.0, 6.0]
    message = read(lines(rows), "file").skipped.messages[0]
    assert message.startswith("line 2: wait_for: ")
    assert word in message


def test_row_that_says_when_it_was_asked_for_needs_no_other() -> None:
    rows = chain(3)
    rows[1] |= {"arrival_ms": 4000, "wait_for": ["cut away"]}
    rows[2] |= {"arrival_ms": 9000, "wait_for": ["s:2"]}
    assert arrivals_s(rows, 0) == [0.0, 4.0, 9.0]


def test_damaged_row_does_not_take_those_that_wait_for_it_along() -> None:
    rows = chain(4)
    rows[1]["llm_ms"] = -1
    assert arrivals_s(rows, 1) == [0.0, 3.0, 6.0]


def test_torn_line_takes_at_most_the_next_row_along() -> None:
    torn = lines(chain(5)).splitlines()
    torn[1] = torn[1][:20]
    trace = read("\n".join(torn), "file")
    assert trace.skipped.count == 2
    assert [turn.request_id for turn in trace.sessions[0].turns] == ["s:0", "s:3", "s:4"]


def test_order_is_that_of_the_turns_not_of_the_lines() -> None:
    assert arrivals_s(chain(3)[::-1], 0) == [0.0, 3.0, 6.0]


@pytest.mark.parametrize("untold", [[0], [1], [2], [0, 2], [1, 3], [0, 1, 2, 3], [3]])
def test_row_that_does_not_tell_its_turn_stands_where_it_does_in_the_file(
    untold: list[int],
) -> None:
    rows = chain(4)
    for number in untold:
        del rows[number]["turn"]
    assert arrivals_s(rows, 0) == [0.0, 3.0, 6.0, 9.0]


def test_row_without_a_turn_waits_for_none_behind_it() -> None:
    rows = chain(3)
    del rows[1]["turn"]
    rows[1]["wait_for"] = ["s:2"]
    # Nor is the one behind it kept from the one before.
    rows[2]["wait_for"] = ["s:0"]
    assert arrivals_s(rows, 1) == [0.0, 3.0]


def test_row_may_wait_for_one_of_another_session() -> None:
    child = {**chain(1)[0], "request_id": "c:0", "session_id": "s/c", "wait_for": ["s:0"]}
    rows = chain(3)
    rows[1]["wait_for"] = ["c:0"]
    rows[2]["wait_for"] = ["s:1", "c:0"]
    assert arrivals_s([*rows, child], 0) == [0.0, 3.0, 6.0]


def test_trace_of_nothing_but_rows_left_out_says_why() -> None:
    rows = chain(2)
    rows[0]["wait_for"] = rows[1]["wait_for"] = ["s:9"]
    with pytest.raises(
        MalformedTrace, match=r"usable agent-trace row \(line 1: wait_for: there is"
    ):
        read(lines(rows), "file")


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
