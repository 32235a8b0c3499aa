"""What each part of TAO (arXiv 2610.37230) is worth: its Table 4, and longer tools."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import FLASH, QWEN, cross, paper_cell
from tao_coordinator.study.study import (
    FALLBACKS,
    HIT_RATE,
    HOLD_STARTED,
    MAKESPAN,
    OURS,
    TASK,
    TASK_BARS,
    TASK_P99,
    TOKENS,
    TOKENS_RUN,
    TOOL_TO_TOKEN,
    TTFT,
    Claim,
    Plot,
    Study,
    StudyOptions,
    arms,
)

_PAPER: Final = ("tao-paper", "tao-paper@0.9")
_DELAYS: Final = ((1.0, 5.0), (2.0, 10.0), (4.0, 20.0))
"""Appendix G: seconds added to each of a session's tool calls, low and high."""
_NO_READINESS: Final = "tao-paper:uses_readiness=false"
_NO_CREDIT: Final = "tao-paper:half_life_s=0.000001"
_NEITHER: Final = "tao-paper:uses_readiness=false,half_life_s=0.000001"
_NO_DECAY: Final = "tao-paper:half_life_s=1000000000"
_NO_BOUND: Final = "tao:hold_soft_s=1000000,hold_hard_s=1000000"
_BEST_FIT: Final = "tao-paper:states_max=1"


def _ablation_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        paper_cell(options, "V4-Flash x2, swe-lite, 32", "swe-lite", FLASH, 2, 32),
        replace(
            paper_cell(options, "Qwen3-32B x4, swe, 1.5", "swe", QWEN, 4, 1),
            workers=None,
            pressure=1.5,
        ),
    ]
    chosen = arms(*_PAPER, _NO_READINESS, _NO_CREDIT, _NEITHER, _NO_DECAY, _BEST_FIT)
    chosen += arms(
        OURS,
        "tao:growth_turns=0",
        "tao:release_grace_s=1000000",
        "tao:released_weight=0",
        "tao:capacity_integral_gain=0",
        "tao:budget_ratio=1.1",
        "tao:budget_ratio=0.8",
        _NO_BOUND,
    )
    return cross(options, cells, chosen)


_FEW_SETTLED: Final = (
    "behind credit by the token readiness settles few plans: an oracle gains nothing either (study "
    "`readiness`); open: how it gains that much there"
)
_OTHER_CELL: Final = (
    "another cell than the paper's, at 1.5 times the pools; open: whether that explains it all"
)


def _ablated(what: str, there: str, arm: str, why: str) -> Claim:
    return Claim(what, there, "Qwen3-32B x4, swe, 1.5", arm, ("tao-paper",), TOKENS, why)


_ABLATIONS: Final = Study(
    name="ablations",
    title="TAO, Table 4: what each part is worth",
    asks="TAO as published without credit, decay, readiness, both, and with best-fit-decreasing "
    "instead of the dynamic programme; and `tao` without its own parts.",
    make_cells=_ablation_cells,
    columns=(TOKENS, TASK, TASK_P99, TTFT, TOOL_TO_TOKEN, HIT_RATE, HOLD_STARTED, FALLBACKS),
    versus=(TOKENS, TASK),
    claims=(
        _ablated("without readiness, decode tok/s", "-3.9 %", _NO_READINESS, _FEW_SETTLED),
        _ablated("without credit", "-1.4 %", _NO_CREDIT, _OTHER_CELL),
        _ablated("without both", "-3.1 %", _NEITHER, _OTHER_CELL),
        _ablated(
            "best-fit-decreasing instead of the programme",
            "-13.0 %",
            _BEST_FIT,
            f"best-fit-decreasing ignores where a cache is; {_OTHER_CELL}",
        ),
    ),
    plots=(TASK_BARS,),
    reading="`uses_readiness=false` calls nobody ready, `half_life_s=0.000001` makes credit of "
    "idle sessions nothing, `half_life_s=1000000000` keeps it for ever, `states_max=1` sends every "
    "plan to the fallback. The paper's own cell (V4-Flash, 32 workers) meets no pressure with the "
    "modelled sessions, so its margins stand beside the second cell.",
)


def _long_tool_cells(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for low, high in _DELAYS:
        cell = replace(
            paper_cell(options, f"+{low:g}-{high:g} s", "swe-lite", QWEN, 4, 160),
            workload=options.workload("swe-lite", added_delay_s=(low, high)),
            x=high,
        )
        found.append(cell)
    return cross(options, found, arms(OURS, "tao-paper", "tao-paper@0.9", _NO_READINESS,
                                      "thunderagent", "tao:release_grace_s=1000000"))  # fmt: skip


_LONG_TOOLS: Final = Study(
    name="long-tools",
    title="TAO, Appendix G: longer tools",
    asks="A fixed delay per session on every call. What is readiness worth then?",
    make_cells=_long_tool_cells,
    columns=(MAKESPAN, TASK, TTFT, TOOL_TO_TOKEN, TOKENS, TOKENS_RUN, HIT_RATE, HOLD_STARTED),
    versus=(MAKESPAN, TASK),
    claims=tuple(
        Claim(f"+{low:g}-{high:g} s: session latency, with readiness against without", there,
              f"+{low:g}-{high:g} s", "tao-paper", (_NO_READINESS,), TASK, _FEW_SETTLED)
        for (low, high), there in zip(_DELAYS, ("-21.6 %", "-20.6 %", "-17.9 %"), strict=True)
    ),
    plots=(Plot("task", "lines", "task_s_mean", "Task latency", "seconds, mean",
                x_title="longest delay of a call, s"),),
    reading="`tao:release_grace_s=1000000` never gives an idle seat up: what tool events are worth "
    "to the default policy.",
)  # fmt: skip

STUDIES: Final = (_ABLATIONS, _LONG_TOOLS)
