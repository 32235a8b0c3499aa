"""How policies stand as the working set outgrows the pools: the product's own floors."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import CODER, PLACEHOLDER, QWEN, cross
from tao_coordinator.study.study import (
    GOOD_5,
    GOOD_30,
    HIT_RATE,
    HOLD_ANY,
    HOLD_STARTED,
    MOVED,
    OURS,
    TASK,
    TASK_BARS,
    TASK_P99,
    TOKENS,
    TOKENS_RUN,
    TOOL_TO_TOKEN,
    TOOL_TO_TOKEN_P99,
    TTFT,
    TTFT_P50,
    TTFT_P99,
    Claim,
    Plot,
    Study,
    StudyOptions,
    arms,
)

CAPS: Final = {"swe": (6, 7, 8, 10), "mix": (7, 8, 10, 12), "agentx": (16, 18, 20, 22)}
"""Static caps that are tried: around the study's best; the best one is the rival."""
SEVERAL: Final = (1, 4)
"""Numbers of backends."""
_RIVALS: Final = ("thunderagent", "thunderagent-decay", "tao-paper", "tao-paper@0.9", "concur-aimd")
_ROUTERS: Final = ("round-robin", "cache-aware", "dynamo-cost")
"""Beside sticky routing: they hold nobody."""


def workload_cell(options: StudyOptions, name: str, num_backends: int, pressure: float) -> Cell:
    """One workload at a working set of so many times the pools."""
    choice = options.workload("swe" if name == "mix" else name)
    if name == "mix":
        choice = replace(choice, long_tool_share=0.1)
    engine = CODER if name == "agentx" else QWEN
    cell = Cell(
        panel=f"{name}, {num_backends} backend{'s' * (num_backends > 1)}, {pressure:g}",
        arm="",
        policy=PLACEHOLDER,
        workload=choice,
        seed=0,
        sessions=1,
        engine=engine,
        num_backends=num_backends,
        pressure=pressure,
        x=pressure,
    )
    per_worker = (4 if name == "agentx" else 8) if num_backends == 1 else 4
    return replace(cell, sessions=options.sessions(max(120, per_worker * cell.num_workers())))


def _floors(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for name in ("swe", "mix", "agentx"):
        for num_backends in SEVERAL:
            cell = workload_cell(options, name, num_backends, 1.5)
            caps = [f"static-cap:sessions_max={cap}" for cap in CAPS[name]]
            chosen = arms(OURS, "sticky-least-loaded", *_ROUTERS, *_RIVALS, "concur-pi", *caps)
            found += cross(options, [cell], chosen)
    return found


def _curve(options: StudyOptions) -> list[Cell]:
    cells = [
        workload_cell(options, name, 1, pressure)
        for name in ("swe", "mix")
        for pressure in (0.5, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5)
    ]
    return cross(options, cells, arms(OURS, "sticky-least-loaded", *_RIVALS[::2], "tao-paper@0.9"))


_COLUMNS: Final = (
    TASK,
    TASK_P99,
    TOKENS,
    TOKENS_RUN,
    TTFT,
    TTFT_P50,
    TTFT_P99,
    TOOL_TO_TOKEN,
    TOOL_TO_TOKEN_P99,
    HOLD_STARTED,
    HOLD_ANY,
    HIT_RATE,
    GOOD_5,
    GOOD_30,
    MOVED,
)
_CAPS_TEXT: Final = {
    name: tuple(f"static-cap:sessions_max={cap}" for cap in caps) for name, caps in CAPS.items()
}


def _claims() -> tuple[Claim, ...]:
    floors = {
        # workload: sticky, best cap, ThunderAgent, TAO as published; then task p99 against TAO
        "swe": ("3.3x", "+6 %", "+7 %", "-3 %", "-50 %"),
        "mix": ("1.7x", "+14 %", "+30 %", "+5 %", "-40 %"),
        "agentx": ("3.8x", "-1 %", "+25 %", "+8 %", ""),
    }
    found: list[Claim] = []
    for name, (sticky, cap, thunder, paper, tail) in floors.items():
        for num_backends in SEVERAL:
            panel = f"{name}, {num_backends} backend{'s' * (num_backends > 1)}, 1.5"
            found += [
                Claim(f"{panel}: tok/s over sticky", sticky, panel, OURS,
                      ("sticky-least-loaded",), TOKENS),
                Claim(f"{panel}: tok/s over the best static cap", cap, panel, OURS,
                      _CAPS_TEXT[name], TOKENS),
                Claim(f"{panel}: tok/s over ThunderAgent", thunder, panel, OURS,
                      ("thunderagent",), TOKENS),
                Claim(f"{panel}: tok/s over TAO as published", paper, panel, OURS,
                      ("tao-paper",), TOKENS),
            ]  # fmt: skip
            if tail:
                found.append(
                    Claim(f"{panel}: task p99 against TAO as published", tail, panel, OURS,
                          ("tao-paper",), TASK_P99)
                )  # fmt: skip
    return tuple(found)


STUDIES: Final = (
    Study(
        name="pressure",
        title="At 1.5 times the pools",
        asks=(
            "Agents want 1.5 times the KV that the fleet has. What does each policy deliver, and "
            "who waits? `swe`: coding agents with short tools; `mix`: the same with 10 % of the "
            "calls 30-300 s long; `agentx`: contexts of 100k and more."
        ),
        make_cells=_floors,
        columns=_COLUMNS,
        versus=(TASK, TASK_P99, TTFT, TOKENS, TOKENS_RUN),
        claims=_claims(),
        plots=(TASK_BARS,),
        reading=(
            "The published column holds the floors of the policy study, reached there by a "
            "prototype in another simulator. A static cap has to be found by trial for each "
            "workload; several are tried and the best is the rival."
        ),
    ),
    Study(
        name="pressure-curve",
        title="From a half-empty fleet to 2.5 times the pools",
        asks="Where does the collapse begin, and what does each policy make of it?",
        make_cells=_curve,
        columns=(TASK, TASK_P99, TOKENS, TOKENS_RUN, TTFT_P50, TTFT_P99, HOLD_STARTED, HIT_RATE),
        plots=(
            Plot("tokens", "lines", "output_tokens_per_s", "Throughput", "output tokens/s",
                 ("swe,", "mix,"), x_title="working set / pool"),
            Plot("task", "lines", "task_s_mean", "Task latency", "seconds, mean",
                 ("swe,", "mix,"), x_title="working set / pool"),
        ),
    ),
)  # fmt: skip
