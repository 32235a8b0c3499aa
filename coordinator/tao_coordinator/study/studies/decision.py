"""The papers' questions about the decision itself: what it costs, what it is worth, how it ages."""

from dataclasses import replace
from typing import Final

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.studies.grid import FLASH, QWEN, cross, paper_cell
from tao_coordinator.study.study import (
    CERTIFIED,
    DECISION,
    DECISION_P50,
    DECISION_P99,
    FALLBACKS,
    OURS,
    PLAN_GAP,
    PLAN_GAP_MAX,
    TASK,
    Claim,
    Column,
    Plot,
    Study,
    StudyOptions,
    arms,
)

_PAPER: Final = ("tao-paper", "tao-paper@0.9")
_BY_WORKERS: Final = (
    ("V4-Flash x2, swe-lite", FLASH, 2, (32, 64, 128, 192)),
    ("Qwen3-32B x4, swe-lite", QWEN, 4, (96, 128, 160)),
)


def _by_workers(options: StudyOptions, watch: str) -> list[Cell]:
    return [
        replace(paper_cell(options, f"{name}, {n}", "swe-lite", engine, num, n), watch=watch)
        for name, engine, num, workers in _BY_WORKERS
        for n in workers
    ]


# --- what a decision costs -----------------------------------------------------------------------

_SHARE: Final = Column("decision_share", "all steps, of the run %", 3, 100.0)
_SHARE_SOLVED: Final = Column("decision_share_solved", "without failed searches %", 3, 100.0)
_PLAN_SHARE: Final = Column("plan_share", "plans, of the run %", 4, 100.0)
_PLAN_SHARE_SOLVED: Final = Column("plan_share_solved", "without failed %", 4, 100.0)


def _cost_cells(options: StudyOptions) -> list[Cell]:
    return cross(
        options, _by_workers(options, "cost"), arms(OURS, "tao:placement=thorough", *_PAPER)
    )


_COST: Final = Study(
    name="scheduler-cost",
    title="TAO, Table 9 and Appendix I: fallbacks, and what deciding costs",
    asks="How many plans fall back to best-fit-decreasing as workers grow, and how much of the run "
    "is spent deciding, failed searches included?",
    make_cells=_cost_cells,
    columns=(
        FALLBACKS,
        Column("plan_states_mean", "states a plan", 0),
        Column("plan_work_mean", "work units a plan", 0),
        CERTIFIED,
        PLAN_GAP,
        PLAN_GAP_MAX,
        Column("plan_ms_mean", "plan mean ms", 3),
        Column("plan_ms_p50", "plan p50 ms", 3),
        Column("plan_ms_p99", "plan p99 ms", 2),
        _PLAN_SHARE,
        _PLAN_SHARE_SOLVED,
        DECISION,
        DECISION_P50,
        DECISION_P99,
        _SHARE,
        _SHARE_SOLVED,
    ),
    versus=(),
    claims=(
        *(
            Claim(f"V4-Flash, {n} workers, {arm}: plans by fallback", there,
                  f"V4-Flash x2, swe-lite, {n}", arm, (), FALLBACKS, why)
            for n, there, why in (
                (64, "5.24 %", "the modelled sessions hardly fill two pools with 64 workers"),
                (192, "5.24 % with 64", "they do here; on two backends the states still suffice"))
            for arm in _PAPER
        ),
        *(
            Claim(f"Qwen, {n} workers, {arm}: plans by fallback", "3.06-8.98 % over the sweep",
                  f"Qwen3-32B x4, swe-lite, {n}", arm, (), FALLBACKS,
                  "grid step and state budget are not published; ours were set by this figure")
            for n in (96, 128, 160)
            for arm in _PAPER
        ),
        *(
            Claim(f"Qwen x4, 160 workers: share of the run spent on {what}", "< 0.12 %",
                  "Qwen3-32B x4, swe-lite, 160", "tao-paper", (), column, why)
            for what, column, why in (
                ("solved plans", _PLAN_SHARE_SOLVED,
                 "published: preparing state and solving, without failed searches and fallbacks"),
                ("plans, failed searches too", _PLAN_SHARE,
                 "the states are counted before a search begins, so that one which must fail costs "
                 "only its fallback"),
                ("all the engine's steps", _SHARE,
                 "every event and lease of 160 sessions, not plans alone; this machine's time"),
            )
        ),
    ),
    plots=(
        Plot("fallbacks", "lines", "fallback_share", "Plans by fallback", "share of the plans",
             ("V4-Flash x2, swe-lite", "Qwen3-32B x4, swe-lite"), x_title="workers"),
        Plot("cost", "lines", "plan_ms_mean", "Time of a plan", "milliseconds, mean",
             ("V4-Flash x2, swe-lite", "Qwen3-32B x4, swe-lite"), x_title="workers"),
    ),
    reading="Milliseconds are wall-clock of the machine that ran this, over the run's virtual time "
    "in shares; runs beside each other slow each other down. `tao` is timed with every plan made "
    "within its step. A plan's gap is the relative gap of its first unproved coordinate, 0 where "
    "all are proved; the quick pass's own bound is coarse, `placement=thorough` has the ladder's.",
)  # fmt: skip


