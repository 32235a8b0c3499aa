"""Recorded sessions as scripts."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from tao_coordinator.simulation.trace_sessions import TraceReading, drawn, scripts_of
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    ToolRecord,
    Trace,
    TurnRecord,
)

READING = TraceReading(turns_min=1)


def turn(number: int, prompt: int | None, output: int | None = 50, **more: object) -> TurnRecord:
    known: dict[str, object] = {"arrival_s": 10.0 * number, "duration_s": 4.0, **more}
    return TurnRecord(
        request_id=f"r{number}",
        input_tokens=prompt,
        output_tokens=output,
        **known,  # pyright: ignore[reportArgumentType]
    )


def trace(*turns: TurnRecord, reliable: bool = True) -> Trace:
    session = SessionRecord(session_id="s", turns=turns, output_tokens_are_reliable=reliable)
    return Trace(format="test", sessions=(session,))


def kept(turns: Sequence[TurnRecord], reading: TraceReading = READING) -> list[int]:
    return [t.kept_tokens for t in scripts_of(trace(*turns), reading, 1)[0].turns]


def test_a_growing_prompt_keeps_its_context_and_a_shrunken_one_only_what_is_shared() -> None:
    turns = [turn(0, 1000), turn(1, 1200), turn(2, 700), turn(3, 760)]
    assert kept(turns) == [0, 1050, 0, 750]
    assert kept(turns, replace(READING, shared_tokens=400)) == [0, 1050, 400, 750]


def test_recorded_blocks_say_what_is_kept() -> None:
    blocks = {"block_size": 64}
    turns = [
        turn(0, 640, block_runs=((1, 10),), **blocks),
        turn(1, 960, block_runs=((1, 10), (30, 5)), **blocks),  # all of it, hence the reply too
        turn(2, 960, block_runs=((1, 4), (80, 11)), **blocks),  # rewritten after four blocks
        turn(3, 1000, block_runs=((1, 2), (3, 2), (80, 11)), **blocks),  # the same, other runs
    ]
    assert kept(turns) == [0, 690, 256, 1000]


def test_pauses_and_calls_are_those_before_the_next_turn() -> None:
    tool = ToolRecord(call_id="a", tool="Bash", key="make", start_s=4.0, duration_s=3.0)
    other = replace(tool, call_id="b", start_s=5.0, duration_s=900.0, timeout_s=600.0)
    found = scripts_of(
        trace(turn(0, 100), turn(1, 200, tools=(tool, other), gap_s=500.0), turn(2, 300)),
        READING,
        1,
    )[0].turns
    assert [(t.offset_s, t.duration_s) for t in found[0].tools] == [(0.0, 3.0), (1.0, 600.0)]
    assert found[0].tool_phase_s == 601.0
    assert found[0].gap_s == 60.0
    assert (found[1].tools, found[2].tools) == ((), ())


def test_replies_of_unknown_length_are_drawn_around_the_published_median() -> None:
    turns = [turn(n, 1000 + n, 2) for n in range(60)]
    reading = replace(READING, output_tokens_max=10**6)
    many = [
        t.output_tokens
        for seed in range(20)
        for t in scripts_of(trace(*turns, reliable=False), reading, seed)[0].turns
    ]
    assert median(many) == pytest.approx(144, rel=0.1)
    assert scripts_of(trace(*turns), reading, 1) == scripts_of(trace(*turns), reading, 1)


def test_sessions_are_cut_and_short_ones_left_out() -> None:
    turns = [turn(n, 1_000 * (n + 1)) for n in range(10)]
    assert len(scripts_of(trace(*turns), replace(READING, turns_max=4), 1)[0].turns) == 4
    small = replace(READING, context_tokens_max=5_500)
    assert len(scripts_of(trace(*turns), small, 1)[0].turns) == 5
    with pytest.raises(MalformedTrace, match=r"takes 3 model calls .* of 1 sessions is 1"):
        scripts_of(trace(turn(0, 100), turn(1, None)), TraceReading(), 1)
    with pytest.raises(MalformedTrace, match="within 2,500 tokens of context"):
        scripts_of(trace(*turns), TraceReading(context_tokens_max=2_500), 1)


def test_everybody_comes_once_before_anybody_comes_twice() -> None:
    scripts = [
        scripts_of(trace(turn(0, 100 + n)), READING, 1)[0].renamed(f"s{n}") for n in range(7)
    ]
    found = drawn(scripts, 20, seed=3)
    assert len({script.session_id for script in found}) == 20
    first_lap = sorted(script.session_id for script in found[:7])
    assert first_lap == [f"s{n}" for n in range(7)]
    assert found != drawn(scripts, 20, seed=4)
