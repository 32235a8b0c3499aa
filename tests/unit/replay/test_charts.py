"""Charts are well-formed SVG whose shapes have the sizes of their numbers."""

import math
import re
from xml.etree import ElementTree as ET

import pytest

from tao_coordinator.replay.charts import NARROW, WIDE, Frame, lines, stacked_bars


def svg(text: str, frame: Frame = WIDE) -> ET.Element:
    """The drawing for that kind of screen; each chart has one for both."""
    drawings = [
        ET.fromstring(part) for part in re.findall(r"<svg.*?</svg>", _bare(text), re.DOTALL)
    ]
    assert [drawing.attrib["class"] for drawing in drawings] == [WIDE.kind, NARROW.kind]
    return drawings[frame is NARROW]


def _bare(text: str) -> str:
    return re.sub(r' xmlns="[^"]+"', "", text)


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_bars_are_as_long_as_their_values(frame: Frame) -> None:
    rows: list[tuple[str, dict[str, float]]] = [
        ("one", {"a": 1.0, "b": 3.0}),
        ("two", {"a": 2.0}),
        ("none", {}),
    ]
    drawn = svg(stacked_bars(rows, [("a", "A"), ("b", "B")], "s"), frame)
    widths = [float(rect.attrib["width"]) for rect in drawn.iter("rect")]
    full = frame.width - frame.bars_left - frame.bars_right
    assert widths == pytest.approx([full / 4, full * 3 / 4, full / 2, 0, 0, 0], abs=0.1)
    assert [title.text for title in drawn.iter("title")][1] == "one: B 3.0 s"


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_lines_break_where_there_is_no_number_and_stay_inside(frame: Frame) -> None:
    curve = [(0.0, 1.0), (1.0, 2.0), (2.0, math.nan), (3.0, 4.0), (4.0, 0.0)]
    drawn = svg(lines([("x", curve)], x_title="t", y_title="y", marks=True), frame)
    pieces = [line.attrib["points"].split() for line in drawn.iter("polyline")]
    assert [len(piece) for piece in pieces] == [2, 2]
    for point in (point for piece in pieces for point in piece):
        x, y = map(float, point.split(","))
        assert 0 <= x <= frame.width and 0 <= y <= frame.lines_height
    assert len(list(drawn.iter("circle"))) == 4


@pytest.mark.parametrize(
    "curve", [[], [(1.0, 5.0)], [(1.0, 0.0), (2.0, 0.0)], [(0.0, 1e9), (1e-9, 1e-9)]]
)
def test_odd_data_is_drawn_or_left_out_and_never_fails(curve: list[tuple[float, float]]) -> None:
    text = lines([("x", curve)], x_title="t", y_title="y", whole_x=True)
    assert text == "" or svg(text) is not None


def test_names_cannot_break_the_page() -> None:
    text = stacked_bars([("</svg><script>", {"a": 1.0})], [("a", "A&B")], "s")
    assert "<script>" not in text
    svg(text)