# --- what a joint decision is worth --------------------------------------------------------------

_ON_GRID: Final = Column("snapshots_on_grid_better", "improved, same grid %", 1, 100.0)
_ON_GRID_WORSE: Final = Column("snapshots_on_grid_worse", "worse, same grid %", 1, 100.0)
_BETTER: Final = Column("snapshots_short_first_better", "improved %", 1, 100.0)
_WORSE: Final = Column("snapshots_short_first_worse", "worse %", 1, 100.0)
_ALL_BETTER: Final = Column("snapshots_all_short_first_better", "improved, of all %", 1, 100.0)
_KEPT: Final = Column("credit_over_short_first", "credit over short-first", 3)


def _snapshot_cells(options: StudyOptions) -> list[Cell]:
    cells = [
        paper_cell(options, f"{name}, swe-lite, {n}", "swe-lite", engine, num, n)
        for name, engine, num, n in (("V4-Flash x2", FLASH, 2, 192), ("Qwen3-32B x4", QWEN, 4, 160))
    ]
    pressed = paper_cell(options, "Qwen3-32B x4, swe, 1.5", "swe", QWEN, 4, 1)
    pressed = replace(pressed, workers=None, pressure=1.5)
    sessions = max(options.sessions(240), 2 * pressed.num_workers())
    pressed = replace(pressed, sessions=sessions)
    cells = [replace(cell, watch="snapshots") for cell in (*cells, pressed)]
    return cross(options, cells, arms(OURS, *_PAPER))


_SNAPSHOT_PANELS: Final = (
    "V4-Flash x2, swe-lite, 192", "Qwen3-32B x4, swe-lite, 160", "Qwen3-32B x4, swe, 1.5"
)  # fmt: skip
_ROUNDED: Final = (
    "the programme rounds weights up to its grid (1,024 tokens here; theirs is unknown); "
    "short-first with exact tokens fits what it cannot"
)

_MANY: Final = (
    "far more sessions compete in a snapshot (8 to 51 on average, see the table; their Figure 11 "
    "resumes 7), with credit on every backend; their snapshots and pools are not public"
)
_FEW: Final = "held sessions have lost their caches: nearly all credit is equal, at nothing"

