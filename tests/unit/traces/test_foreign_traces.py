"""Readers of what other programs wrote: what is taken over, and what is left behind."""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_rows import (
    claude_rows,
    lines,
    mini_document,
    mooncake_rows,
    tracelab_rows,
    weka_document,
)

from tao_coordinator.traces import claude_code, mini_swe_agent, mooncake, tracelab, weka
from tao_coordinator.traces.records import MalformedTrace, Trace

READERS: dict[str, Callable[[str, str], Trace]] = {
    "claude-code": claude_code.read,
    "mini-swe-agent": mini_swe_agent.read,
    "mooncake": mooncake.read,
    "tracelab": tracelab.read,
    "weka": weka.read,
}
TEXTS = {
    "claude-code": lines(claude_rows()),
    "mini-swe-agent": json.dumps(mini_document()),
    "mooncake": lines(mooncake_rows()),
    "tracelab": lines(tracelab_rows()),
    "weka": json.dumps(weka_document()),
}


# --- Mooncake ------------------------------------------------------------------------------------


def test_mooncake_requests_are_sessions_of_one_turn_at_their_arrival() -> None:
    trace = mooncake.read(TEXTS["mooncake"], "conv")
    assert [session.arrival_s for session in trace.sessions] == [0.0, 3.052]
    assert [session.session_id for session in trace.sessions] == ["conv:0", "conv:1"]
    (turn,) = trace.sessions[1].turns
    assert (turn.input_tokens, turn.output_tokens, turn.arrival_s) == (600, 5, 0.0)
    assert (turn.block_runs, turn.block_size) == (((0, 1), (7, 1)), 512)


def test_mooncake_rows_with_a_session_id_are_turns_after_their_delay() -> None:
    rows: list[dict[str, object]] = [
        {"session_id": "a", "timestamp": 1000, "input_length": 10},
        {"session_id": "a", "delay": 500, "input_length": 20},
    ]
    (session,) = mooncake.read(lines(rows), "x").sessions
    assert [turn.arrival_s for turn in session.turns] == [0.0, 0.5]
    assert session.arrival_s == 1.0


def prompt(timestamp_ms: int, tokens: int, *blocks: int) -> dict[str, object]:
    return {"timestamp": timestamp_ms, "input_length": tokens, "hash_ids": list(blocks)}


def mooncake_sessions(*rows: dict[str, object]) -> dict[str, list[int | None]]:
    """Prompt lengths of each session's turns."""
    sessions = mooncake.read(lines(rows), "x").sessions
    return {
        session.session_id: [turn.input_tokens for turn in session.turns] for session in sessions
    }


def test_mooncake_prompts_that_begin_with_an_earlier_one_go_on_with_its_session() -> None:
    rows = [
        prompt(1_000, 1_100, 0, 1, 2),
        prompt(1_000, 1_300, 0, 5, 6),
        # Without the rest of the first prompt (block 2), which has become a whole block.
        prompt(9_000, 2_048, 0, 1, 3, 4),
        prompt(31_500, 2_100, 0, 1, 3, 4, 7),
    ]
    first, second = mooncake.read(lines(rows), "x").sessions
    assert [turn.request_id for turn in first.turns] == ["x:0:0", "x:0:1", "x:0:2"]
    assert [turn.arrival_s for turn in first.turns] == [0.0, 8.0, 30.5]
    assert [turn.gap_s for turn in first.turns] == [0.0, 8.0, 22.5]
    assert (first.arrival_s, second.session_id, len(second.turns)) == (1.0, "x:1", 1)


def test_mooncake_prompts_go_on_with_the_longest_that_fits_and_forks_are_new() -> None:
    short, long = prompt(0, 1_100, 0, 1, 9), prompt(0, 1_600, 0, 1, 2, 3)
    next_turn, fork = prompt(10, 2_100, 0, 1, 2, 4, 5), prompt(20, 1_700, 0, 1, 2, 6)
    assert mooncake_sessions(short, long, next_turn) == {"x:0": [1_100], "x:1": [1_600, 2_100]}
    assert mooncake_sessions(long, next_turn, fork) == {"x:0": [1_600, 2_100], "x:2": [1_700]}


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(prompt(1_000, 1_700, 0, 1, 2, 3), id="asked at the same time"),
        pytest.param(prompt(500, 1_700, 0, 1, 2, 3), id="asked before"),
        pytest.param(prompt(2_000, 1_100, 0, 1, 2), id="no longer than the earlier one"),
        pytest.param(prompt(2_000, 1_700, 9, 1, 2, 3), id="another first block"),
        pytest.param(prompt(2_000, 1_700, 0, 1), id="fewer blocks than whole ones"),
        pytest.param({"input_length": 1_700, "hash_ids": [0, 1, 2, 3]}, id="no time"),
        pytest.param(prompt(2_000, 1_700, 0, 1, 2, 3) | {"session_id": "own"}, id="named"),
    ],
)
def test_mooncake_prompts_that_cannot_go_on_with_another_are_sessions(
    later: dict[str, object],
) -> None:
    assert len(mooncake_sessions(prompt(1_000, 1_100, 0, 1, 8), later)) == 2


