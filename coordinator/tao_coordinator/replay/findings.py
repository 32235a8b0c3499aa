"""What the runs of a replay say, in numbers and in a few plain sentences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.replay.plan import ReplayPlan, panel_name
from tao_coordinator.study.cell import CellResult
from tao_coordinator.study.statistics import Interval, mean_interval, ratio_interval
from tao_coordinator.study.study import OURS

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

    @property
    def ours(self) -> ArmFindings | None:
        """The arm of the default policy."""
        return next((arm for arm in self.arms if arm.arm == OURS), None)

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
    return Findings(plan, arms, _sentences(plan, arms))


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
    working_set = ours.measures.get("working_set", plan.pressure)
    if working_set < 0.7 and plan.pressure < 0.7:
        found.append(
            "All sessions fit the pools: there is little to gain from scheduling at this load."
        )
    found += _saved(plan, ours, best)
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
        found += _saved(plan, ours, router)
        found += _where(ours, router)
    return found


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


def _saved(plan: ReplayPlan, ours: ArmFindings, best: ArmFindings) -> list[str]:
    """How many backends tao needs for the latency of the best other on all of them."""
    full = plan.settings.num_backends
    if len(ours.task_s_by_backends) < 2:
        return []
    limit_s = EQUAL * best.task_s.value
    fewest, without_us = _fewest_backends(ours, limit_s), _fewest_backends(best, limit_s)
    if without_us is not None and without_us < full and (fewest is None or without_us <= fewest):
        return [
            f"{without_us} of {full} backends give that latency under {best.arm} too: "
            f"{full - without_us} could be saved without tao."
        ]
    if fewest is None:
        return []
    if fewest == full:
        number = "both" if full == 2 else f"all {full}"
        return [f"tao needs {number} backends too for the latency of {best.arm} on {full}."]
    return [
        f"With tao {fewest} of {full} backends give{'s' if fewest == 1 else ''} the latency of "
        f"{best.arm} on all {full}: {full - fewest} could be saved."
    ]


def _fewest_backends(arm: ArmFindings, limit_s: float) -> int | None:
    """The smallest fleet such that it and all larger ones that were tried keep the limit."""
    fewest = None
    for size in sorted(arm.task_s_by_backends, reverse=True):
        # Sizes between those tried are not claimed, nor one size that is quick by chance.
        if not arm.task_s_by_backends[size] <= limit_s:
            break
        fewest = size
    return fewest
