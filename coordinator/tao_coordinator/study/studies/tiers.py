"""Engines that keep evicted caches in host memory: what is left to schedule, and for whom."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies import pressure
from tao_coordinator.study.studies.grid import FLASH, Arm, cross, paper_cell
from tao_coordinator.study.study import (
    GOOD_5,
    HIT_RATE,
    HOLD_STARTED,
    OURS,
    TASK,
    TASK_P99,
    TOKENS,
    TOKENS_RUN,
    TTFT,
    TTFT_P99,
    Claim,
    Plot,
    Study,
    StudyOptions,
    arms,
)

UNTOLD: Final = "tao, not told"
RATIOS: Final = (0.0, 1.0, 2.0, 4.0)
"""Host tier over pool; HiCache's default is 2."""
LOADS: Final = (1.5, 2.5)
"""Working set over pool."""
CAPS: Final = {"swe": (8, 12, 18), "mix": (10, 16, 24), "agentx": (20, 32, 46)}
"""Static caps around what pools and tiers hold; the best one is the rival."""
_RIVALS: Final = ("sticky-least-loaded", "thunderagent", "tao-paper", "tao-paper@0.9")


def with_untold(options: StudyOptions, cells: list[Cell], others: list[Arm]) -> list[Cell]:
    """The default policy told and not told of the host tier, beside the others."""
    told = cross(options, cells, [*arms(OURS), *others])
    untold = [replace(cell, tells_host_tier=False) for cell in cells if cell.host_ratio]
    return told + cross(options, untold, [(UNTOLD, arms(OURS)[0][1])])


def _two_tier_cells(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for name in ("swe", "mix", "agentx"):
        caps = [f"static-cap:sessions_max={cap}" for cap in CAPS[name]]
        for load in LOADS:
            base = pressure.workload_cell(options, name, 1, load)
            cells = [
                replace(
                    base,
                    panel=f"{name}, {load:g}, host {f'{ratio:g}x' if ratio else 'none'}",
                    host_ratio=ratio,
                    x=ratio,
                )
                for ratio in RATIOS
            ]
            found += with_untold(options, cells, arms(*_RIVALS, *caps))
    return found


WORKERS: Final = (16, 32, 64)
_ALONE: Final = ("round-robin", "sticky-least-loaded", "cache-aware")
_PUBLISHED: Final = {
    16: (("decode tok/s", "785.2 -> 886.8 (+12.9 %)", TOKENS),),
    32: (("decode tok/s", "1,292.6 -> 1,347.4 (+4.2 %)", TOKENS),),
    64: (
        ("latency", "509.0 -> 274.9 s (-46.0 %)", TASK),
        ("TTFT", "1.590 -> 0.593 s (-62.7 %)", TTFT),
        ("decode tok/s", "790.5 -> 1,414.5 (+78.9 %)", TOKENS),
    ),
}
"""TAO, Table 6: TokenCake alone and with TAO on top."""


def _tokencake_panel(workers: int) -> str:
    return f"V4-Flash x2, swe-lite, {workers}"


def _tokencake_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        replace(
            paper_cell(options, _tokencake_panel(workers), "swe-lite", FLASH, 2, workers),
            host_ratio=4.0,
            offloads_in_tools=True,
        )
        for workers in WORKERS
    ]
    # The paper's own cells meet no pressure here: with small pools there is something to offload.
    small = replace(
        cells[-1], panel="V4-Flash x2 with pools of 200,000, swe-lite, 64", pools=(200_000,) * 2
    )
    return with_untold(options, [*cells, small], arms(*_ALONE, "tao-paper", "tao-paper@0.9"))


STUDIES: Final = (
    Study(
        name="two-tier",
        title="Pools above host memory",
        asks="The engine keeps what its pool loses in host memory, 1 to 4 times as large: losing "
        "a cache costs a reload. Who gains what, and what is it worth to tell `tao`?",
        make_cells=_two_tier_cells,
        columns=(TASK, TASK_P99, TOKENS, TOKENS_RUN, TTFT, TTFT_P99, HOLD_STARTED, HIT_RATE,
                 GOOD_5),
        versus=(TASK, TASK_P99, TTFT, TOKENS_RUN),
        plots=(Plot("tokens", "lines", "output_tokens_per_s_all", "Whole run", "output tokens/s",
                    tuple(f"{n}, {load:g}," for n in CAPS for load in LOADS),
                    x_title="host tier / pool"),),
        reading=(
            "Modelled as vLLM's offloading connector, HiCache and LMCache: written through, LRU, "
            "loaded at 50 GB/s per GPU while the others go on. A tier as large as the pool holds "
            "the same tokens again. Hit rates count both tiers. With a tier that holds all "
            "contexts there is nothing to save by holding anybody: sticky routing is the bound, "
            "and a policy shows there what it costs; the rest of the time somebody waits for room "
            "in the pool either way. Tiers smaller than the contexts collapse like pools."
        ),
    ),
    Study(
        name="tokencake",
        title="TAO, Table 6: on an engine that offloads during tools",
        asks="TokenCake moves caches to the host while tools run and back before they end. What "
        "does routing make of it, and what does `tao` add on top?",
        make_cells=_tokencake_cells,
        columns=(TASK, TASK_P99, TTFT, TTFT_P99, TOKENS, TOKENS_RUN, HIT_RATE, HOLD_STARTED),
        claims=tuple(
            Claim(f"{workers} workers: {what} on top of TokenCake alone", there,
                  _tokencake_panel(workers), OURS, ("round-robin",), column,
                  "against round robin: the paper does not say how its engine alone was routed")
            for workers, rows in _PUBLISHED.items()
            for what, there, column in rows
        ),
        plots=(Plot("task", "lines", "task_s_mean", "Task latency", "seconds, mean",
                    ("V4-Flash x2, swe-lite,",), x_title="workers"),),
        reading=(
            "The authors' own runs saw no pause, no resume and no migration, so what they gained "
            "is not TAO's admission. Modelled are forecast, offload and upload, not TokenCake's "
            "partitions by agent type; the host tier is 4 times the pool. The published cells meet "
            "no pressure with the modelled sessions (working set 0.2 to 0.9 of the pools): the "
            "last panel has a third of the room."
        ),
    ),
)  # fmt: skip
