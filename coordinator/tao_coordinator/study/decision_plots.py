"""Pictures of what a cell's watch has noted, one kind per function."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from tao_coordinator.study.drawing import close, finish, new, style
from tao_coordinator.study.study import Outcome, Plot
from tao_coordinator.study.watches.survival import PAPER_HALF_LIFE_S
from tao_coordinator.study.watches.watch import Series

GAIN_BINS: Final = 40
_SESSION_COLORS: Final = (
    "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#332288", "#44aa99",
    "#999933", "#882255", "#ee7733", "#777777",
)  # fmt: skip


def survival(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """Median share that survives over idle seconds, with intervals, first seed of each arm.

    Dashed: the half-life of 10 s by which TAO lets credit decay.
    """
    figure, axes = new()
    last_s = 1.0
    for number, arm in enumerate(outcome.arms(panel)):
        rows = _series(outcome, panel, arm, "survival")
        if not rows or (plot.arms and arm not in plot.arms):
            continue
        at_s, median, low, high, _ = np.array(rows).T
        last_s = max(last_s, float(at_s.max()))
        spread = np.maximum(0.0, np.array([median - low, high - median]))
        axes.errorbar(at_s, median, spread, marker="o", capsize=3, **style(arm, number))
    times_s = np.geomspace(0.2, last_s, 200)
    axes.plot(times_s, 2.0 ** (-times_s / PAPER_HALF_LIFE_S), "k--", linewidth=1, label="h = 10 s")
    axes.set_xscale("log")
    x_title = plot.x_title or "idle seconds"
    return finish(figure, axes, f"{plot.title}: {panel}", x_title, plot.y_title, path)


def snapshot(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """One bar per backend: weights of the chosen sessions, pale, with their credit on top.

    Above as short-first places them, below jointly; a line marks each backend's budget. One colour
    per session, the same in both; twelve of them, in turn. It is the snapshot in which the first
    of the plot's arms gained most.
    """
    arm = plot.arms[0]
    sessions = _series(outcome, panel, arm, "example")
    budgets = _series(outcome, panel, arm, "example_budgets")
    figure, both = new(2, 4.8)
    for axes, first, name in zip(both, (3, 0), ("short-first", "jointly"), strict=True):
        placed, credit = _bars(axes, sessions, budgets, first)
        text = f"{name}: {placed} sessions, {credit:,.0f} tokens of cache credit"
        axes.set_title(text, fontsize=10, loc="left")
    both[1].set_xlabel("thousand tokens: weight pale, cache credit solid; | budget")
    figure.suptitle(f"{plot.title}: {panel}, {arm}", fontsize=11)
    return close(figure, path)


def _bars(axes: Any, sessions: Series, budgets: Series, first: int) -> tuple[int, float]:
    """Draw one rule's placement; returns how many sessions it places, with how much credit."""
    begins = [0.0] * len(budgets)
    placed, kept = 0, 0.0
    for number, row in enumerate(sessions):
        backend, weight, credit = int(row[first]), row[first + 1] / 1e3, row[first + 2] / 1e3
        if backend < 0:
            continue
        color = _SESSION_COLORS[number % len(_SESSION_COLORS)]
        axes.barh(backend, weight, left=begins[backend], color=color, alpha=0.3, edgecolor="white")
        axes.barh(backend, credit, 0.4, left=begins[backend], color=color)
        begins[backend] += weight
        placed, kept = placed + 1, kept + row[first + 2]
    for backend, (budget,) in enumerate(budgets):
        axes.plot([budget / 1e3] * 2, [backend - 0.45, backend + 0.45], "k-", linewidth=1.5)
    axes.set_yticks(range(len(budgets)), [f"b{backend}" for backend in range(len(budgets))])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    return placed, kept


def gains(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """How much credit the joint plan keeps more than short-first, over all snapshots of all seeds.

    Snapshots without any credit are left out: there is none to gain.
    """
    figure, axes = new()
    bins = np.linspace(-1.0, 1.0, GAIN_BINS + 1)
    for number, arm in enumerate(outcome.arms(panel)):
        if plot.arms and arm not in plot.arms:
            continue
        pairs = [
            pair for _, result in outcome.of(panel, arm) for pair in result.series.get("gains", [])
        ]
        both = np.array([pair for pair in pairs if max(pair) > 0]).reshape(-1, 2)
        if not len(both):
            continue
        gain = (both[:, 0] - both[:, 1]) / both.max(axis=1)
        share = np.full(len(gain), 100.0 / len(gain))
        look = style(arm, number) | {"label": f"{arm} ({len(gain)})"}
        axes.hist(gain, bins, weights=share, histtype="step", **look)
    title = f"{plot.title}: {panel}"
    return finish(figure, axes, title, plot.x_title, plot.y_title, path)


def terms(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """One dot per plan: what was lost over the bound on it; above the line the bound is broken."""
    figure, axes = new()
    largest = 1.0
    for number, arm in enumerate(outcome.arms(panel)):
        rows = _series(outcome, panel, arm, "terms")
        if not rows or (plot.arms and arm not in plot.arms):
            continue
        loss, bound = np.array(rows).T / 1e3
        largest = max(largest, float(bound.max()))
        look = style(arm, number) | {"linestyle": "", "linewidth": 0.0}
        axes.plot(bound, loss, marker=".", alpha=0.6, **look)
    axes.plot([0.0, largest], [0.0, largest], "k--", linewidth=1, label="loss = bound")
    title = f"{plot.title}: {panel}"
    return finish(figure, axes, title, plot.x_title, plot.y_title, path)


def _series(outcome: Outcome, panel: str, arm: str, name: str) -> Series:
    """Of the first seed that has it."""
    for _, result in outcome.of(panel, arm):
        if name in result.series:
            return result.series[name]
    return []
