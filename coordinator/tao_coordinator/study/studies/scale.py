"""Many backends, unequal ones: what placement has to do where there is much to place."""

from dataclasses import replace
from typing import Final

from tao_coordinator.simulation.fleet import FleetChange
from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies.grid import PLACEHOLDER, QWEN, cross
from tao_coordinator.study.study import (
    CERTIFIED,
    DECISION,
    DECISION_P99,
    FALLBACKS,
    HIT_RATE,
    HOLD_STARTED,
    MOVED,
    OURS,
    PLAN_GAP,
    TASK,
    TASK_BARS,
    TASK_P99,
    TOKENS,
    TTFT,
    Claim,
    Column,
    Plot,
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
    found: list[Cell] = []
    for number in (8, 64, 256, 1_000):
        cell = _cell(options, f"{number} backends", number, 1)
        cell = replace(cell, pools=(80_000,) * number)
        cell = replace(cell, sessions=options.sessions(2 * cell.num_workers()))
        rivals = (
            ("cache-aware", "thunderagent", "tao-paper", "tao-paper@0.9")
            if number <= _ALL_ARMS_MAX
            else ()
        )
        found += cross(options, [cell], arms(OURS, "sticky-least-loaded", *rivals))
    return found


_ALL_ARMS_MAX: Final = 64
"""Backends up to which the rivals that look at every backend for every turn run too."""


_GREEDY: Final = "tao:placement=greedy"
_SHORT_FIRST: Final = "tao:placement=short-first"


def _joint_cells(options: StudyOptions) -> list[Cell]:
    """Where there is much to place at once, or where backends differ."""
    base = replace(_cell(options, "", 4, 1), workload=options.workload("swe"))
    unequal = replace(base, panel="unequal pools", pools=(307_000, 160_000, 450_000, 80_000))
    bursts = tuple(
        change
        for start_s in (400.0, 1_200.0, 2_000.0)
        for change in ((start_s, 100), (start_s + 300.0, 30))
    )
    burst = replace(base, panel="bursts", pressure=None, workers=30, worker_changes=bursts)
    lost = replace(
        base,
        panel="one of four dies and comes back",
        pressure=1.2,
        changes=(
            FleetChange(at_s=600.0, backend=1, what="fail"),
            FleetChange(at_s=1_200.0, backend=1, what="add"),
        ),
    )
    small = replace(_cell(options, "16 small pools", 16, 1), pools=(80_000,) * 12 + (120_000,) * 4)
    even = replace(base, panel="four equal pools", pools=None)
    cells = [even, unequal, burst, lost, small]
    cells = [
        replace(cell, sessions=options.sessions(max(240, 3 * cell.num_workers()))) for cell in cells
    ]
    found = cross(options, cells, arms(OURS, _GREEDY, _SHORT_FIRST))
    return [replace(cell, watch="snapshots" if cell.arm == OURS else "") for cell in found]


_SHARE: Final = Column("decision_share", "steps, % of a core", 1, 100.0, higher_is_better=False)

_SNAPSHOT_COLUMNS: Final = (
    Column("snapshots", "snapshots", 0),
    Column("snapshots_greedy_better", "joint better than greedy %", 1, 100.0),
    Column("snapshots_greedy_worse", "worse %", 1, 100.0),
    Column("snapshots_short_first_better", "better than short-first %", 1, 100.0),
    Column("snapshots_short_first_worse", "worse %", 1, 100.0),
    Column("credit_over_greedy", "credit over greedy", 4),
    Column("credit_over_short_first", "credit over short-first", 4),
    Column("snapshots_proved", "proved %", 1, 100.0),
    Column("quick_is_optimal", "quick pass optimal %", 1, 100.0),
)
_BETTER: Final = Column("snapshots_short_first_better", "improved %", 1, 100.0)
_WORSE: Final = Column("snapshots_short_first_worse", "worse %", 1, 100.0)

STUDIES: Final = (
    Study(
        name="joint-vs-greedy",
        title="TAO, Appendix H: joint placement against greedy",
        asks="The same policy with another way to place held sessions: does it pay to look at all "
        "of them together? Snapshot by snapshot, and in what users wait for.",
        make_cells=_joint_cells,
        columns=(TASK, TASK_P99, TTFT, TOKENS, HIT_RATE, HOLD_STARTED, MOVED, *_SNAPSHOT_COLUMNS),
        versus=(TASK, TASK_P99, TTFT, TOKENS),
        claims=tuple(
            claim
            for panel in ("four equal pools", "unequal pools", "one of four dies and comes back",
                          "bursts", "16 small pools")
            for claim in (
                Claim(f"{panel}: snapshots improved over short-first", "26.1 % (6 of 23)", panel,
                      OURS, (), _BETTER),
                Claim(f"{panel}: snapshots where joint is worse", "none", panel, OURS, (), _WORSE),
            )
        ),
        plots=(TASK_BARS,),
        reading="In the run of `tao` every plan is made within its step, and every rule is asked "
        "about each snapshot in which two sessions or more compete. The same of TAO as published: "
        "`tao study run snapshots`.",
    ),
    Study(
        name="many-backends",
        title="8 to 1,000 backends",
        asks="Does what holds on four backends hold on many, and what does deciding cost?",
        make_cells=_many_cells,
        columns=(TASK, TASK_P99, TOKENS, TTFT, HIT_RATE, HOLD_STARTED, MOVED, FALLBACKS, CERTIFIED,
                 PLAN_GAP, DECISION, DECISION_P99, _SHARE),
        versus=(TASK, TTFT, TOKENS),
        plots=(Plot("decision", "lines", "decision_ms_mean", "One decision", "ms, mean",
                    x_title="backends"),),
        reading="Pools of 80,000 tokens, SWE-Lite sessions, 1.5 times the pools: 56 workers on 8 "
        "backends, 7,000 on 1,000. The last column is what all steps of the coordinator's engine "
        "take, as a share of one core; plans made beside the loop are not in it. It is measured "
        "while other runs share the machine: `--jobs 1` for figures to quote.",
    ),
)  # fmt: skip
