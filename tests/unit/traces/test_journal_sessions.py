"""Sessions of a journal: rows of a coordinator put together again."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.traces import agent_rows, files
from tao_coordinator.traces.formats import read
from tao_coordinator.traces.records import MalformedTrace, SessionRecord

T0 = 1_796_000_000_000.0
HEAD = '{"agent_trace":1,"written_by":"tao coordinator 0.1.0"}\n'
Row = dict[str, object]


def call(number: int, at_ms: float, *, session: str = "s", **more: Any) -> Row:
    """A call asked for at `at_ms`, held for 100 ms, answered within another 900."""
    return {
        "request_id": f"{session}:{number}", "session_id": session, "timestamp": T0 + at_ms,
        "hold_ms": 100.0, "llm_ms": 900.0, "input_length": 1_000 + number, "output_length": 20,
        "cached_length": 10, "backend": "a", "outcome": "completed", **more,
    }  # fmt: skip


def tool(at_ms: float, ms: float, *, session: str = "s", agent: str = "", **more: object) -> Row:
    event = {
        "tool_call_id": "c", "tool_class": "Bash", "started_at_unix_ms": T0 + at_ms,
        "duration_ms": ms, "status": "ok", **more,
    }  # fmt: skip
    return {"session_id": session, "tool_events": [event], **({"agent": agent} if agent else {})}


def end(at_ms: float, session: str = "s", **more: object) -> Row:
    return {"session_id": session, "ended_at_unix_ms": T0 + at_ms, **more}


def journal(rows: Sequence[Mapping[str, object]]) -> str:
    return HEAD + "".join(json.dumps(row) + "\n" for row in rows)


def sessions(rows: Sequence[Mapping[str, object]]) -> dict[str, SessionRecord]:
    return {session.session_id: session for session in read(journal(rows), "j").sessions}


def test_turns_tools_and_gaps_by_wall_time_in_any_order_of_rows() -> None:
    rows = [call(0, 0), tool(1_100, 400), call(1, 2_000), tool(3_000, 500), call(2, 3_500)]
    random.Random(3).shuffle(rows)
    (session,) = sessions(rows).values()
    assert session.arrival_s == T0 / 1e3
    first, second, third = session.turns
    assert [turn.arrival_s for turn in session.turns] == [0.0, 2.0, 3.5]
    assert (first.hold_s, first.duration_s, first.tools) == (0.1, 0.9, ())
    assert (first.input_tokens, first.cached_tokens, first.output_tokens) == (1_000, 10, 20)
    assert [t.start_s for t in second.tools] == [pytest.approx(1.1)]
    assert second.gap_s == pytest.approx(0.5), "asked 2.0, tool over at 1.5"
    assert [t.duration_s for t in third.tools] == [0.5]
    assert third.gap_s == 0.0


@pytest.mark.parametrize("at_ms", [900, 1_000, 1_500, 2_000, 2_100])
def test_tool_told_a_little_early_or_late_lies_between_its_turns(at_ms: float) -> None:
    """Its events and the calls' take different ways to the coordinator."""
    (session,) = sessions([call(0, 0), call(1, 2_000), tool(at_ms, 1)]).values()
    assert [len(turn.tools) for turn in session.turns] == [0, 1]


def test_tool_after_the_last_reply_belongs_to_no_turn() -> None:
    (session,) = sessions([call(0, 0), tool(1_500, 1)]).values()
    assert [turn.tools for turn in session.turns] == [()]


def test_background_call_is_no_gap() -> None:
    rows = [call(0, 0), tool(1_200, 60_000, background=True), call(1, 2_000)]
    (session,) = sessions(rows).values()
    assert session.turns[1].tools[0].background
    assert session.turns[1].gap_s == pytest.approx(1.0)


def test_parallel_calls_leave_no_gap_below_zero() -> None:
    (session,) = sessions([call(0, 0), call(1, 100), call(2, 200)]).values()
    assert [turn.gap_s for turn in session.turns] == [0.0, 0.0, 0.0]


def test_agents_of_one_session_are_sessions_of_their_own() -> None:
    rows = [
        call(0, 0), call(1, 500, agent="sub"), tool(1_600, 10, agent="sub"),
        tool(1_700, 20), call(2, 2_000, agent="sub"), call(3, 2_500),
    ]  # fmt: skip
    found = sessions(rows)
    assert list(found) == ["s", "s/sub"]
    assert found["s/sub"].parent_session_id == "s"
    assert [t.duration_s for turn in found["s/sub"].turns for t in turn.tools] == [0.01]
    assert [t.duration_s for turn in found["s"].turns for t in turn.tools] == [0.02]


def test_tool_of_an_agent_that_is_not_told_goes_to_the_busiest() -> None:
    rows = [call(n, 2_000 * n, agent="main") for n in range(3)]
    rows += [call(9, 0, agent="sub"), tool(1_500, 7)]
    found = sessions(rows)
    assert [t.duration_s for turn in found["s/main"].turns for t in turn.tools] == [0.007]


def test_models_of_one_session_have_prompts_of_their_own() -> None:
    rows = [call(n, 2_000 * n, model="big") for n in range(3)] + [call(7, 1_000, model="small")]
    found = sessions(rows)
    assert [(s.model, len(s.turns)) for s in found.values()] == [("big", 3), ("small", 1)]


