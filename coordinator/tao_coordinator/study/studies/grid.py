"""Helpers that turn a list of panels and arms into cells."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.study import StudyOptions

QWEN: Final = "qwen3-32b-bf16-tp2"
FLASH: Final = "deepseek-v4-flash-tp4"
GLM: Final = "glm-4.7-fp8-tp8ep8"
V3: Final = "deepseek-v3-fp8-tp8"
CODER: Final = "qwen3-coder-30b-a3b-fp8-tp2"
FLASH_POOL_TOKENS: Final = 600_000
"""Of the later release; with the earlier one's 4.4M no workload of the paper meets any pressure."""

Arm = tuple[str, PolicyChoice]


def cross(options: StudyOptions, cells: Sequence[Cell], arms: Sequence[Arm]) -> list[Cell]:
    """Every cell with every arm and every seed; the cells' own policy and seed are not used."""
    return [
        replace(cell, arm=name, policy=policy, seed=seed)
        for cell in cells
        for name, policy in arms
        for seed in options.seeds
    ]


PLACEHOLDER: Final = PolicyChoice("tao")


def paper_cell(
    options: StudyOptions, panel: str, workload: str, engine: str, num_backends: int, workers: int
) -> Cell:
    """One of the paper's own settings: model, number of nodes, tasks, workers (its axis)."""
    number = {
        "swe-lite": 300,
        "swe-verified": 500,
        "terminal-bench": 89,
        "mixed": 389,
        "automation-bench": 800,
    }
    pools = (FLASH_POOL_TOKENS,) * num_backends if engine == FLASH else None
    return Cell(
        panel=panel,
        arm="",
        policy=PLACEHOLDER,
        workload=options.workload(workload),
        seed=0,
        # Fewer than two per worker would be a batch, not a loop.
        sessions=max(options.sessions(number.get(workload, 300)), 2 * workers),
        engine=engine,
        num_backends=num_backends,
        pools=pools,
        workers=workers,
        x=float(workers),
    )
