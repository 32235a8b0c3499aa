"""`tao bench readiness` from the command line."""

import json
from pathlib import Path

import pytest
from trace_rows import agent_rows, lines

from tao_coordinator.cli import main


@pytest.fixture
def trace_path(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text(lines(agent_rows()))
    return path


def test_json_holds_every_measure_per_predictor(
    trace_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "readiness", str(trace_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["format"], shown["num_calls"]) == ("agent-trace", 1)
    assert set(shown["predictors"]) == {"hazard", "paper"}
    hazard = shown["predictors"]["hazard"]
    assert {"f1", "auc", "brier", "calibration_error"} <= set(hazard["calls_at_ticks"])
    assert {"mae_s", "close_share", "covered_share"} <= set(hazard["at_start"])
    assert hazard["calls_at_ticks"]["count"] > 0


def test_text_is_a_table_and_damaged_rows_are_named(
    trace_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with trace_path.open("a") as file:
        file.write("oops\n")
    arguments = ["bench", "readiness", str(trace_path), "--predictor", "paper"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "1 sessions, 1 tool calls" in shown.out
    assert "calls, 1 s ticks" in shown.out
    assert "hazard" not in shown.out
    assert "left out as damaged: 1 (line 3: no JSON" in shown.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jsonl"], "missing.jsonl"),
        (["{}", "--format", "csv"], "unknown trace format 'csv'"),
        (["{}", "--model", "x"], "no session of model 'x'"),
        (["{}", "--predictor", "guess"], "unknown predictor 'guess'"),
        (["{}", "--horizon", "0"], "--horizon"),
        (["{}", "--lanes", "0"], "--lanes"),
        (["{}", "--phases", "1000"], "--phases"),
    ],
)
def test_mistakes_are_one_line(
    trace_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    filled = [argument.replace("{}", str(trace_path)) for argument in arguments]
    assert main(["bench", "readiness", *filled]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("tao: ") == 1
