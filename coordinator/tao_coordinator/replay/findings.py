"""What the runs of a replay say, in numbers and in a few plain sentences."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.replay.plan import ReplayPlan, panel_name
from tao_coordinator.study.cell import CellResult
from tao_coordinator.study.statistics import Interval, mean_interval, ratio_interval
from tao_coordinator.study.study import OURS, TOKENS_RUN

PHASES: Final = (
    ("tools", "per_session_tools_s", "tools and pauses"),
    ("decode", "per_session_decode_s", "decode"),
    ("prefill", "per_session_prefill_s", "prefill of new text"),
    ("again", "per_session_prefill_again_s", "prefill again"),
    ("queue", "per_session_queue_s", "queue in the engine"),
    ("hold", "per_session_hold_s", "held by the coordinator"),
)
"""Where the time of a session goes: (key, measure, words)."""
EQUAL: Final = 1.02
"""A latency up to this ratio counts as equal."""
BATCH_TURNOVER: Final = 2
"""With fewer sessions for each worker, hardly one takes another's place: no loop."""
LOOP_TURNOVER: Final = 4
"""So many sessions for each worker are advised."""
QUANTILES: Final = 60
PLAIN_ROUTERS: Final = ("round-robin", "sticky-least-loaded", "cache-aware", "dynamo-cost")
"""Policies that hold nobody: what a team has without a scheduler."""


@dataclass(frozen=True, slots=True)
class ArmFindings:
    """One policy on the whole fleet, over all seeds."""

    arm: str
    measures: dict[str, float]
    """Means over seeds."""
    task_s: Interval
    against: Interval | None
    """Task latency over that of `tao`, paired by session; `None` for `tao` itself."""
    phases_s: dict[str, float]
    """Seconds per session."""
    quantiles_s: list[float]
    """Task latency at evenly spaced shares of the sessions."""
    timeline: list[list[float]]
    """Of the first seed."""
    task_s_by_backends: dict[int, float]
    """Mean task latency on smaller fleets too."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that the page and the JSON say."""

    plan: ReplayPlan
    arms: list[ArmFindings]
    sentences: list[str]
    warnings: list[str]
    """Why the sentences must be read with care, and what to do about it."""

    def working_set(self) -> tuple[str, float] | None:
        """All live contexts over all pools, as a run has measured it, and under which policy.

        The span is that of `study.measures.measure`; `None`: no run tells.
        """
        arm = next((arm for arm in self.arms if arm.arm == OURS), self.arms[0])
        measured = arm.measures.get("working_set", math.nan)
        return None if math.isnan(measured) else (arm.arm, measured)

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        plan = self.plan
        return {
            "trace": plan.settings.trace,
            "engine": plan.settings.engine.name,
            "backends": plan.settings.num_backends,
            "workers": plan.workers,
            "working_set_over_pool": plan.pressure,
            "recorded_sessions": plan.recorded_sessions,
            "seeds": list(plan.settings.seeds),
            "as_recorded": None if plan.as_recorded is None else asdict(plan.as_recorded),
            "summary": self.sentences,
            "warnings": self.warnings,
            "policies": {
                arm.arm: {
                    "measures": {k: v for k, v in arm.measures.items() if v == v},
                    "task_s": _plain(arm.task_s),
                    "task_ratio_to_tao": None if arm.against is None else _plain(arm.against),
                    "seconds_per_session": arm.phases_s,
                    "task_s_by_backends": arm.task_s_by_backends,
                }
                for arm in self.arms
            },
        }


def _plain(found: Interval) -> dict[str, float | None]:
    return {name: None if value != value else value for name, value in asdict(found).items()}


def find(plan: ReplayPlan, results: Sequence[CellResult]) -> Findings:
    """Read the answers off the results, which are in the order of the plan's cells.

    Raises:
        ConfigurationError: under one policy no session ended: there is nothing to compare.
    """
    full = panel_name(plan.settings.num_backends)
    texts = [policy.text for policy in plan.settings.policies]
    ours = _tasks(plan, results, full, OURS) if OURS in texts else None
    arms = [_arm(plan, results, full, text, ours) for text in dict.fromkeys(texts)]
    return Findings(plan, arms, _sentences(plan, arms), _warnings(plan))


