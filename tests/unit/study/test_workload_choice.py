from dataclasses import replace
from pathlib import Path

import pytest
from trace_rows import lines

from tao_coordinator.study.workload_choice import WorkloadChoice


@pytest.fixture
def long_session(tmp_path: Path) -> WorkloadChoice:
    """Six turns from 100k tokens to 600k, each after 30 s, the last with a reply of 9,000."""
    rows = [
        {
            "request_id": f"s:{turn}", "session_id": "s", "turn": turn,
            "input_length": 100_000 * (turn + 1), "output_length": 9_000 if turn == 5 else 50,
            "llm_ms": 1_000, "gap_before_ms": 30_000, "arrival_ms": 31_000 * turn,
        }
        for turn in range(6)
    ]  # fmt: skip
    path = tmp_path / "trace.jsonl"
    path.write_text(lines(rows), encoding="utf-8")
    return WorkloadChoice(name="agentx", trace=str(path))


def test_every_limit_on_recorded_sessions_can_be_set(long_session: WorkloadChoice) -> None:
    uncut = replace(
        long_session, context_tokens_max=1_048_576, turns_max=1_000, output_tokens_max=100_000
    )
    (whole,) = uncut.recorded()
    assert [turn.input_tokens for turn in whole.turns] == [100_000 * n for n in range(1, 7)]
    assert whole.turns[-1].output_tokens == 9_000
    (short,) = replace(uncut, context_tokens_max=450_000).recorded()
    assert len(short.turns) == 4
    (few,) = replace(uncut, turns_max=3).recorded()
    assert len(few.turns) == 3
    (cut,) = replace(uncut, output_tokens_max=1_000).recorded()
    assert cut.turns[-1].output_tokens == 1_000
    assert {turn.gap_s for turn in whole.turns[:-1]} == {30.0}
    (quick,) = replace(uncut, gap_s_max=10.0).recorded()
    assert {turn.gap_s for turn in quick.turns[:-1]} == {10.0}
