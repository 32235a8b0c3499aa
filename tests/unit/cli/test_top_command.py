"""`tao top`: a picture that fits the terminal and cannot steer it."""

import json
from pathlib import Path
from typing import Any

import pytest
from coordinator_process import coordinator, refused_url, stub_backends

from tao_coordinator.cli import main, top


def session(name: str, phase: str = "tool") -> dict[str, Any]:
    return {
        "session_id": name,
        "phase": phase,
        "open_tools": [{"name": "bash", "age_s": 2.0, "background": False}],
        "seat_backend_id": "a",
        "seat_released": True,
        "context_tokens": 12_345,
        "turns": 3,
        "expected_return": {"median_s": 4.0, "source": "history"},
    }


def held(name: str) -> dict[str, Any]:
    return {
        "session_id": name,
        "input_tokens": 1_000,
        "hold_s": 65.0,
        "started": True,
        "overdue": True,
        "because": "no_room",
    }


def document(sessions: list[dict[str, Any]], waiting: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": "1",
        "policy": "tao",
        "uptime_s": 5.0,
        "num_held": len(waiting),
        "num_overdue": len(waiting),
        "longest_hold_s": 65.0,
        "num_sessions": len(sessions),
        "phases": {"inference": 0, "tool": len(sessions), "wait": 0, "idle": 0, "held": 0},
        "backends": [
            {
                "backend_id": "a",
                "healthy": False,
                "draining": False,
                "budget_tokens": 1_000,
                "committed_tokens": 250,
                "num_in_flight": 1,
                "num_seats": 2,
                "running": None,
                "waiting": None,
                "capacity_factor": 1.0,
            }
        ],
        "held": waiting,
        "sessions": sessions,
    }


def test_everything_is_there() -> None:
    text = "\n".join(top.lines(document([session("s1")], [held("h1")]), 200, 50))
    for word in ("SILENT", "1,000 (25%)", "h1", "OVERDUE", "no room", "s1", "bash 2.0 s", "4.0 s"):
        assert word in text


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 10), (20, 3), (1, 1)])
def test_it_fits_the_terminal(columns: int, rows: int) -> None:
    crowded = document([session(f"s{n}") for n in range(90)], [held(f"h{n}") for n in range(90)])
    text = top.lines(crowded, columns, rows)
    assert len(text) <= rows
    assert all(len(line) <= columns for line in text)
    if rows == 24:
        assert any("s0" in line for line in text), "the pool leaves room for sessions"
        assert any("h0" in line for line in text)


@pytest.mark.parametrize(
    ("journal", "shown"),
    [
        (None, False),
        ({"rows_dropped": 0, "error": None}, False),
        ({"rows_dropped": 1_200, "error": "No space left on device"}, True),
    ],
)
def test_journal_that_loses_rows_is_told(journal: dict[str, Any] | None, shown: bool) -> None:
    text = top.lines(document([], []) | {"journal": journal}, 120, 50)
    assert ("journal: 1,200 rows lost: No space left on device" in text) is shown
    assert any("journal" in line for line in text) is shown


def test_names_cannot_steer_the_terminal() -> None:
    text = "\n".join(top.lines(document([session("\x1b[2Jevil\x07")], [held("\r\x9b1A")]), 200, 50))
    assert all(c.isprintable() or c == "\n" for c in text)


def test_real_coordinator_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", f"gpu={stub.url}", "--api-key=k") as process,
    ):
        flags = ["--endpoint", process.url, "--api-key", "k"]
        assert main(["top", "--once", *flags]) == 0
        shown = capsys.readouterr().out
        assert "gpu" in shown
        assert "nobody waits" in shown
        assert main(["top", "--json", *flags]) == 0
        assert json.loads(capsys.readouterr().out)["policy"] == "tao"
        assert main(["top", "--once", "--endpoint", process.url]) == 2
        assert "key" in capsys.readouterr().err


def test_nobody_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--endpoint", refused_url()]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_nonsense_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--interval", "0"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
