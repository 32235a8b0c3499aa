"""When things are not as told: surges, wrong capacities, no reuse, dead backends, arrivals."""

from dataclasses import replace
from typing import Final

from tao_coordinator.simulation.fleet import FleetChange
from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import PLACEHOLDER, QWEN, cross
from tao_coordinator.study.study import (
    GOOD_5,
    HIT_RATE,
    HOLD_ANY,
    HOLD_STARTED,
    MAKESPAN,
    OURS,
    TASK,
    TASK_BARS,
    TASK_P99,
    TOKENS,
    TOKENS_RUN,
    TTFT,
    TTFT_P50,
    TTFT_P99,
    WORKING_SET,
    Claim,
    Column,
    Plot,
    Study,
    StudyOptions,
    arms,
)

ERRORS: Final = Column("errors", "calls lost", 0)
RECOVERY: Final = Column(
    "recovery_s", "warm again after min", 0, 1.0 / 60.0, higher_is_better=False
)


def _base(options: StudyOptions, panel: str, workload: str, number: int) -> Cell:
    return Cell(
        panel=panel,
        arm="",
        policy=PLACEHOLDER,
        workload=options.workload(workload),
        seed=0,
        sessions=options.sessions(number),
        engine=QWEN,
    )


SURGE_END_S: Final = 3_000.0


def _surge_cells(options: StudyOptions) -> list[Cell]:
    """2.5 times the pool for 50 minutes, then 0.6 of it."""
    cell = replace(_base(options, "swe, 2.5 then 0.6", "swe", 150), pressure=2.5)
    relief = max(2, round(cell.num_workers() * 0.6 / 2.5))
    cell = replace(cell, worker_changes=((SURGE_END_S, relief),), end_s=9_000.0)
    return cross(options, [cell], arms(OURS, "round-robin", "thunderagent", "tao-paper",
                                       "tao-paper@0.9", "concur-aimd"))  # fmt: skip


def _misreport_cells(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for name in ("swe", "mix"):
        base = _base(options, "", "swe", 136)
        if name == "mix":
            workload = replace(base.workload, long_tool_share=0.1)
            base = replace(base, workload=workload)
        found += [
            replace(base, panel=f"{name}, told {told:g}x", pressure=1.5, told_ratio=told, x=told)
            for told in (0.7, 1.0, 1.3, 2.0)
        ]
    return cross(options, found, arms(OURS, "tao:capacity_integral_gain=0", "tao-paper",
                                      "tao-paper@0.9", "thunderagent"))  # fmt: skip


def _no_reuse_cells(options: StudyOptions) -> list[Cell]:
    single = replace(_base(options, "single calls, 1.0", "single", 1_500), pressure=1.0)
    over = replace(_base(options, "single calls, 2.5", "single", 2_500), pressure=2.5)
    base = _base(options, "prompts rewritten each turn, 1.5", "swe", 100)
    rewritten = replace(base, workload=replace(base.workload, reuses=False), pressure=1.5)
    return cross(options, [single, over, rewritten], arms(OURS, "sticky-least-loaded"))


_UNDER_LOAD_BACKENDS: Final = (1, 4)
_UNDER_LOAD: Final = (0.3, 0.5)
_HELD: Final = (
    "a new session waits where contexts and the growth that is reserved for them fill the pool, "
    "though the load is half of it on average"
)


def _under_load_panel(num_backends: int, pressure: float) -> str:
    return f"swe, {num_backends} backend{'s' * (num_backends > 1)}, {pressure:g}"


def _under_load_cells(options: StudyOptions) -> list[Cell]:
    found: list[Cell] = []
    for num_backends in _UNDER_LOAD_BACKENDS:
        for pressure in _UNDER_LOAD:
            panel = _under_load_panel(num_backends, pressure)
            base = _base(options, panel, "swe", 120 * (1 + (num_backends > 1)))
            found.append(replace(base, num_backends=num_backends, pressure=pressure))
    return cross(options, found, arms(OURS, "sticky-least-loaded", "round-robin", "tao-paper",
                                      "tao-paper@0.9"))  # fmt: skip


def _failure_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        replace(
            _base(options, f"swe, 4 backends, {pressure:g}, one dies", "swe", 240),
            num_backends=4,
            pressure=pressure,
            changes=(
                FleetChange(at_s=900.0, backend=1, what="fail"),
                FleetChange(at_s=1_500.0, backend=1, what="add"),
            ),
        )
        for pressure in (0.7, 1.2)
    ]
    return cross(options, cells, arms(OURS, "sticky-least-loaded", "cache-aware", "tao-paper",
                                      "tao-paper@0.9", "thunderagent"))  # fmt: skip


CLOSED_PER_S: Final = 0.1
"""Sessions that four backends complete per second in a closed loop of 1.5 times the pools under
`tao`: 0.100 of the recorded ones, 0.095 of the synthetic ones (seed 1)."""
_ARRIVING_S: Final = 5_400.0


def _open_cells(options: StudyOptions) -> list[Cell]:
    """Sessions arrive by the clock for 90 minutes; the run ends when the last has ended."""
    found: list[Cell] = []
    for ratio in (0.7, 0.9, 1.1):
        rate_per_s = ratio * CLOSED_PER_S
        panel = f"swe, 4 backends, {ratio:g} of the closed loop's rate"
        base = _base(options, panel, "swe", round(rate_per_s * _ARRIVING_S))
        found.append(
            replace(
                base,
                num_backends=4,
                arrivals_per_s=rate_per_s,
                warm_s=1_200.0 * min(1.0, options.share),
                end_s=40_000.0,
                x=ratio,
            )
        )
    return cross(options, found, arms(OURS, "sticky-least-loaded", "thunderagent", "tao-paper",
                                      "tao-paper@0.9"))  # fmt: skip


