"""The studies of TAO (arXiv 2610.37230), with the paper's own figures beside ours."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import (
    FLASH,
    GLM,
    QWEN,
    cross,
    paper_cell,
)
from tao_coordinator.study.study import (
    CERTIFIED,
    DECISION,
    FALLBACKS,
    HIT_RATE,
    HOLD_STARTED,
    MAKESPAN,
    OURS,
    PLAN_GAP,
    TASK,
    TASK_BARS,
    TASK_P99,
    TOKENS,
    TOKENS_RUN,
    TOOL_TO_TOKEN,
    TOOL_TO_TOKEN_P99,
    TTFT,
    TTFT_P99,
    Claim,
    Plot,
    Study,
    StudyOptions,
    arms,
)

BASELINES: Final = ("round-robin", "cache-aware", "dynamo-cost", "thunderagent")
"""The paper's rivals."""
PAPER: Final = ("tao-paper", "tao-paper@0.9")
ALL: Final = (OURS, *PAPER, *BASELINES)
_READING: Final = (
    "The paper's token lengths are not public: sessions are drawn from published tool times of its "
    "harness with assumed prompt growth, so only ratios can be compared. V4-Flash has the pool of "
    "its later release (0.6M tokens); with the earlier one's 4.4M nothing here meets any pressure. "
    "Decode throughput beside the paper's is that of the whole run, as a fixed list of tasks gives "
    "it. `output tok/s` stops at the last start: with two sessions per worker it counts what a "
    "policy has begun, started sessions that it leaves aside among them, as if it were done."
)


def _main_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        paper_cell(options, f"V4-Flash x2, {work}, {n}", work, FLASH, 2, n)
        for work in ("swe-lite", "terminal-bench")
        for n in (16, 32, 64)
    ]
    cells += [
        paper_cell(options, f"Qwen3-32B x4, {work}, {n}", work, QWEN, 4, n)
        for work in ("swe-lite", "swe-verified")
        for n in (96, 128, 160)
    ]
    cells += [
        paper_cell(options, f"GLM-4.7 x1, {work}, 160", work, GLM, 1, 160)
        for work in ("swe-lite", "swe-verified")
    ]
    return cross(options, cells, arms(*ALL))


def _margins(panel: str, task: str, ttft: str, tokens: str, why: str = "") -> tuple[Claim, ...]:
    """The paper's three margins over the best baseline in one panel."""
    return (
        Claim(f"{panel}: latency", task, panel, OURS, BASELINES, TASK, why),
        Claim(f"{panel}: TTFT", ttft, panel, OURS, BASELINES, TTFT),
        Claim(f"{panel}: decode tok/s", tokens, panel, OURS, BASELINES, TOKENS_RUN),
    )


_MAIN: Final = Study(
    name="main-table",
    title="TAO, Tables 1 and 2: models, workloads, workers",
    asks="Latency, TTFT and decode throughput against round robin, cache-aware, Dynamo and "
    "ThunderAgent, as the number of workers grows.",
    make_cells=_main_cells,
    columns=(TASK, TASK_P99, TTFT, TTFT_P99, TOOL_TO_TOKEN, TOKENS, TOKENS_RUN, HIT_RATE,
             HOLD_STARTED, FALLBACKS, DECISION, CERTIFIED, PLAN_GAP),
    versus=(TASK, TTFT, TOKENS_RUN),
    claims=(
        *_margins("V4-Flash x2, swe-lite, 16", "-2.4 %", "-7.5 %", "+5.1 %"),
        *_margins(
            "V4-Flash x2, swe-lite, 64", "-26.8 %", "-36.3 %", "+29.5 %",
            "working set 0.9 of the pools here: routers that hold nobody keep their caches",
        ),
        *_margins("Qwen3-32B x4, swe-lite, 160", "+0.2 %", "better", "better"),
        *_margins("GLM-4.7 x1, swe-lite, 160", "-15.5 %", "-14.1 %", "+20.5 %"),
        Claim("V4-Flash, 64 workers: plans by fallback", "5.24 %", "V4-Flash x2, swe-lite, 64",
              "tao-paper", (), FALLBACKS),
        Claim("Qwen, 128 workers: plans by fallback", "3.06-8.98 %", "Qwen3-32B x4, swe-lite, 128",
              "tao-paper", (), FALLBACKS),
    ),
    plots=(
        Plot("latency", "lines", "task_s_mean", "Task latency", "seconds, mean",
             ("Qwen3-32B x4, swe-lite", "Qwen3-32B x4, swe-verified"), x_title="workers"),
    ),
    reading=_READING,
)  # fmt: skip