def test_mooncake_sessions_with_a_prefix_in_common_are_not_one() -> None:
    """A system prompt of three whole blocks, and openings that do not fill a fourth."""
    openings = [prompt(10 * n, 1_600 + n, 0, 1, 2, 100 + n) for n in range(8)]
    later = prompt(500, 2_600, 0, 1, 2, 107, 50, 51)
    found = mooncake_sessions(*openings, later)
    assert len(found) == 9


def test_mooncake_pause_is_the_told_delay_else_the_time_between_two_turns() -> None:
    rows: list[dict[str, object]] = [
        {"session_id": "a", "timestamp": 0, "input_length": 10},
        {"session_id": "a", "timestamp": 60_000, "input_length": 20, "delay": 2_000},
        {"session_id": "a", "timestamp": 90_000, "input_length": 30},
    ]
    (session,) = mooncake.read(lines(rows), "x").sessions
    assert [turn.gap_s for turn in session.turns] == [0.0, 2.0, 30.0]
    assert [turn.arrival_s for turn in session.turns] == [0.0, 60.0, 90.0]


@pytest.mark.parametrize("hash_ids", [[[1], [2], [3]], {"a": 1}, "abc", [1, "x", 3]])
def test_mooncake_blocks_beside_runs_are_looked_at_by_nobody(hash_ids: object) -> None:
    row = prompt(1_000, 1_100) | {"hash_runs": [[0, 3]], "hash_ids": hash_ids}
    trace = mooncake.read(lines([row, prompt(2_000, 1_700, 0, 1, 2, 3)]), "x")
    assert (len(trace.sessions), trace.skipped.count) == (2, 0)


def test_mooncake_prompts_of_equal_blocks_are_read_in_linear_time() -> None:
    """Of 40,000 blocks; the test's own time limit is the judge of a square of that."""
    blocks = [0] * 40_000
    rows = [prompt(0, 512 * 40_000, 1, *blocks[1:])]
    rows += [prompt(n, 512 * 40_001, 2, *blocks) for n in range(1, 100)]
    assert len(mooncake_sessions(*rows)) == 100


def test_mooncake_prompts_of_less_than_two_whole_blocks_are_never_gone_on_with() -> None:
    """What they have in common with longer ones is what all sessions have."""
    assert len(mooncake_sessions(prompt(0, 1_000, 0, 1), prompt(10, 1_700, 0, 1, 2, 3))) == 2


@pytest.mark.parametrize(
    "change",
    [{"input_length": None}, {"input_length": -5}, {"timestamp": "x"}, {"hash_ids": {"a": 1}}],
)
def test_damaged_mooncake_row_costs_only_itself(change: dict[str, object]) -> None:
    rows = mooncake_rows()
    rows[0] |= change
    trace = mooncake.read(lines(rows), "x")
    assert (trace.num_turns, trace.skipped.count) == (1, 1)


# --- Weka ----------------------------------------------------------------------------------------


def test_weka_conversation_and_its_sub_agent_are_two_sessions() -> None:
    main, child = weka.read(TEXTS["weka"], "file").sessions
    assert (main.session_id, main.model, main.parent_session_id) == ("conv", "sonnet", None)
    assert (child.session_id, child.parent_session_id) == ("conv/a1", "conv")
    assert [turn.arrival_s for turn in main.turns] == [0.0, 10.0, 50.0]
    assert [turn.gap_s for turn in main.turns] == [0.0, 8.0, 38.0]
    assert [turn.gap_is_person for turn in main.turns] == [False, False, True]
    assert main.turns[1].block_runs == ((1, 3),)
    assert child.turns[0].block_size == 64


