"""Many backends, unequal ones: what placement has to do where there is much to place."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import PLACEHOLDER, QWEN, cross
from tao_coordinator.study.study import (
    DECISION,
    DECISION_P99,
    FALLBACKS,
    HIT_RATE,
    HOLD_STARTED,
    MOVED,
    OURS,
    TASK,
    TASK_P99,
    TOKENS,
    TTFT,
    Study,
    StudyOptions,
    arms,
)


def _cell(options: StudyOptions, panel: str, num_backends: int, sessions: int) -> Cell:
    return Cell(
        panel=panel,
        arm="",
        policy=PLACEHOLDER,
        workload=options.workload("swe-lite"),
        seed=0,
        sessions=options.sessions(sessions),
        engine=QWEN,
        num_backends=num_backends,
        pressure=1.5,
        x=float(num_backends),
    )


def _many_cells(options: StudyOptions) -> list[Cell]:
    """Small pools, so that hundreds of backends need thousands of sessions, not tens of them."""
    cells: list[Cell] = []
    for number in (8, 16, 32, 64):
        cell = _cell(options, f"{number} backends", number, 1)
        cell = replace(cell, pools=(80_000,) * number)
        cells.append(replace(cell, sessions=options.sessions(2 * cell.num_workers())))
    return cross(options, cells, arms(OURS, "cache-aware", "thunderagent", "tao-paper"))


STUDIES: Final = (
    Study(
        name="many-backends",
        title="8 to 64 backends",
        asks="Does what holds on four backends hold on many, and what does a decision cost?",
        make_cells=_many_cells,
        columns=(TASK, TASK_P99, TOKENS, TTFT, HIT_RATE, HOLD_STARTED, MOVED, FALLBACKS, DECISION,
                 DECISION_P99),
        versus=(TASK, TTFT, TOKENS),
        reading="Pools of 80,000 tokens, SWE-Lite sessions, 1.5 times the pools.",
    ),
)  # fmt: skip
