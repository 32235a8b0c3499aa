"""How all pictures of studies look: colours, sizes, frames."""

from pathlib import Path
from typing import Any, Final

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from tao_coordinator.study.study import OURS

COLORS: Final = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#bbbbbb", "#882255")
"""Told apart by people who see few colours; ours is red and thicker."""
OUR_COLOR: Final = "#ee3344"


def style(arm: str, number: int) -> dict[str, Any]:
    """Of the curve of the arm with this number."""
    if arm == OURS:
        return {"color": OUR_COLOR, "linewidth": 2.4, "label": arm, "zorder": 5}
    color = COLORS[number % len(COLORS)]
    dashed = "--" if number >= len(COLORS) else "-"
    return {"color": color, "linewidth": 1.4, "label": arm, "linestyle": dashed}


def new(rows: int = 1, height: float = 4.2) -> tuple[Any, Any]:
    """An empty figure, and its axes or rows of axes over one x."""
    figure, axes = plt.subplots(  # pyright: ignore[reportUnknownMemberType]
        rows, 1, figsize=(7.2, height), dpi=120, layout="constrained", sharex=True
    )
    return figure, axes


def finish(figure: Any, axes: Any, title: str, x: str, y: str, path: Path) -> str:
    """Write titles and legend, save; returns the file's name."""
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(bottom=min(0.0, axes.dataLim.y0))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
    return close(figure, path)


def close(figure: Any, path: Path) -> str:
    """Save and forget; returns the file's name."""
    figure.savefig(path)
    plt.close(figure)
    return path.name