@pytest.mark.parametrize("change", [{"t": None}, {"in": "many"}, {"api_time": -1.0}])
def test_damaged_weka_request_costs_only_itself(change: dict[str, object]) -> None:
    document: dict[str, Any] = weka_document()
    document["requests"][0] |= change
    trace = weka.read(json.dumps(document), "file")
    assert trace.skipped.count == 1
    assert "request 0" in trace.skipped.messages[0]
    assert trace.num_turns == 3


# --- Claude Code ---------------------------------------------------------------------------------


def test_claude_code_turns_and_calls_are_timed_by_their_lines() -> None:
    (session,) = claude_code.read(TEXTS["claude-code"], "file").sessions
    assert (session.session_id, session.model, session.harness) == ("cc", "opus", "claude-code")
    first, second = session.turns
    # Asked when the prompt was there (0.5 s), over with its last block (4 s).
    assert (first.arrival_s, first.duration_s) == (0.0, 3.5)
    assert (first.input_tokens, first.cached_tokens) == (1003, 900)
    assert session.arrival_s == datetime(2026, 2, 6, 22, 12, 0, 500_000, UTC).timestamp()
    bash, read = second.tools
    assert (bash.tool, bash.key, bash.timeout_s) == ("Bash", "git status", 120.0)
    assert (bash.start_s, bash.duration_s, bash.is_error) == (2.5, 6.0, True)
    assert (read.tool, read.key, read.duration_s) == ("Read", "", 0.5)
    assert (second.arrival_s, second.duration_s) == (8.5, 2.0)
    assert not second.gap_is_person


def test_claude_code_sub_agent_has_its_own_session() -> None:
    rows = claude_rows()
    for row in rows[2:]:
        row |= {"isSidechain": True, "agentId": "a7"}
    (session,) = claude_code.read(lines(rows), "file").sessions
    assert (session.session_id, session.parent_session_id) == ("cc/a7", "cc")


def test_claude_code_prompt_of_a_person_makes_a_persons_gap() -> None:
    rows = claude_rows()
    rows.append({**rows[1], "timestamp": "2026-02-06T22:13:11.000Z"})
    last: dict[str, Any] = json.loads(json.dumps(rows[6]))
    last["timestamp"] = "2026-02-06T22:13:15.000Z"
    last["message"]["id"] = "m3"
    rows.append(last)
    (session,) = claude_code.read(lines(rows), "file").sessions
    assert session.turns[2].gap_is_person
    assert session.turns[2].gap_s == pytest.approx(60.0)


@pytest.mark.parametrize(
    "damage",
    [
        {"timestamp": None},
        {"timestamp": "yesterday"},
        {"timestamp": 5},
        {"timestamp": "0001-01-01T00:00:00Z"},
        {"timestamp": "9999-12-31T00:00:00Z"},
        {"message": {"content": []}},
        {"message": {"id": "m1", "content": [3]}},
        {"message": {"id": "m1", "content": [{"type": "tool_use", "name": "x"}]}},
        {"message": {"id": "m1", "usage": {"input_tokens": -4}}},
    ],
)
def test_damaged_claude_code_line_costs_only_itself(damage: dict[str, object]) -> None:
    rows = claude_rows()
    rows[3] |= damage
    trace = claude_code.read(lines(rows), "file")
    assert trace.skipped.count == 1
    assert trace.num_turns == 2
    assert [call.tool for call in trace.sessions[0].turns[1].tools] == ["Bash"]


# --- mini-SWE-agent ------------------------------------------------------------------------------


def test_mini_swe_agent_actions_last_until_their_observation() -> None:
    (session,) = mini_swe_agent.read(TEXTS["mini-swe-agent"], "file").sessions
    assert (session.session_id, session.model) == ("task", "sonnet")
    first, second, third = session.turns
    assert (first.arrival_s, first.input_tokens, first.output_tokens) == (0.0, 500, 40)
    (call,) = second.tools
    assert (call.tool, call.key) == ("bash", "pytest")
    assert (call.start_s, call.duration_s, call.timeout_s) == (0.0, 7.5, 30.0)
    assert (second.arrival_s, second.duration_s) == (7.5, 2.5)
    # Two actions in 4 s: one after the other.
    assert [(c.key, c.start_s, c.duration_s) for c in third.tools] == [
        ("ls", 10.0, 2.0),
        ("cat", 12.0, 2.0),
    ]