def _running_cells(options: StudyOptions) -> list[Cell]:
    cell = paper_cell(options, "GLM-4.7 x1, 160 workers", "swe-lite", GLM, 1, 160)
    return cross(options, [cell], arms(*ALL))


_RUNNING: Final = Study(
    name="running-requests",
    title="TAO, Figure 4: running requests over time",
    asks="300 SWE-Lite tasks, 160 workers, one GLM-4.7 node: how many requests run at a time, and "
    "when is the work done?",
    make_cells=_running_cells,
    columns=(MAKESPAN, TASK, TTFT, TOKENS, TOKENS_RUN, HIT_RATE, HOLD_STARTED),
    versus=(MAKESPAN, TASK),
    claims=tuple(
        Claim(f"makespan against {rival}", there, "GLM-4.7 x1, 160 workers", OURS, (rival,),
              MAKESPAN)
        for rival, there in (("thunderagent", "-15.4 % (60.0 of 70.9 min)"),
                             ("cache-aware", "-63.5 % (of 164.3 min)"),
                             ("round-robin", "-66.1 % (of 176.8 min)"),
                             ("dynamo-cost", "-68.3 % (of 189.4 min)"))
    ),
    plots=(Plot("running", "timeline", "running", "Running requests", "requests in the engine",
                ("GLM-4.7 x1, 160 workers",)),),
    reading=_READING,
)  # fmt: skip

_DELAYS: Final = ((1.0, 5.0), (2.0, 10.0), (4.0, 20.0))
"""Appendix G: seconds added to each of a session's tool calls, low and high."""
SESSIONS_PER_WORKER: Final = 6


_CAPS: Final = {
    "V4-Flash x2, swe-lite, 64": (24, 30),
    "Qwen3-32B x4, swe-lite, 160": (12, 15),
    "Qwen3-32B x4, swe-verified, 160": (7, 9),
    "GLM-4.7 x1, swe-lite, 160": (24, 30),
    "Qwen3-32B x4, tools +4-20 s, 160": (12, 15),
}
"""Static caps by panel, sessions per backend: two thirds and five sixths of what one pool holds of
the modelled sessions at their mean context (35.9, 18.3, 10.4, 35.9, 18.3)."""


def _long_run_cells(options: StudyOptions) -> list[Cell]:
    settings = (
        ("V4-Flash x2, swe-lite", "swe-lite", FLASH, 2, 64),
        ("Qwen3-32B x4, swe-lite", "swe-lite", QWEN, 4, 160),
        ("Qwen3-32B x4, swe-verified", "swe-verified", QWEN, 4, 160),
        ("GLM-4.7 x1, swe-lite", "swe-lite", GLM, 1, 160),
    )
    cells = [
        replace(
            paper_cell(options, f"{name}, {workers}", work, engine, nodes, workers),
            sessions=max(2 * workers, options.sessions(SESSIONS_PER_WORKER * workers)),
        )
        for name, work, engine, nodes, workers in settings
    ]
    slow = options.workload("swe-lite", added_delay_s=_DELAYS[-1])
    cells.append(replace(cells[1], panel="Qwen3-32B x4, tools +4-20 s, 160", workload=slow))
    found: list[Cell] = []
    for cell in cells:
        caps = [f"static-cap:sessions_max={cap}" for cap in _CAPS[cell.panel]]
        chosen = arms(OURS, *PAPER, "dynamo-cost", "thunderagent", "sticky-least-loaded", *caps)
        found += cross(options, [cell], chosen)
    return found


_LONG_RUN: Final = Study(
    name="long-run",
    title="Tables 1 and 2 in long runs",
    asks="The paper's tasks give a worker two sessions at most: who has to wait can wait until the "
    "others are done. What is left of each policy when the work goes on?",
    make_cells=_long_run_cells,
    columns=(
        TASK,
        TASK_P99,
        TTFT,
        TTFT_P99,
        TOOL_TO_TOKEN,
        TOOL_TO_TOKEN_P99,
        TOKENS,
        TOKENS_RUN,
        HIT_RATE,
        HOLD_STARTED,
    ),
    versus=(TASK, TASK_P99, TTFT, TOOL_TO_TOKEN, TOKENS_RUN),
    plots=(TASK_BARS,),
    reading=_READING,
)

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
    chosen = arms(*PAPER, _NO_READINESS, _NO_CREDIT, _NEITHER, _NO_DECAY, _BEST_FIT)
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


def _ablated(what: str, there: str, arm: str) -> Claim:
    return Claim(what, there, "Qwen3-32B x4, swe, 1.5", arm, ("tao-paper",), TOKENS)


