"""A study's pictures, drawn with matplotlib into PNG files."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from tao_coordinator.simulation.run_record import Moment
from tao_coordinator.study.study import OURS, Outcome, Plot

COLORS: Final = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#bbbbbb", "#882255")
"""Told apart by people who see few colours; ours is red and thicker."""
OUR_COLOR: Final = "#ee3344"
POINTS_MAX: Final = 60
"""Of a curve over time."""


def draw(outcome: Outcome, folder: Path) -> list[str]:
    """Draw all plots of a study; returns their file names."""
    names: list[str] = []
    for plot in outcome.study.plots:
        if plot.kind == "timeline":
            for panel in plot.panels or outcome.panels():
                if panel in outcome.panels():
                    stem = f"{plot.name}-{_slug(panel)}" if len(plot.panels) != 1 else plot.name
                    names.append(_timeline(outcome, plot, panel, folder / f"{stem}.png"))
        else:
            for group in plot.panels or ("",):
                stem = f"{plot.name}-{_slug(group)}" if group else plot.name
                names.append(_lines(outcome, plot, group, folder / f"{stem}.png"))
    return names


def _lines(outcome: Outcome, plot: Plot, group: str, path: Path) -> str:
    """One curve per arm over the cells' x; the band is the range over seeds."""
    figure, axes = _new()
    curves: dict[str, dict[float, list[float]]] = {}
    for cell, result in zip(outcome.cells, outcome.results, strict=True):
        if not cell.panel.startswith(group) or (plot.arms and cell.arm not in plot.arms):
            continue
        value = result.measures.get(plot.measure)
        if value is not None:
            curves.setdefault(cell.arm, {}).setdefault(cell.x, []).append(value)
    for number, (arm, points) in enumerate(curves.items()):
        x = sorted(points)
        style = _style(arm, number)
        axes.plot(x, [sum(points[at]) / len(points[at]) for at in x], marker="o", **style)
        axes.fill_between(
            x,
            [min(points[at]) for at in x],
            [max(points[at]) for at in x],
            color=style["color"],
            alpha=0.12,
            linewidth=0,
        )
    title = plot.title if not group else f"{plot.title}: {group.strip(' ,')}"
    return _finish(figure, axes, title, plot.x_title, plot.y_title, path)


def _timeline(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """The first seed of each arm over time."""
    figure, axes = _new()
    for number, arm in enumerate(outcome.arms(panel)):
        if plot.arms and arm not in plot.arms:
            continue
        timeline = outcome.of(panel, arm)[0][1].timeline
        times, values = _series(timeline, plot.measure)
        axes.plot([at / 60.0 for at in times], values, **_style(arm, number))
    title = f"{plot.title}: {panel}"
    return _finish(figure, axes, title, plot.x_title or "minutes", plot.y_title, path)


def _series(timeline: Sequence[Sequence[float]], name: str) -> tuple[list[float], list[float]]:
    """A field of the moments, or the hit rate between two of them; few enough to be read."""
    step = max(1, len(timeline) // POINTS_MAX)
    if name != "hit_rate":
        index = Moment._fields.index(name)
        groups = [timeline[start : start + step] for start in range(0, len(timeline), step)]
        means = [sum(moment[index] for moment in group) / len(group) for group in groups]
        return [group[0][0] for group in groups], means
    timeline = timeline[::step]
    times = [moment[0] for moment in timeline]
    prompt, cached = Moment._fields.index("prompt_tokens"), Moment._fields.index("cached_tokens")
    rates = [
        (after[cached] - before[cached]) / (after[prompt] - before[prompt])
        if after[prompt] > before[prompt]
        else float("nan")
        for before, after in pairwise(timeline)
    ]
    return times[1:], rates


def _style(arm: str, number: int) -> dict[str, Any]:
    if arm == OURS:
        return {"color": OUR_COLOR, "linewidth": 2.4, "label": arm, "zorder": 5}
    color = COLORS[number % len(COLORS)]
    dashed = "--" if number >= len(COLORS) else "-"
    return {"color": color, "linewidth": 1.4, "label": arm, "linestyle": dashed}


def _new() -> tuple[Any, Any]:
    figure, axes = plt.subplots(figsize=(7.2, 4.2), dpi=120, layout="constrained")  # pyright: ignore[reportUnknownMemberType]
    return figure, axes


def _finish(figure: Any, axes: Any, title: str, x: str, y: str, path: Path) -> str:
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)
    plt.close(figure)
    return path.name


def _slug(text: str) -> str:
    kept = "".join(char if char.isalnum() else "-" for char in text.lower())
    return "-".join(part for part in kept.split("-") if part)
