"""Runs many cells on all cores: progress, interruption, and a file of results to go on from.

A cell that fails, hangs or takes its process with it is told in a line; the others go on.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tao_coordinator.errors import ConfigurationError, CoordinatorError
from tao_coordinator.study import workers
from tao_coordinator.study.cell import Cell, CellResult, run_cell
from tao_coordinator.study.workers import Ended, Failure, Running

Report = Callable[[str], None]
RESULTS_NAME = "cells.jsonl"
_CUT_OFF = b'{"cell_id": '
CELL_LIMIT_S = 3_600.0
"""A cell that takes longer is given up."""


class CellsFailed(CoordinatorError):
    """Some cells have no result; those of the others are kept."""

    def __init__(self, failures: Sequence[tuple[Cell, Failure]], num_cells: int) -> None:
        """Name the first of them."""
        cell, failure = failures[0]
        super().__init__(
            f"{len(failures)} of {num_cells} cells failed, the first was {_name(cell)}: "
            f"{failure.reason}"
        )
        self.failures = failures

    def details(self) -> str:
        """All of them, with their tracebacks."""
        parts = (f"{_name(cell)}: {f.reason}\n{f.details}" for cell, f in self.failures)
        return "\n".join(parts)


class ResultFile:
    """Results by cell id, one JSON line each; what is there already is not run again."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        """Read what is there, or begin anew; without a path nothing is kept.

        Raises:
            OSError: the file cannot be read or written.
            ConfigurationError: it is somebody's file of another kind, or ends in a line that is; it
                is left as it is.
        """
        self._path = path
        self.known: dict[str, CellResult] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            path.unlink(missing_ok=True)
        elif path.exists():
            self._read(path)

    def _read(self, path: Path) -> None:
        """Take in what is there; a line that was cut off while it was written goes."""
        data = path.read_bytes()
        lines = data.splitlines(keepends=True)
        for line in lines:
            try:
                result = CellResult.from_json(line.decode())
            except ValueError:
                continue
            self.known[result.cell_id] = result
        last = b"" if data.endswith(b"\n") or not lines else lines[-1]
        is_cut_off = bool(last.strip()) and not _is_json(last)
        is_alone = is_cut_off and len(lines) == 1 and last.startswith(_CUT_OFF)
        if data.strip() and not self.known and not is_alone:
            raise ConfigurationError(
                f"{path} holds something else than results of runs (or those of another version): "
                "name another file, or remove it"
            )
        if is_cut_off and not _may_begin(last):
            raise ConfigurationError(
                f"the last line of {path} is something else than a result of a run: remove the "
                "line, or name another file"
            )
        if is_cut_off:
            with path.open("rb+") as file:
                file.truncate(len(data) - len(last))
        elif last:
            with path.open("ab") as file:
                file.write(b"\n")

    def add(self, result: CellResult) -> None:
        """Keep one more, on disk at once."""
        self.known[result.cell_id] = result
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(result.to_json() + "\n")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _may_begin(line: bytes) -> bool:
    """Whether a result that is cut off looks like this."""
    return line.startswith(_CUT_OFF) or _CUT_OFF.startswith(line)


def sweep(
    cells: Sequence[Cell],
    results: ResultFile,
    *,
    jobs: int | None,
    report: Report,
    limit_s: float = CELL_LIMIT_S,
) -> list[CellResult]:
    """Results of all cells, in their order; equal cells are run once.

    Args:
        cells: what to run.
        results: what is known already; every new result goes there as soon as it is there.
        jobs: processes; `None` runs everything in this one, where nothing can end a cell that
            hangs.
        report: told of each finished cell, and once a minute of what runs.
        limit_s: longest time for one cell.

    Raises:
        CellsFailed: some have no result; told after all others are done.
    """
    missing: dict[str, Cell] = {}
    for cell in cells:
        if cell.cell_id not in results.known:
            missing.setdefault(cell.cell_id, cell)
    if len(missing) < len(cells):
        report(f"{len(cells)} cells, {len(missing)} to run")
    failures: list[tuple[Cell, Failure]] = []
    began_s = time.monotonic()
    number = 0
    for told in _run(missing.values(), jobs, limit_s):
        if not isinstance(told, Ended):
            for cell, for_s in told:
                report(f"still running: {_name(cell)}, for {for_s:.0f} s")
            continue
        number += 1
        cell, outcome = told
        where = f"{number}/{len(missing)} {_name(cell)}"
        if isinstance(outcome, Failure):
            failures.append((cell, outcome))
            report(f"{where}: FAILED: {outcome.reason}")
            continue
        results.add(outcome)
        left_s = (time.monotonic() - began_s) / number * (len(missing) - number)
        report(f"{where}: {outcome.wall_s:.1f} s, about {left_s:.0f} s left")
    if failures:
        raise CellsFailed(failures, len(missing))
    return [results.known[cell.cell_id] for cell in cells]


def default_jobs() -> int:
    """All cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    most = 60 if sys.platform == "win32" else 1_000  # more than 63 handles cannot be waited for
    return min(most, os.cpu_count() or 1)


def _run(
    cells: Iterable[Cell], jobs: int | None, limit_s: float
) -> Iterator[Ended[Cell, CellResult] | list[Running[Cell]]]:
    if jobs is not None:
        return workers.run_all(run_cell, cells, workers=jobs, limit_s=limit_s)
    return (Ended(cell, workers.attempt(run_cell, cell)) for cell in cells)


def _name(cell: Cell) -> str:
    return f"{cell.panel} | {cell.arm} | seed {cell.seed}"
