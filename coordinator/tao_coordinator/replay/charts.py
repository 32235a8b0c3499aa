"""Small charts as inline SVG: stacked bars and lines, with words on them instead of riddles.

Each is drawn twice, for wide and for narrow screens, since letters that shrink with a drawing
cannot be read on a phone; the page's style shows one of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

TOP: Final = 14
BOTTOM: Final = 40
BAR: Final = 22
LABEL: Final = 22
"""Of a bar that has its label above it."""

NEAR_ZERO: Final = 0.5
"""An x axis whose values begin below this part of its end begins at 0."""

Curves = Sequence[tuple[str, Sequence[tuple[float, float]]]]
"""Names and points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Sizes of a drawing, in its own units, which are about those of the screen."""

    kind: str
    """CSS class."""
    width: int
    bars_left: int
    """Room for the labels of bars; 0: they stand above them."""
    bars_right: int
    lines_left: int
    lines_height: int
    ticks: int
    """About so many on an x axis."""

    @property
    def row(self) -> int:
        """Height of a bar and what belongs to it."""
        return BAR + 12 + (0 if self.bars_left else LABEL)


WIDE: Final = Frame(
    kind="wide-only",
    width=760,
    bars_left=176,
    bars_right=64,
    lines_left=58,
    lines_height=250,
    ticks=5,
)
NARROW: Final = Frame(
    kind="narrow-only",
    width=360,
    bars_left=0,
    bars_right=64,
    lines_left=48,
    lines_height=220,
    ticks=4,
)


def stacked_bars(
    rows: Sequence[tuple[str, Mapping[str, float]]], parts: Sequence[tuple[str, str]], unit: str
) -> str:
    """One bar per row, made of parts.

    Args:
        rows: label and value of each part by key.
        parts: key, which is also its CSS class, and words, in the order of drawing.
        unit: of the values.
    """
    legend = "".join(
        f'<span class="key"><i class="part-{key}"></i>{escape(words)}</span>'
        for key, words in parts
    )
    drawings = (_bars(frame, rows, parts, unit) for frame in (WIDE, NARROW))
    return f'<div class="legend">{legend}</div>{"".join(drawings)}'


def _bars(
    frame: Frame,
    rows: Sequence[tuple[str, Mapping[str, float]]],
    parts: Sequence[tuple[str, str]],
    unit: str,
) -> str:
    totals = [sum(values.get(key, 0.0) for key, _ in parts) for _, values in rows]
    scale = (frame.width - frame.bars_left - frame.bars_right) / max([*totals, 1e-9])
    shapes: list[str] = []
    for number, ((label, values), total) in enumerate(zip(rows, totals, strict=True)):
        y = TOP + frame.row * number
        if frame.bars_left:
            shapes.append(_text(frame.bars_left - 10, y + 16, label, anchor="end"))
        else:
            shapes.append(_text(0, y + 12, label))
            y += LABEL
        x = float(frame.bars_left)
        for key, words in parts:
            value = values.get(key, 0.0)
            wide = value * scale
            tip = f"{label}: {words} {value:,.1f} {unit}"
            shapes.append(
                f'<rect class="part-{key}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}">'
                f"<title>{escape(tip)}</title></rect>"
            )
            x += wide
        shapes.append(_text(x + 8, y + 16, f"{total:,.0f} {unit}"))
    return _svg(frame, TOP + frame.row * len(rows), shapes)


def lines(
    curves: Curves, *, x_title: str, y_title: str, whole_x: bool = False, marks: bool = False
) -> str:
    """Curves over a common axis; the n-th has the CSS class `curve-n`.

    Args:
        curves: name and points; points that are no numbers break the curve.
        x_title: with its unit.
        y_title: with its unit.
        whole_x: only whole numbers make sense on the x axis.
        marks: draw the points too.
    """
    points = [point for _, curve in curves for point in curve if _is_number(point)]
    if not points:
        return ""
    drawings = (_lines(f, curves, points, x_title, whole_x, marks) for f in (WIDE, NARROW))
    return _line_legend([name for name, _ in curves], y_title) + "".join(drawings)


def _lines(
    frame: Frame,
    curves: Curves,
    points: Sequence[tuple[float, float]],
    x_title: str,
    whole_x: bool,
    marks: bool,
) -> str:
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    if not whole_x and 0.0 < x_low < NEAR_ZERO * x_high:
        x_low = 0.0
    y_ticks = _ticks(0.0, max(y for _, y in points))
    x_ticks = _ticks(x_low, x_high, frame.ticks)
    if whole_x:
        x_ticks = [float(x) for x in range(math.ceil(x_low), math.floor(x_high) + 1)]
    y_high = max(y_ticks[-1], max(y for _, y in points))
    left, right = frame.lines_left, frame.width - 16
    bottom = frame.lines_height - BOTTOM

    def x_at(x: float) -> float:
        share = 0.5 if x_high == x_low else (x - x_low) / (x_high - x_low)
        return left + share * (right - left)

    def y_at(y: float) -> float:
        return bottom - (y / y_high if y_high else 0.0) * (bottom - TOP)

    shapes = [
        f'<line class="grid" x1="{left}" x2="{right}" y1="{y_at(y):.1f}" y2="{y_at(y):.1f}"/>'
        + _text(left - 8, y_at(y) + 4, f"{y:,g}", "end", small=True)
        for y in y_ticks
    ]
    shapes += [
        _text(x_at(x), bottom + 17, f"{x:,g}", "middle", small=True)
        for x in x_ticks
        if x_low <= x <= x_high
    ]
    middle = (left + right) / 2
    shapes.append(_text(middle, frame.lines_height - 6, x_title, "middle", small=True))
    # Ours is drawn last, on top.
    for number, (name, curve) in reversed(list(enumerate(curves))):
        for piece in _pieces(curve):
            drawn = [(x_at(x), y_at(y)) for x, y in piece]
            shapes += _curve(number, name, drawn)
            if marks:
                tips = [f"{name}: {y:,.1f} at {x:g}" for x, y in piece]
                shapes += _marks(number, drawn, tips)
    return _svg(frame, frame.lines_height, shapes)


def _curve(number: int, name: str, points: Sequence[tuple[float, float]]) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return [
        f'<polyline class="curve curve-{number}" points="{path}">'
        f"<title>{escape(name)}</title></polyline>"
    ]


def _marks(number: int, points: Sequence[tuple[float, float]], tips: Sequence[str]) -> list[str]:
    return [
        f'<circle class="mark curve-{number}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
        f"<title>{escape(tip)}</title></circle>"
        for (x, y), tip in zip(points, tips, strict=True)
    ]


def _line_legend(names: Sequence[str], y_title: str) -> str:
    keys = "".join(
        f'<span class="key"><i class="line curve-{number}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<div class="legend"><b>{escape(y_title)}</b>{keys}</div>'


def _pieces(curve: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    found: list[list[tuple[float, float]]] = [[]]
    for point in curve:
        if _is_number(point):
            found[-1].append(point)
        elif found[-1]:
            found.append([])
    return [piece for piece in found if piece]


def _is_number(point: tuple[float, float]) -> bool:
    return math.isfinite(point[0]) and math.isfinite(point[1])


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from below `low` to `high`."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def _text(x: float, y: float, text: str, anchor: str = "start", *, small: bool = False) -> str:
    kind = ' class="small"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _svg(frame: Frame, height: float, shapes: Sequence[str]) -> str:
    return (
        f'<svg class="{frame.kind}" viewBox="0 0 {frame.width} {height:.0f}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(shapes)}</svg>'
    )
