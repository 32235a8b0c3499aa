"""Small charts as inline SVG: stacked bars and lines, with words on them instead of riddles."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH: Final = 760
LEFT: Final = 176
RIGHT: Final = 64
ROW: Final = 34
LINES_LEFT: Final = 58
LINES_HEIGHT: Final = 250
TOP: Final = 14
BOTTOM: Final = 40


def stacked_bars(
    rows: Sequence[tuple[str, Mapping[str, float]]], parts: Sequence[tuple[str, str]], unit: str
) -> str:
    """One bar per row, made of parts.

    Args:
        rows: label and value of each part by key.
        parts: key, which is also its CSS class, and words, in the order of drawing.
        unit: of the values.
    """
    totals = [sum(values.get(key, 0.0) for key, _ in parts) for _, values in rows]
    most = max([*totals, 1e-9])
    scale = (WIDTH - LEFT - RIGHT) / most
    height = TOP + ROW * len(rows)
    shapes: list[str] = []
    for number, ((label, values), total) in enumerate(zip(rows, totals, strict=True)):
        y = TOP + ROW * number
        shapes.append(_text(LEFT - 10, y + 16, label, anchor="end"))
        x = float(LEFT)
        for key, words in parts:
            value = values.get(key, 0.0)
            wide = value * scale
            tip = f"{label}: {words} {value:,.1f} {unit}"
            shapes.append(
                f'<rect class="part-{key}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="22">'
                f"<title>{escape(tip)}</title></rect>"
            )
            x += wide
        shapes.append(_text(x + 8, y + 16, f"{total:,.0f} {unit}"))
    legend = "".join(
        f'<span class="key"><i class="part-{key}"></i>{escape(words)}</span>'
        for key, words in parts
    )
    return f'<div class="legend">{legend}</div>{_svg(height, shapes)}'


def lines(
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    *,
    x_title: str,
    y_title: str,
    whole_x: bool = False,
    marks: bool = False,
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
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_ticks = _ticks(0.0, max(y for _, y in points))
    x_ticks = _ticks(x_low, x_high)
    if whole_x:
        x_ticks = [float(x) for x in range(math.ceil(x_low), math.floor(x_high) + 1)]
    y_high = max(y_ticks[-1], max(y for _, y in points))
    wide, tall = WIDTH - LINES_LEFT - 16, LINES_HEIGHT - TOP - BOTTOM

    def x_at(x: float) -> float:
        return LINES_LEFT + (0.5 if x_high == x_low else (x - x_low) / (x_high - x_low)) * wide

    def y_at(y: float) -> float:
        return TOP + tall - (y / y_high if y_high else 0.0) * tall

    shapes = [
        f'<line class="grid" x1="{LINES_LEFT}" x2="{WIDTH - 16}" y1="{y_at(y):.1f}" '
        f'y2="{y_at(y):.1f}"/>' + _text(LINES_LEFT - 8, y_at(y) + 4, f"{y:,g}", "end", small=True)
        for y in y_ticks
    ]
    shapes += [
        _text(x_at(x), TOP + tall + 17, f"{x:,g}", "middle", small=True)
        for x in x_ticks
        if x_low <= x <= x_high
    ]
    shapes.append(_text(LINES_LEFT + wide / 2, LINES_HEIGHT - 6, x_title, "middle", small=True))
    # Ours is drawn last, on top.
    for number, (name, curve) in reversed(list(enumerate(curves))):
        for piece in _pieces(curve):
            path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in piece)
            shapes.append(
                f'<polyline class="curve curve-{number}" points="{path}">'
                f"<title>{escape(name)}</title></polyline>"
            )
            if marks:
                shapes += [
                    f'<circle class="mark curve-{number}" cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" '
                    f'r="4"><title>{escape(f"{name}: {y:,.1f} at {x:g}")}</title></circle>'
                    for x, y in piece
                ]
    return _line_legend([name for name, _ in curves], y_title) + _svg(LINES_HEIGHT, shapes)


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


def _svg(height: float, shapes: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(shapes)}</svg>'
    )