_ABLATIONS: Final = Study(
    name="ablations",
    title="TAO, Table 4: what each part is worth",
    asks="TAO as published without credit, decay, readiness, both, and with best-fit-decreasing "
    "instead of the dynamic programme; and `tao` without its own parts.",
    make_cells=_ablation_cells,
    columns=(TOKENS, TASK, TASK_P99, TTFT, TOOL_TO_TOKEN, HIT_RATE, HOLD_STARTED, FALLBACKS),
    versus=(TOKENS, TASK),
    claims=(
        _ablated("without readiness, decode tok/s", "-3.9 %", _NO_READINESS),
        _ablated("without credit", "-1.4 %", _NO_CREDIT),
        _ablated("without both", "-3.1 %", _NEITHER),
        _ablated("best-fit-decreasing instead of the programme", "-13.0 %", _BEST_FIT),
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
              f"+{low:g}-{high:g} s", "tao-paper", (_NO_READINESS,), TASK)
        for (low, high), there in zip(_DELAYS, ("-21.6 %", "-20.6 %", "-17.9 %"), strict=True)
    ),
    plots=(Plot("task", "lines", "task_s_mean", "Task latency", "seconds, mean",
                x_title="longest delay of a call, s"),),
    reading="`tao:release_grace_s=1000000` never gives an idle seat up: what tool events are worth "
    "to the default policy.",
)  # fmt: skip


def _low_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        paper_cell(options, f"V4-Flash x1, {n} workers", "swe-lite", FLASH, 1, n)
        for n in (4, 8, 16, 32, 64)
    ]
    return cross(options, cells, arms(*ALL))


_LOW: Final = Study(
    name="low-concurrency",
    title="TAO, Table 5: few workers",
    asks="What does scheduling cost where there is nothing to schedule?",
    make_cells=_low_cells,
    columns=(TASK, TTFT, TTFT_P99, TOKENS, TOKENS_RUN, HIT_RATE, HOLD_STARTED, DECISION,
             CERTIFIED, PLAN_GAP),
    claims=(
        *(
            Claim(f"{n} workers: latency against the best", "within 2.3 %",
                  f"V4-Flash x1, {n} workers", OURS, BASELINES, TASK)
            for n in (4, 8)
        ),
        Claim("64 workers: against ThunderAgent", "-52.4 % (226 of 475 s)",
              "V4-Flash x1, 64 workers", OURS, ("thunderagent",), TASK),
    ),
    plots=(Plot("task", "lines", "task_s_mean", "Task latency", "seconds, mean",
                x_title="workers"),),
    reading=_READING,
)  # fmt: skip


def _mixed_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        paper_cell(options, f"mixed, {n} workers", "mixed", FLASH, 2, n) for n in (32, 64, 128)
    ]
    cells += [
        paper_cell(options, f"automation-bench, {n} workers", "automation-bench", FLASH, 2, n)
        for n in (32, 64, 128)
    ]
    return cross(options, cells, arms(*ALL))


_MIXED: Final = Study(
    name="mixed",
    title="TAO, Table 3: mixed workloads",
    asks="Terminal-Bench and SWE-Lite on one fleet; and AutomationBench, where the paper loses at "
    "128 workers.",
    make_cells=_mixed_cells,
    columns=(TASK, TASK_P99, TTFT, TTFT_P99, TOKENS, TOKENS_RUN, HIT_RATE, HOLD_STARTED),
    claims=(
        *_margins("mixed, 32 workers", "-12.2 %", "+5.5 %", "+12.2 %"),
        *_margins("mixed, 64 workers", "-23.2 %", "better", "+8.6 %"),
        *_margins("mixed, 128 workers", "-13.8 %", "better", "+4.4 %"),
        *_margins("automation-bench, 32 workers", "better", "better", "better"),
        *_margins("automation-bench, 64 workers", "better", "better", "better"),
        *_margins(
            "automation-bench, 128 workers",
            "+7.5 % (563.114 against 523.676 s)",
            "+504 % (19.123 against 3.166 s)",
            "-11.2 % (1,013.157 against 1,140.862)",
        ),
    ),
    plots=(
        Plot(
            "task",
            "lines",
            "task_s_mean",
            "Task latency",
            "seconds, mean",
            ("mixed,", "automation-bench,"),
            x_title="workers",
        ),
    ),
    reading=_READING,
)

STUDIES: Final = (_MAIN, _LONG_RUN, _RUNNING, _ABLATIONS, _LONG_TOOLS, _LOW, _MIXED)
