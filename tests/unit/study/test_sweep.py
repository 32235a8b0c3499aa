from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from study_cells import SMALL

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.study import sweep as sweeping
from tao_coordinator.study.cell import Cell, CellResult
from tao_coordinator.study.sweep import CellsFailed, ResultFile, default_jobs, sweep

CELLS = [replace(SMALL, seed=seed) for seed in (1, 2, 1)]


def test_results_come_in_order_and_equal_cells_run_once() -> None:
    said: list[str] = []
    results = sweep(CELLS, ResultFile(None, resume=False), jobs=None, report=said.append)
    assert [result.cell_id for result in results] == [cell.cell_id for cell in CELLS]
    assert results[0] is results[2]
    assert said[0] == "3 cells, 2 to run"
    assert len(said) == 3


def test_processes_give_what_one_process_gives() -> None:
    alone = sweep(CELLS, ResultFile(None, resume=False), jobs=None, report=lambda _: None)
    together = sweep(CELLS, ResultFile(None, resume=False), jobs=2, report=lambda _: None)
    assert [r.tasks_s for r in alone] == [r.tasks_s for r in together]


def test_interrupted_sweep_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "cells.jsonl"
    real = sweeping.run_cell
    started: list[int] = []

    def interrupted(cell: Cell) -> CellResult:
        started.append(cell.seed)
        if len(started) == 2:
            raise KeyboardInterrupt
        return real(cell)

    monkeypatch.setattr(sweeping, "run_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(CELLS, ResultFile(path, resume=False), jobs=None, report=lambda _: None)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"cell_id": "half a li')  # as a kill leaves it
    results = sweep(CELLS, ResultFile(path, resume=True), jobs=None, report=lambda _: None)
    assert started == [1, 2, 2]
    assert len(results) == 3
    assert len(ResultFile(path, resume=True).known) == 2
    assert ResultFile(path, resume=False).known == {}
    assert not path.exists()


def test_line_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    (whole,) = sweep(CELLS[:1], ResultFile(None, resume=False), jobs=None, report=lambda _: None)
    line = whole.to_json() + "\n"
    for left in ("", line[:12], line[:40], line[:-1], line + "{", line + line[:40]):
        path.write_text(left)
        kept = ResultFile(path, resume=True)
        sweep(CELLS[:1], kept, jobs=None, report=lambda _: None)
        (only,) = path.read_text().splitlines()
        assert CellResult.from_json(only).tasks_s == whole.tasks_s


@pytest.mark.parametrize(
    "text",
    [
        '{"session_id": "s", "turns": []}\n',
        '{"a": 1}',
        "notes",
        "\n\nnotes\n",
        "\xff\xfe\n",
        "[]\n",
        "{",
        '{"cell_id": 5, "measures": {}}',
        '{"cell_id": "print", "measures": {}}\n',
        '{"cell_id": "0123456789abcdef0123", "measures": {"x": 1' + "0" * 400 + "}}\n",
        "[" * 100_000 + "\n",
    ],
)
def test_file_of_somebody_else_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigurationError, match="something else than results of runs"):
        ResultFile(path, resume=True)
    assert path.read_bytes() == text.encode("latin-1")


@pytest.mark.parametrize(
    "last", ["my notes, do not lose", '{"a": 1', '{"cell_ix', "[" * 1_000, "\xff"]
)
def test_last_line_that_is_no_cut_off_result_is_left(tmp_path: Path, last: str) -> None:
    path = tmp_path / "cells.jsonl"
    line = CellResult("0123456789abcdef0123", {"x": 1.0}).to_json() + "\n"
    path.write_bytes((line + last).encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"last line of .* is something else"):
        ResultFile(path, resume=True)
    assert path.read_bytes() == (line + last).encode("latin-1")


def test_file_that_needs_no_repair_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(CellResult("0123456789abcdef0123", {"x": 1.0}).to_json() + "\n")
    real = Path.open

    def reads(path: Path, mode: str = "r", *rest: Any, **more: Any) -> IO[Any]:
        assert "r" in mode and "+" not in mode
        return real(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", reads)
    assert len(ResultFile(path, resume=True).known) == 1


@pytest.mark.parametrize("blank", ["", "\n\n", "  ", "\n \t"])
def test_file_of_blank_lines_is_empty(tmp_path: Path, blank: str) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text(blank)
    kept = ResultFile(path, resume=True)
    assert kept.known == {}
    kept.add(CellResult("0123456789abcdef0123", {"x": 1.0}))
    assert list(ResultFile(path, resume=True).known) == ["0123456789abcdef0123"]


def test_there_is_at_least_one_core() -> None:
    assert default_jobs() >= 1


def test_a_cell_that_fails_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    broken = replace(SMALL, engine="no-such-engine")
    cells = [CELLS[0], broken, CELLS[1]]
    kept = ResultFile(tmp_path / "cells.jsonl", resume=False)
    said: list[str] = []
    with pytest.raises(CellsFailed, match="1 of 3 cells failed, the first was small") as caught:
        sweep(cells, kept, jobs=2, report=said.append)
    assert any("FAILED: ConfigurationError: unknown engine" in line for line in said)
    assert "Traceback" in caught.value.details()
    assert set(ResultFile(tmp_path / "cells.jsonl", resume=True).known) == {
        CELLS[0].cell_id,
        CELLS[1].cell_id,
    }