def _of(
    plan: ReplayPlan, results: Sequence[CellResult], panel: str, arm: str
) -> list[tuple[int, CellResult]]:
    pairs = zip(plan.cells, results, strict=True)
    return [(cell.seed, r) for cell, r in pairs if (cell.panel, cell.arm) == (panel, arm)]


def _tasks(
    plan: ReplayPlan, results: Sequence[CellResult], panel: str, arm: str
) -> dict[str, float]:
    return {
        f"{seed}/{session}": seconds
        for seed, result in _of(plan, results, panel, arm)
        for session, seconds in result.tasks_s.items()
    }


def _arm(
    plan: ReplayPlan,
    results: Sequence[CellResult],
    full: str,
    arm: str,
    ours: dict[str, float] | None,
) -> ArmFindings:
    found = _of(plan, results, full, arm)
    names = found[0][1].measures
    measures = {
        name: float(np.mean([result.measures.get(name, float("nan")) for _, result in found]))
        for name in names
    }
    tasks = _tasks(plan, results, full, arm)
    if not tasks:
        raise ConfigurationError(f"under {arm} not one session came to its end")
    shares = np.linspace(0.0, 100.0, QUANTILES + 1)
    by_backends = {
        int(cell.x): float(np.mean(list(_tasks(plan, results, cell.panel, arm).values())))
        for cell in plan.cells
        if cell.arm == arm
    }
    return ArmFindings(
        arm=arm,
        measures=measures,
        task_s=mean_interval(list(tasks.values())),
        against=None if ours is None or arm == OURS else ratio_interval(tasks, ours),
        phases_s={key: measures.get(measure, 0.0) for key, measure, _ in PHASES},
        quantiles_s=[float(q) for q in np.percentile(list(tasks.values()), shares)],
        timeline=found[0][1].timeline,
        task_s_by_backends=dict(sorted(by_backends.items())),
    )


def _warnings(plan: ReplayPlan) -> list[str]:
    wanted = plan.workers_wanted
    if plan.sessions >= BATCH_TURNOVER * wanted:
        return []
    return [
        f"{plan.sessions} in all and {wanted} at a time are a batch, not a loop: few sessions "
        "take the place of one that has ended. The fleet fills and empties once, first with young "
        "contexts, at last with few, and all figures are of that. To learn how the policies "
        f"compare under lasting load, draw more sessions: --sessions {LOOP_TURNOVER * wanted}."
    ]


def _sentences(plan: ReplayPlan, arms: Sequence[ArmFindings]) -> list[str]:
    ours = next((arm for arm in arms if arm.arm == OURS), None)
    others = [arm for arm in arms if arm.arm != OURS]
    if ours is None or not others:
        return []
    best = min(others, key=lambda arm: arm.task_s.value)
    ratio = best.against
    assert ratio is not None
    found: list[str] = []
    if ratio.low > 1.0:
        found.append(
            f"Under tao a task takes {ours.task_s.value:,.0f} s on average, "
            f"{100 * (1 - 1 / ratio.value):.0f} % less than under {best.arm}, the best of the "
            f"others ({best.task_s.value:,.0f} s)."
        )
    elif ratio.high < 1.0:
        found.append(
            f"{best.arm} is better here: {best.task_s.value:,.0f} s per task on average, "
            f"{100 * (1 - ratio.value):.1f} % less than under tao ({ours.task_s.value:,.0f} s)."
        )
    else:
        found.append(
            f"Between tao ({ours.task_s.value:,.0f} s per task) and {best.arm} "
            f"({best.task_s.value:,.0f} s) no difference can be told apart from chance."
        )
    found += _throughput(plan, ours, others)
    working_set = ours.measures.get("working_set", plan.pressure)
    if working_set < 0.7 and plan.pressure < 0.7:
        found.append(
            "All sessions fit the pools: there is little to gain from scheduling at this load."
        )
    found += _saved(plan, arms, ours, best)
    routers = [arm for arm in others if arm.arm in PLAIN_ROUTERS and arm is not best]
    if not routers:
        found += _where(ours, best)
    else:
        router = min(routers, key=lambda arm: arm.task_s.value)
        less = 100 * (1 - ours.task_s.value / router.task_s.value)
        takes = f"{abs(less):.0f} % {'less' if less >= 0 else 'more'}"
        if abs(less) < 0.5:
            takes = "as long"
        found.append(
            f"Against {router.arm}, which only routes ({router.task_s.value:,.0f} s per task), tao "
            f"takes {takes}."
        )
        found += _saved(plan, arms, ours, router)
        found += _where(ours, router)
    return found