_SNAPSHOTS: Final = Study(
    name="snapshots",
    title="TAO, Appendix H, Figures 10 and 11: snapshot by snapshot against short-first",
    asks="For the same waiting sessions and the same room: is the joint plan worth more than the "
    "short-first greedy one, and is it ever worth less?",
    make_cells=_snapshot_cells,
    columns=(
        Column("snapshots", "snapshots, 2 or more compete", 0),
        Column("snapshots_all", "all snapshots", 0),
        Column("snapshots_competing", "sessions that compete", 1),
        Column("snapshots_clearly_better", "improved by 5 % of the credit %", 1, 100.0),
        _BETTER, _WORSE, _ON_GRID, _ON_GRID_WORSE, _ALL_BETTER, _KEPT,
        Column("snapshots_greedy_better", "better than by arrival %", 1, 100.0),
        Column("snapshots_greedy_worse", "worse %", 1, 100.0),
        Column("credit_over_greedy", "credit over that", 3),
        Column("snapshots_proved", "proved %", 1, 100.0),
        TASK,
    ),
    versus=(),
    claims=tuple(
        claim
        for panel in _SNAPSHOT_PANELS
        for arm in (*_PAPER, OURS)
        for claim in (
            Claim(f"{panel}, {arm}: improved, of those where two compete", "26.1 % (6 of 23)",
                  panel, arm, (), _BETTER, _FEW if arm == OURS else _MANY),
            Claim(f"{panel}, {arm}: improved, of all", "17.1 % (6 of 35)", panel, arm, (),
                  _ALL_BETTER, _FEW if arm == OURS else _MANY),
            Claim(f"{panel}, {arm}: worse", "none", panel, arm, (), _WORSE,
                  "none here either" if arm == OURS else _ROUNDED),
            *(() if arm == OURS else (
                Claim(f"{panel}, {arm}: worse, on the same grid", "none", panel, arm, (),
                      _ON_GRID_WORSE, "none here either, where both see the grid"),)),
            Claim(f"{panel}, {arm}: credit kept, over short-first",
                  "1.232 (Fig. 10: 16,791 of 13,624), 1.438 (Fig. 11)", panel, arm, (), _KEPT,
                  "theirs are the two clearest snapshots, ours the sum over all"),
        )
    ),
    plots=(
        *(
            Plot(f"snapshot-{number}", "snapshot", "", "The snapshot with the largest gain", "",
                 (panel,), ("tao-paper",))
            for number, panel in enumerate(_SNAPSHOT_PANELS, start=1)
        ),
        Plot("gains", "gains", "", "Credit kept jointly beyond short-first",
             "% of the snapshots with credit", x_title="difference over the larger of the two"),
    ),
    reading="Objectives are compared as each policy compares them: class, credit, readiness, "
    "tokens, sessions; credit by the token for `tao-paper`, by 2,048 tokens for `tao`. Plans of "
    "`tao-paper` that came from its fallback are not joint and not counted. `tao` holds only "
    "sessions that lost their place, with little credit: residents pass it by.",
)  # fmt: skip


# --- how a decision ages -------------------------------------------------------------------------

_PLAN_S: Final = (0.1, 0.5, 1.5)
_NO_CREDIT: Final = "tao-paper, no credit"
_PROVED: Final = "as proved"
_VIOLATED: Final = Column("violated_credit", "violated, credit %", 2, 100.0)
_VIOLATED_VALUE: Final = Column("violated_value", "violated, whole value %", 2, 100.0)
_VIOLATED_NEVER: Final = Column("violated_value_with_jumps", "the same with the allowance %", 2,
                                100.0)  # fmt: skip


def _late_cells(options: StudyOptions) -> list[Cell]:
    """The delay is part of the policy for `tao-paper` and of the fleet for `tao`."""
    found: list[Cell] = []
    for name, work, workers, pressure in (
        ("swe-lite, 160", "swe-lite", 160, None),
        ("swe, 1.5", "swe", None, 1.5),
    ):
        for plan_s in _PLAN_S:
            cell = paper_cell(options, f"{name}, {plan_s:g} s", work, QWEN, 4, workers or 1)
            cell = replace(cell, workers=workers, pressure=pressure, watch="asynchrony")
            sessions = max(options.sessions(300), 2 * cell.num_workers())
            cell = replace(cell, plan_s=plan_s, sessions=sessions, x=plan_s)
            late = [
                (arm, PolicyChoice.parse(f"{text}plan_s={plan_s}"))
                for arm, text in (
                    (_PAPER[0], "tao-paper:"),
                    (_PAPER[1], "tao-paper@0.9:"),
                    (_NO_CREDIT, "tao-paper:half_life_s=0.000001,"),
                )
            ]
            found += cross(options, [cell], [*arms(OURS), *late])
    return found


