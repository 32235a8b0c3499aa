"""Runs many cells on all cores: progress, interruption, and a file of results to go on from."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path

from tao_coordinator.study.cell import Cell, CellResult, run_cell

Report = Callable[[str], None]
RESULTS_NAME = "cells.jsonl"


class ResultFile:
    """Results by cell id, one JSON line each; what is there already is not run again."""

    def __init__(self, path: Path | None, *, resume: bool) -> None:
        """Read what is there, or begin anew; without a path nothing is kept.

        Raises:
            OSError: the file cannot be read or written.
        """
        self._path = path
        self.known: dict[str, CellResult] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            path.unlink(missing_ok=True)
        elif path.exists():
            text = path.read_text(encoding="utf-8")
            if text and not text.endswith("\n"):
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")
            for line in text.splitlines():
                try:
                    result = CellResult.from_json(line)
                except ValueError:
                    continue  # cut off while it was written: that cell is run again
                self.known[result.cell_id] = result

    def add(self, result: CellResult) -> None:
        """Keep one more, on disk at once."""
        self.known[result.cell_id] = result
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(result.to_json() + "\n")


def sweep(
    cells: Sequence[Cell], results: ResultFile, *, jobs: int, report: Report
) -> list[CellResult]:
    """Results of all cells, in their order; equal cells are run once.

    Args:
        cells: what to run.
        results: what is known already; every new result goes there as soon as it is there.
        jobs: processes; 1 runs everything in this one.
        report: told of each finished cell.
    """
    missing: dict[str, Cell] = {}
    for cell in cells:
        if cell.cell_id not in results.known:
            missing.setdefault(cell.cell_id, cell)
    if len(missing) < len(cells):
        report(f"{len(cells)} cells, {len(missing)} to run")
    finished = (
        map(_run_one, missing.values()) if jobs == 1 else _in_processes(missing.values(), jobs)
    )
    began_s = time.monotonic()
    for number, (cell, result) in enumerate(finished, start=1):
        results.add(result)
        left_s = (time.monotonic() - began_s) / number * (len(missing) - number)
        report(
            f"{number}/{len(missing)} {cell.panel} | {cell.arm} | seed {cell.seed}: "
            f"{result.wall_s:.1f} s, about {left_s:.0f} s left"
        )
    return [results.known[cell.cell_id] for cell in cells]


def default_jobs() -> int:
    """All cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _run_one(cell: Cell) -> tuple[Cell, CellResult]:
    return cell, run_cell(cell)


def _in_processes(cells: Iterable[Cell], jobs: int) -> Iterable[tuple[Cell, CellResult]]:
    """As they finish. On interruption, what runs is given up and what is queued never starts."""
    pool = ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_the_parent
    )
    try:
        running: set[Future[tuple[Cell, CellResult]]] = {
            pool.submit(_run_one, cell) for cell in cells
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