_TABLE: Final = (TASK, TASK_P99, TOKENS, TOKENS_RUN, TTFT, TTFT_P50, TTFT_P99, HOLD_STARTED,
                 HOLD_ANY, HIT_RATE, GOOD_5)  # fmt: skip

STUDIES: Final = (
    Study(
        name="surge",
        title="A surge, and what comes after",
        asks="2.5 times the pool for 50 minutes, then 0.6 of it: how long until caches are warm "
        "again?",
        make_cells=_surge_cells,
        columns=(*_TABLE, RECOVERY),
        versus=(TASK, TTFT, HIT_RATE),
        claims=(Claim("warm again after a surge, min", "10", "swe, 2.5 then 0.6", OURS, (),
                      RECOVERY, floor=10.0),),
        beside="the floors of the policy study",
        heads=("`tao`", "floor"),
        unexplained="A floor that is met needs no reason.",
        plots=(Plot("hit-rate", "timeline", "hit_rate", "Hit rate around a surge",
                    "hits / prompt tokens"),),
        reading="Runs are cut after 150 minutes: sessions that are not finished then are counted. "
        "Warm again: three windows of 200 s in a row with 0.9 of all prompt tokens cached; 100 min "
        "mean not before the cut.",
    ),
    Study(
        name="misreported-capacity",
        title="Engines that misreport their pool",
        asks="The engine reports 0.7 to 2 times the pool it has. What is left of the throughput?",
        make_cells=_misreport_cells,
        columns=(TOKENS, TOKENS_RUN, TASK, TASK_P99, TTFT_P99, HOLD_STARTED, HIT_RATE),
        versus=(TOKENS, TASK),
        claims=tuple(
            Claim(f"{name}, told {told:g}x: tok/s against the same without the controller", there,
                  f"{name}, told {told:g}x", OURS, ("tao:capacity_integral_gain=0",), TOKENS,
                  "the prototype's figure, from another simulator; open: which part of it differs")
            for name, told, there in (("swe", 1.3, "+173 %"), ("swe", 2.0, "+270 %"),
                                      ("mix", 1.3, "+27 %"), ("mix", 2.0, "+91 %"))
        ),
        beside="the policy study's figures",
        heads=("`tao`, misled", "the study"),
        plots=(Plot("tokens", "lines", "output_tokens_per_s", "Throughput", "output tokens/s",
                    ("swe,", "mix,"), x_title="reported pool / true pool"),),
    ),
    Study(
        name="no-reuse",
        title="Traffic without reuse",
        asks="Single calls, and prompts that are rewritten each turn: nothing to gain. What does "
        "the policy cost?",
        make_cells=_no_reuse_cells,
        columns=_TABLE,
        versus=(TASK, TTFT, TOKENS),
        claims=tuple(
            Claim(f"{panel}: task mean against sticky", "+0.5 %", panel, OURS,
                  ("sticky-least-loaded",), TASK, floor=0.5)
            for panel in ("single calls, 1.0", "single calls, 2.5",
                          "prompts rewritten each turn, 1.5")
        ),
        beside="the floors of the policy study",
        heads=("`tao`, with nothing to gain", "floor"),
        unexplained="A floor that is met needs no reason.",
        plots=(TASK_BARS,),
    ),
    Study(
        name="under-load",
        title="A fleet with room",
        asks="Everything fits. What does the policy cost?",
        make_cells=_under_load_cells,
        columns=_TABLE,
        versus=(TASK, TTFT, TOKENS),
        claims=tuple(
            claim
            for num in _UNDER_LOAD_BACKENDS
            for pressure in _UNDER_LOAD
            for panel in (_under_load_panel(num, pressure),)
            for claim in (
                Claim(f"{panel}: task mean against sticky", "+1 %", panel, OURS,
                      ("sticky-least-loaded",), TASK, floor=1.0),
                Claim(f"{panel}: longest hold s", "0 (nobody held)", panel, OURS, (), HOLD_ANY,
                      _HELD if (num, pressure) == (1, 0.5) else "", 0.0),
            )
        ),
        beside="the floors of the policy study",
        heads=("`tao`, where there is room", "floor"),
        unexplained="A floor that is met needs no reason.",
        plots=(TASK_BARS,),
    ),
    Study(
        name="lost-backend",
        title="One of four backends dies and comes back",
        asks="Its calls are lost and its caches with it, for ten minutes. Who suffers, how long?",
        make_cells=_failure_cells,
        columns=(*_TABLE, ERRORS),
        versus=(TASK, TASK_P99, TTFT, TOKENS_RUN),
        plots=(Plot("hit-rate", "timeline", "hit_rate", "Hit rate", "hits / prompt tokens"),),
    ),
    Study(
        name="open-loop",
        title="Sessions that arrive by the clock",
        asks="Nobody waits for a worker: sessions come at 0.7, 0.9 and 1.1 times the rate at which "
        "a closed loop completes them. Who keeps up, and how long do users wait?",
        make_cells=_open_cells,
        columns=(*_TABLE, WORKING_SET, MAKESPAN),
        versus=(TASK, TASK_P99, TTFT, TOKENS, TOKENS_RUN),
        plots=(Plot("ttft", "lines", "ttft_s_mean", "TTFT over the rate of arrivals",
                    "seconds, mean", ("swe,",), x_title="arrivals / closed loop's completions"),),
        reading="Poisson arrivals for 90 minutes (times `--share`), then every session runs to its "
        "end, so that no arm gains by leaving anybody unserved. output tok/s and the measured "
        "working set are those of a window, from 20 minutes (times `--share`) on to the last "
        "arrival; at a rate below what an arm can serve, all arms that keep up show the same "
        "tok/s, and the waits tell them apart.",
    ),
)  # fmt: skip
