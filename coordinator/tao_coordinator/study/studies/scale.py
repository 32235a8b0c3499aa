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
    TOKENS_RUN,
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


def _sessions(options: StudyOptions, per_worker: float, workers: int) -> int:
    """So many sessions per worker, at least two whatever the share: with fewer hardly any waits."""
    return max(options.sessions(round(per_worker * workers)), 2 * workers)


def _many_cells(options: StudyOptions) -> list[Cell]:
    """Small pools, so that hundreds of backends need thousands of sessions, not tens of them."""
    found: list[Cell] = []
    for number in (8, 64, 256, 1_000):
        cell = _cell(options, f"{number} backends", number, 1)
        cell = replace(cell, pools=(80_000,) * number)
        cell = replace(cell, sessions=_sessions(options, 2.0, cell.num_workers()))
        rivals = (
            ("cache-aware", "thunderagent", "tao-paper", "tao-paper@0.9")
            if number <= _ALL_ARMS_MAX
            else ()
        )
        found += cross(options, [cell], arms(OURS, "sticky-least-loaded", *rivals))
    return found


_ALL_ARMS_MAX: Final = 64
"""Backends up to which the rivals that look at every backend for every turn run too."""


_LONG_EQUAL: Final = "long contexts, four equal pools"
_LONG_UNEQUAL: Final = "long contexts, unequal pools"
_LONG_LOST: Final = "long contexts, two of eight die and come back"
_LONG_FORKED: Final = "long contexts, sub-agents with a common prefix"
_SMALL_LOST: Final = "eight of 32 small pools fail at once"
_SMALL_ADDED: Final = "eight small pools are added to 24"
_QUARTER_S: Final = 300.0
"""When a quarter of the small pools goes or comes: the fleet is loaded, most work is ahead."""

_GREEDY: Final = "tao:placement=greedy"
_SHORT_FIRST: Final = "tao:placement=short-first"


def _joint_cells(options: StudyOptions) -> list[Cell]:
    """Short contexts, snapshot by snapshot; long ones and large fleets, by their ends alone."""
    unwatched = [*_long_cells(options), *_fleet_cells(options)]
    unwatched = [
        replace(cell, sessions=_sessions(options, 2.5, cell.num_workers())) for cell in unwatched
    ]
    rules = arms(OURS, _GREEDY, _SHORT_FIRST)
    watched = cross(options, _short_cells(options), rules)
    return [
        *(replace(cell, watch="snapshots" if cell.arm == OURS else "") for cell in watched),
        *cross(options, unwatched, rules),
    ]


def _short_cells(options: StudyOptions) -> list[Cell]:
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
    return [
        replace(cell, sessions=options.sessions(max(240, 3 * cell.num_workers()))) for cell in cells
    ]


def _long_cells(options: StudyOptions) -> list[Cell]:
    """Three or four contexts fill a pool: who goes where is most of what there is to decide."""
    workload = options.workload("agentx")
    base = replace(_cell(options, "", 4, 1), workload=workload)
    dying = tuple(
        FleetChange(at_s=at_s, backend=backend, what=what)
        for at_s, what in ((900.0, "fail"), (1_800.0, "add"))
        for backend in (1, 2)
    )
    return [
        replace(base, panel=_LONG_EQUAL),
        replace(base, panel=_LONG_UNEQUAL, pools=(307_000, 210_000, 450_000, 210_000)),
        replace(base, panel=_LONG_LOST, num_backends=8, pressure=1.2, changes=dying),
        replace(
            base,
            panel=_LONG_FORKED,
            workload=replace(workload, children=3),
            pressure=None,
            workers=base.num_workers(),
        ),
    ]


def _fleet_cells(options: StudyOptions) -> list[Cell]:
    """A quarter of the fleet goes or comes at once, and every context there is placed anew."""
    base = replace(_cell(options, "", 32, 1), pools=(80_000,) * 32, pressure=2.0)
    return [
        replace(
            base,
            panel=panel,
            changes=tuple(
                FleetChange(at_s=_QUARTER_S, backend=backend, what=what)
                for backend in range(24, 32)
            ),
        )
        for panel, what in ((_SMALL_LOST, "fail"), (_SMALL_ADDED, "add"))
    ]


_FEW_COMPETE: Final = "Residents go home without a plan here, so few sessions compete at a time."
_SWINGS: Final = (
    "open: the mean latency changes its sign with the seed; why the whole run gives more tokens in "
    "two of four panels was not looked into"
)
_CHEAP: Final = "a context has 17,000 tokens: making it again costs little, whoever goes first"
_WHY: Final = {
    _LONG_EQUAL: _SWINGS,
    _LONG_UNEQUAL: _SWINGS,
    _LONG_LOST: _SWINGS,
    _LONG_FORKED: _SWINGS,
    _SMALL_LOST: _CHEAP,
    _SMALL_ADDED: _CHEAP,
}
"""Of what joint placement is worth end to end, by panel."""

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
        columns=(TASK, TASK_P99, TTFT, TOKENS, TOKENS_RUN, HIT_RATE, HOLD_STARTED, MOVED,
                 *_SNAPSHOT_COLUMNS),
        versus=(TASK, TASK_P99, TTFT, TOKENS, TOKENS_RUN),
        claims=(
            *(
                claim
                for panel in ("four equal pools", "unequal pools",
                              "one of four dies and comes back", "bursts", "16 small pools")
                for claim in (
                    Claim(f"{panel}: snapshots improved over short-first", "26.1 % (6 of 23)",
                          panel, OURS, (), _BETTER, _FEW_COMPETE),
                    Claim(f"{panel}: snapshots where joint is worse", "none", panel, OURS, (),
                          _WORSE, "none here either"),
                )
            ),
            *(
                Claim(f"{panel}: {what}, joint against greedy", "no figure", panel, OURS,
                      (_GREEDY,), column, why)
                for panel, why in _WHY.items()
                for what, column in (("task mean", TASK), ("tokens of the whole run", TOKENS_RUN))
            ),
        ),
        plots=(TASK_BARS,),
        reading="In the first five panels every plan of `tao` is made within its step, and every "
        "rule is asked about each snapshot in which two sessions or more compete. The same of TAO "
        "as published: `tao study run snapshots`. The other panels are not watched, so that all "
        "three arms are as in production. No "
        "trace at hand tells which session called which: the sub-agents are recorded sessions in "
        "groups of four, of which three are said to be children of the first and begin with its "
        "first prompt. They start when a worker takes them, soon after their parent, which does "
        "not wait for them.",
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
        "backends, 7,000 on 1,000. There are two sessions per worker or more at every `--share`, "
        "so every panel shows a loaded fleet in which sessions end and new ones take their places, "
        "and the arms' waits can be compared at every size. The last column is what "
        "all steps of the coordinator's engine take, as a share of one core; plans made beside the "
        "loop are not in it. It is measured while other runs share the machine: "
        "`--jobs 1` for figures to quote.",
    ),
)  # fmt: skip