def test_id_that_is_used_again_after_its_end_is_another_session() -> None:
    rows = [call(0, 0), end(1_200), tool(5_500, 3), call(1, 5_000), call(2, 6_000)]
    found = sessions(rows)
    assert {name: len(s.turns) for name, s in found.items()} == {"s": 1, "s#2": 2}
    assert [len(turn.tools) for turn in found["s#2"].turns] == [0, 1]


def test_end_of_an_agent_ends_only_itself() -> None:
    rows = [call(0, 0), call(1, 0, agent="x"), end(1_500, agent="x"), call(2, 2_000)]
    assert {name: len(s.turns) for name, s in sessions(rows).items()} == {"s": 2, "s/x": 1}


@pytest.mark.parametrize(
    ("more", "is_there"),
    [
        ({"outcome": "error", "output_length": None}, False),
        ({"outcome": "cancelled", "output_length": 0}, False),
        ({"outcome": "cancelled", "output_length": 7}, True),
        ({"outcome": "lost", "output_length": None}, True),
    ],
)
def test_call_that_left_nothing_is_no_turn(more: dict[str, Any], is_there: bool) -> None:
    rows = [call(0, 0), call(1, 2_000, **more), call(2, 4_000)]
    (session,) = sessions(rows).values()
    assert len(session.turns) == 2 + is_there


def test_header_only_is_said_to_be_empty() -> None:
    with pytest.raises(MalformedTrace, match="j: no model call in it yet"):
        read(HEAD, "j")


def test_other_version_is_refused_by_name_and_number() -> None:
    text = HEAD.replace(":1,", ":2,") + json.dumps(call(0, 0))
    with pytest.raises(
        MalformedTrace, match="j: version 2 of the format; this tao reads version 1"
    ):
        read(text, "j")


def test_half_written_last_line_is_one_message() -> None:
    text = journal([call(0, 0), call(1, 2_000)])
    trace = read(text[:-40], "j")
    assert (trace.num_turns, trace.skipped.count) == (1, 1)
    assert trace.skipped.messages[0].startswith("line 3: no JSON")


def test_huge_line_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_rows, "LINE_CHARS_MAX", 1_000)
    trace = read(journal([call(0, 0, note="x" * 2_000), call(1, 0)]), "j")
    assert (trace.num_turns, trace.skipped.count) == (1, 1)
    assert "longer than" in trace.skipped.messages[0]


def test_damaged_head_leaves_the_rows() -> None:
    trace = read("{}garbage\n" + journal([tool(1_500, 3), call(0, 0), call(1, 2_000)]), "j")
    assert (trace.num_turns, trace.num_tool_calls, trace.skipped.count) == (2, 1, 1)


def test_name_that_no_file_can_hold_costs_its_row() -> None:
    trace = read(journal([call(0, 0, session="\ud800"), call(1, 0)]), "j")
    assert (trace.num_turns, trace.skipped.count) == (1, 1)


def test_files_of_one_folder_are_one_journal(tmp_path: Path) -> None:
    rows = [call(0, 0), tool(1_200, 9), call(1, 2_000), call(2, 4_000)]
    (tmp_path / "journal-1.jsonl").write_text(journal(rows[:1]))
    (tmp_path / "journal-2.jsonl").write_text(journal(rows[1:3]) + '{"torn')
    (tmp_path / "journal-3.jsonl").write_text(journal(rows[3:]))
    (tmp_path / "journal-4.jsonl").write_text("")
    (tmp_path / "journal-5.jsonl.gz").write_bytes(b"\x1f\x8b\x08")
    trace = files.load(tmp_path)
    ((first, second, third),) = [session.turns for session in trace.sessions]
    assert (first.tools, len(second.tools), third.tools) == ((), 1, ())
    assert trace.skipped.count == 3
    words = " ".join(trace.skipped.messages)
    assert "journal-2.jsonl line 4: no JSON" in words
    assert "journal-4.jsonl: empty" in words
    assert "journal-5.jsonl.gz: damaged gzip" in words


_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.just(T0), st.just(1e300), st.just("\ud800"), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["tool_class", "duration_ms"]), st.integers(), max_size=2),
)  # fmt: skip
_names = st.sampled_from(
    ["request_id", "session_id", "agent", "model", "timestamp", "hold_ms", "llm_ms", "outcome",
     "input_length", "output_length", "tool_events", "ended_at_unix_ms", "agent_trace"]
)  # fmt: skip
_rows = st.sampled_from([call(0, 0), call(1, 2_000, agent="x"), tool(1_500, 9), end(10_000)])


@given(st.lists(st.tuples(_rows, st.dictionaries(_names, _values, max_size=3)), max_size=6))
def test_any_values_are_read_or_refused(changes: list[tuple[Row, Row]]) -> None:
    try:
        trace = read(journal([{**row, **change} for row, change in changes]), "j")
    except MalformedTrace:
        return
    for session in trace.sessions:
        session.session_id.encode()
        arrivals = [turn.arrival_s for turn in session.turns]
        assert arrivals == sorted(arrivals)
        assert all(turn.gap_s >= 0 for turn in session.turns)
    assert len({session.session_id for session in trace.sessions}) == len(trace.sessions)


@given(st.data())
def test_any_damage_to_the_bytes_is_read_around(data: st.DataObject) -> None:
    rows = [call(0, 0), tool(1_500, 9), call(1, 2_000), end(3_500), call(2, 9_000)]
    text = bytearray(journal(rows).encode())
    for _ in range(data.draw(st.integers(0, 8))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(text)))
    try:
        trace = read(bytes(text[:cut]).decode("utf-8", "replace"), "j")
    except MalformedTrace:
        return
    assert trace.num_turns <= 3