_LATE: Final = Study(
    name="late-plans",
    title="TAO, Eq. 12: what it costs that a plan meets a later state",
    asks="A plan is ready some time after its snapshot. How far is what is carried out from the "
    "best of that moment, which term explains it, and does the bound hold?",
    make_cells=_late_cells,
    columns=(
        Column("late_plans", "plans", 0),
        Column("late_unchecked", "unchecked %", 1, 100.0),
        Column("late_dropped", "dropped %", 1, 100.0),
        Column("late_shortened", "shortened %", 1, 100.0),
        Column("bound_best_tokens", "best at t", 0),
        Column("bound_loss_tokens", "lost", 1),
        Column("bound_feasibility_tokens", "A", 1),
        Column("bound_drift_tokens", "2 eps", 1),
        Column("bound_execution_tokens", "T", 1),
        Column("bound_gap_tokens", "G", 1),
        _VIOLATED,
        Column("late_jumped", "readiness jumped %", 1, 100.0),
        _VIOLATED_VALUE,
        _VIOLATED_NEVER,
        TASK,
    ),
    versus=(),
    claims=tuple(
        claim
        for panel in (f"{name}, {_PLAN_S[-1]:g} s" for name in ("swe-lite, 160", "swe, 1.5"))
        for claim in (
            Claim(f"{panel}: plans whose loss exceeds A + 2 eps + T, credit", "none (proved)",
                  panel, "tao-paper", (), _VIOLATED, _PROVED),
            Claim(f"{panel}: the same for the whole value, without an allowance for readiness",
                  "possible", panel, "tao-paper", (), _VIOLATED_VALUE,
                  "one token of credit outweighs any readiness, so decay covers nearly all jumps"),
            Claim(f"{panel}: with it", "none (proved)", panel, "tao-paper", (), _VIOLATED_NEVER,
                  _PROVED),
            Claim(f"{panel}: without credit, without the allowance", "possible", panel, _NO_CREDIT,
                  (), _VIOLATED_VALUE, "nothing decays, so nothing covers a jump"),
            Claim(f"{panel}: without credit, with it", "none (proved)", panel, _NO_CREDIT, (),
                  _VIOLATED_NEVER, _PROVED),
            Claim(f"{panel}: `tao`, plans whose loss exceeds its stated bound", "none (proved)",
                  panel, OURS, (), _VIOLATED, _PROVED),
        )
    ),
    plots=(
        *(
            Plot(name, "lines", measure, title, "tokens of credit a plan, mean",
                 ("swe-lite, 160", "swe, 1.5"), _PAPER, "seconds from snapshot to plan")
            for name, measure, title in (
                ("loss", "bound_loss_tokens", "Lost by lateness"),
                ("bound", "bound_tokens", "Bound on it: A + 2 eps + T"),
            )
        ),
        Plot("terms", "terms", "", "Plan by plan", "lost, thousand tokens of credit",
             tuple(f"{name}, {s:g} s" for name in ("swe-lite, 160", "swe, 1.5") for s in _PLAN_S),
             _PAPER, "A + 2 eps + T, thousand tokens of credit"),
    ),
    reading="Terms are tokens of cache credit a plan, mean over the plans of a run. `tao-paper` "
    "plans beside the loop here, drops a plan whose sessions changed and carries out the longest "
    "prefix that fits; its maxima are solved again on its grid, plans by fallback are not checked. "
    "`tao-paper, no credit` forgets it at once: readiness leads, and only its jumps are left. "
    "What is carried out has to fit exact tokens only and may be worth more than those. "
    "`tao` has all its plans made beside the loop, whatever their size; its A and eps are upper "
    "bounds from one pass, hence far above the loss, and its held sessions have little credit to "
    "lose: residents pass it by. The figures of the source are a bound, not measurements.",
)  # fmt: skip

STUDIES: Final = (_COST, _SNAPSHOTS, _LATE)
