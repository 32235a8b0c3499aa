"""A study's pictures, drawn with matplotlib into PNG files."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tao_coordinator.simulation.run_record import Moment
from tao_coordinator.study import decision_plots
from tao_coordinator.study.drawing import finish, new, style
from tao_coordinator.study.study import Outcome, Plot

POINTS_MAX: Final = 60
"""Of a curve over time."""


def draw(outcome: Outcome, folder: Path) -> list[str]:
    """Draw all plots of a study; returns their file names."""
    names: list[str] = []
    for plot in outcome.study.plots:
        per_panel = _PER_PANEL.get(plot.kind)
        if per_panel is not None:
            for panel in plot.panels or outcome.panels():
                if panel in outcome.panels():
                    stem = f"{plot.name}-{_slug(panel)}" if len(plot.panels) != 1 else plot.name
                    names.append(per_panel(outcome, plot, panel, folder / f"{stem}.png"))
        else:
            for group in plot.panels or ("",):
                stem = f"{plot.name}-{_slug(group)}" if group else plot.name
                names.append(_lines(outcome, plot, group, folder / f"{stem}.png"))
    return names


def _lines(outcome: Outcome, plot: Plot, group: str, path: Path) -> str:
    """One curve per arm over the cells' x; the band is the range over seeds."""
    figure, axes = new()
    curves: dict[str, dict[float, list[float]]] = {}
    for cell, result in zip(outcome.cells, outcome.results, strict=True):
        if not cell.panel.startswith(group) or (plot.arms and cell.arm not in plot.arms):
            continue
        value = result.measures.get(plot.measure)
        if value is not None:
            curves.setdefault(cell.arm, {}).setdefault(cell.x, []).append(value)
    for number, (arm, points) in enumerate(curves.items()):
        x = sorted(points)
        look = style(arm, number)
        axes.plot(x, [sum(points[at]) / len(points[at]) for at in x], marker="o", **look)
        axes.fill_between(
            x,
            [min(points[at]) for at in x],
            [max(points[at]) for at in x],
            color=look["color"],
            alpha=0.12,
            linewidth=0,
        )
    title = plot.title if not group else f"{plot.title}: {group.strip(' ,')}"
    return finish(figure, axes, title, plot.x_title, plot.y_title, path)


def _bars(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """One bar per arm, the first on top; the line at its end is the range of the seeds."""
    arms = [arm for arm in outcome.arms(panel) if not plot.arms or arm in plot.arms]
    seeds = [list(outcome.values(panel, arm, plot.measure).values()) for arm in arms]
    known = [(arm, values) for arm, values in zip(arms, seeds, strict=True) if values][::-1]
    figure, axes = new(height=1.4 + 0.32 * len(known))
    means = [sum(values) / len(values) for _, values in known]
    below = [max(0.0, mean - min(values)) for mean, (_, values) in zip(means, known, strict=True)]
    above = [max(0.0, max(values) - mean) for mean, (_, values) in zip(means, known, strict=True)]
    colors = [style(arm, 0)["color"] for arm, _ in known]
    axes.barh([arm for arm, _ in known], means, xerr=[below, above], color=colors, height=0.6)
    return finish(figure, axes, f"{plot.title}: {panel}", plot.y_title, "", path)


def _timeline(outcome: Outcome, plot: Plot, panel: str, path: Path) -> str:
    """The first seed of each arm over time."""
    figure, axes = new()
    for number, arm in enumerate(outcome.arms(panel)):
        if plot.arms and arm not in plot.arms:
            continue
        timeline = outcome.of(panel, arm)[0][1].timeline
        times, values = _series(timeline, plot.measure)
        axes.plot([at / 60.0 for at in times], values, **style(arm, number))
    title = f"{plot.title}: {panel}"
    return finish(figure, axes, title, plot.x_title or "minutes", plot.y_title, path)


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


def _slug(text: str) -> str:
    kept = "".join(char if char.isalnum() else "-" for char in text.lower())
    return "-".join(part for part in kept.split("-") if part)


_PER_PANEL: Final[dict[str, Callable[[Outcome, Plot, str, Path], str]]] = {
    "bars": _bars,
    "timeline": _timeline,
    "survival": decision_plots.survival,
    "snapshot": decision_plots.snapshot,
    "gains": decision_plots.gains,
    "terms": decision_plots.terms,
}