def _throughput(plan: ReplayPlan, ours: ArmFindings, others: Sequence[ArmFindings]) -> list[str]:
    """Of the whole run: until the last start a batch looks quick that is slow to its end.

    Nothing without workers: what sessions put out that start by the clock is how fast they came.
    """
    if not plan.workers:
        return []
    rates = [
        (arm.measures[TOKENS_RUN.measure], arm.arm)
        for arm in others
        if arm.measures.get(TOKENS_RUN.measure, 0.0) > 0.0
    ]
    rate = ours.measures.get(TOKENS_RUN.measure, 0.0)
    if not rates or not rate > 0.0:
        return []
    most, name = max(rates)
    more = 100 * (rate / most - 1)
    compared = f"{abs(more):.0f} % {'more' if more >= 0 else 'less'} than"
    if abs(more) < 0.5:
        compared = "as many as"
    seeds = len(set(plan.settings.seeds))
    runs = "one run each" if seeds == 1 else f"means of {seeds} runs each"
    return [
        f"Over the whole run the fleet puts out {rate:,.0f} tokens/s under tao, {compared} under "
        f"{name}, the most of the others ({most:,.0f}): {runs}, without an interval."
    ]


def _where(ours: ArmFindings, other: ArmFindings) -> list[str]:
    """Where the difference comes from: what is lost to a full cache, and what waiting costs."""
    lost = [arm.phases_s["again"] + arm.phases_s["queue"] for arm in (ours, other)]
    if not any(lost):
        return []
    return [
        f"Prefilling again and queueing in the engine take {lost[1]:,.0f} s of a session under "
        f"{other.arm} and {lost[0]:,.0f} s under tao, which holds it for "
        f"{ours.phases_s['hold']:,.0f} s instead."
    ]


def _saved(
    plan: ReplayPlan, arms: Sequence[ArmFindings], ours: ArmFindings, other: ArmFindings
) -> list[str]:
    """How many backends fewer give the latency that the other has on all of them."""
    full = plan.settings.num_backends
    if len(ours.task_s_by_backends) < 2:
        return []
    whole = "both" if full == 2 else f"all {full}"
    limit_s = EQUAL * other.task_s.value
    fewest = {arm.arm: _fewest_backends(arm, limit_s) for arm in arms}
    with_us, without_us = fewest[OURS], fewest[other.arm]
    if without_us is not None and without_us < full and (with_us is None or without_us <= with_us):
        return [
            f"Fewer backends: {other.arm} on {without_us} keeps up with itself on {whole} "
            f"({_both(other, without_us, other)}), so {full - without_us} of {full} could be saved "
            "without tao."
        ]
    if with_us is None:
        return []
    if with_us == full:
        return [
            f"Fewer backends: tao needs {whole} to keep up with {other.arm} on {whole}, so going "
            f"from {other.arm} to tao saves none."
        ]
    alike = [
        arm for arm, size in fewest.items() if arm != OURS and size is not None and size <= with_us
    ]
    return [
        f"Fewer backends: tao on {with_us} keeps up with {other.arm} on {whole} "
        f"({_both(ours, with_us, other)}), so going from {other.arm} to tao could save "
        f"{full - with_us} of {full}."
        + (f" {' or '.join(alike)} could save as many." if alike else "")
    ]


def _both(arm: ArmFindings, num_backends: int, other: ArmFindings) -> str:
    """The latencies that are called equal."""
    seconds = arm.task_s_by_backends[num_backends]
    return f"{seconds:,.0f} s against {other.task_s.value:,.0f} s per task"


def _fewest_backends(arm: ArmFindings, limit_s: float) -> int | None:
    """The smallest fleet such that it and all larger ones that were tried keep the limit."""
    fewest = None
    for size in sorted(arm.task_s_by_backends, reverse=True):
        # Sizes between those tried are not claimed, nor one size that is quick by chance.
        if not arm.task_s_by_backends[size] <= limit_s:
            break
        fewest = size
    return fewest