def test_mini_swe_agent_first_call_begins_when_its_reply_was_created() -> None:
    document: dict[str, Any] = mini_document()
    response = document["messages"][2]["extra"]["response"]
    response["created"] = 996
    response["usage"]["prompt_tokens_details"] = {"cached_tokens": 320}
    (session,) = mini_swe_agent.read(json.dumps(document), "file").sessions
    first, second, _ = session.turns
    assert session.arrival_s == 996.0
    assert (first.arrival_s, first.duration_s, first.cached_tokens) == (0.0, 4.0, 320)
    assert (second.arrival_s, second.tools[0].start_s, second.cached_tokens) == (11.5, 4.0, None)


@pytest.mark.parametrize("created", [None, 1_001, 1_000, 1_000 - 3_601, "2026-01-01", -7_000])
def test_mini_swe_agent_first_call_whose_begin_nobody_tells_has_no_duration(
    created: object,
) -> None:
    document: dict[str, Any] = mini_document()
    response = document["messages"][2]["extra"]["response"]
    for message in document["messages"]:
        if "extra" in message:
            message["extra"]["timestamp"] += 5_000.0
    response["created"] = created + 5_000 if isinstance(created, int) else created
    response["usage"]["prompt_tokens_details"] = {"cached_tokens": "many"}
    trace = mini_swe_agent.read(json.dumps(document), "file")
    (session,) = trace.sessions
    assert trace.skipped.count == 0
    assert session.arrival_s == 6_000.0
    assert (session.turns[0].arrival_s, session.turns[0].duration_s) == (0.0, None)
    assert session.turns[0].cached_tokens is None


def test_mini_swe_agent_trajectory_of_release_1_is_read_too() -> None:
    document: dict[str, object] = {
        "trajectory_format": "mini-swe-agent-1",
        "messages": [
            {"role": "user", "content": "SECRET", "timestamp": 90.0},
            {"role": "assistant", "content": "x\n```bash\nmake all\n```", "timestamp": 95.0},
            {"role": "user", "content": "SECRET", "timestamp": 99.0},
            {"role": "assistant", "content": "done", "timestamp": 100.0},
        ],
    }
    (session,) = mini_swe_agent.read(json.dumps(document), "file").sessions
    assert session.session_id == "file"
    assert session.turns[0].duration_s == 5.0
    (call,) = session.turns[1].tools
    assert (call.key, call.duration_s) == ("make all", 4.0)


@pytest.mark.parametrize(
    "message",
    [3, {"extra": {"timestamp": "late"}}, {"role": "assistant", "extra": {"timestamp": 1e999}}],
)
def test_damaged_mini_swe_agent_message_costs_only_itself(message: object) -> None:
    document: dict[str, Any] = mini_document()
    document["messages"].insert(4, message)
    trace = mini_swe_agent.read(json.dumps(document), "file")
    assert trace.skipped.count == 1
    assert trace.num_turns == 3


def test_other_json_is_no_trajectory() -> None:
    with pytest.raises(MalformedTrace, match="trajectory_format"):
        mini_swe_agent.read('{"messages": []}', "file")


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_no_prompt_argument_or_output_is_taken_over(name: str) -> None:
    trace = READERS[name](TEXTS[name], "file")
    assert "SECRET" not in json.dumps(asdict(trace))
    assert "secret" not in json.dumps(asdict(trace))


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{" * 50_000, '{"requests": 3}', "\x00"])
def test_text_of_another_kind_is_refused_in_one_line(name: str, text: str) -> None:
    with pytest.raises(MalformedTrace) as caught:
        READERS[name](text, "file")
    assert "\n" not in str(caught.value)


@given(st.sampled_from(sorted(READERS)), st.integers(0, 3000), st.integers(0, 3000), st.text())
def test_any_damage_is_read_around_or_refused(
    name: str, first: int, last: int, middle: str
) -> None:
    text = TEXTS[name]
    damaged = text[: min(first, len(text))] + middle + text[min(last, len(text)) :]
    try:
        trace = READERS[name](damaged, "file")
    except MalformedTrace:
        return
    assert trace.num_turns > 0
    for session in trace.sessions:
        assert all(turn.arrival_s >= 0.0 for turn in session.turns)
        assert all(c.duration_s >= 0.0 for turn in session.turns for c in turn.tools)
