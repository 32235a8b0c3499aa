"""Reliability by hand, and intervals that come to cover what they claim."""

import random

import pytest

from tao_coordinator.prediction import calibration as module
from tao_coordinator.prediction.calibration import Coverage, Reliability


def test_reliability_is_what_counting_by_hand_gives() -> None:
    reliability = Reliability()
    for probability, came_true in ((0.05, False), (0.05, True), (0.95, True), (1.0, True)):
        reliability.add(probability, came_true)
    report = reliability.report()
    assert report.count == 4.0
    assert report.base_rate == 0.75
    assert report.brier == pytest.approx((0.05**2 + 0.95**2 + 0.05**2 + 0.0) / 4)
    first, last = report.bins[0], report.bins[9]
    assert (first.count, first.forecast, first.observed) == (2.0, 0.05, 0.5)
    assert (last.count, last.observed) == (2.0, 1.0)
    assert last.forecast == pytest.approx(0.975)
    assert report.calibration_error == pytest.approx((2 * 0.45 + 2 * 0.025) / 4)


def test_honest_forecasts_are_found_honest_and_bold_ones_are_not() -> None:
    draw = random.Random(1)
    honest, bold = Reliability(), Reliability()
    for _ in range(5000):
        probability = draw.random()
        came_true = draw.random() < probability
        honest.add(probability, came_true)
        bold.add(float(probability > 0.5), came_true)
    assert honest.report().calibration_error < 0.03
    assert bold.report().calibration_error > 0.2
    assert honest.report().brier < bold.report().brier


def test_reports_without_forecasts_are_empty_not_errors() -> None:
    assert Reliability().report().count == 0.0
    assert Coverage().report().covered == 0.0


def test_old_forecasts_fade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORGET_AT", 100.0)
    reliability = Reliability()
    for _ in range(1000):
        reliability.add(0.5, False)
    for _ in range(400):
        reliability.add(0.5, True)
    assert reliability.report().count < 100.0
    assert reliability.report().base_rate > 0.9


def test_merged_reliability_counts_both() -> None:
    one, other, both = Reliability(), Reliability(), Reliability()
    for index in range(20):
        (one if index % 2 else other).add(index / 20, index % 3 == 0)
        both.add(index / 20, index % 3 == 0)
    one.merge(other)
    assert one.report().brier == pytest.approx(both.report().brier)
    assert [b.count for b in one.report().bins] == [b.count for b in both.report().bins]


def uniform_level(value: float) -> float:
    """Where a value lies by a model that says "uniform on 0..1"."""
    return min(1.0, max(0.0, value))


def test_levels_of_a_true_model_stay_where_they_are() -> None:
    draw = random.Random(9)
    coverage = Coverage()
    for _ in range(5000):
        coverage.add(draw.random())
    low, high = coverage.levels
    assert (low, high) == (pytest.approx(0.05, abs=0.02), pytest.approx(0.95, abs=0.02))
    assert coverage.report().covered == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("scale", [1.0, 1.5, 0.3])
def test_interval_of_a_wrong_model_comes_to_cover_its_nominal_share(scale: float) -> None:
    """The model says "uniform on 0..1"; the truth is `scale` times that, half the time."""
    draw = random.Random(2)
    coverage = Coverage()
    inside = 0
    for index in range(8000):
        low, high = coverage.levels
        value = draw.random() * (scale if index % 2 else 1.0)
        level = uniform_level(value)
        coverage.add(level)
        if index >= 4000:
            inside += low <= level <= high
    assert inside / 4000 == pytest.approx(0.9, abs=0.02)


def test_interval_follows_a_drift() -> None:
    draw = random.Random(4)
    coverage = Coverage()
    late_misses = 0
    for index in range(12_000):
        _, high = coverage.levels
        level = uniform_level(draw.random() * (1.0 if index < 4000 else 1.5))
        coverage.add(level)
        if index >= 8000:
            late_misses += level > high
    # A third lies beyond everything the model knows; the interval opens often enough for it.
    assert late_misses / 4000 == pytest.approx(0.05, abs=0.01)


def test_levels_stay_levels_whatever_happens() -> None:
    coverage = Coverage()
    for level in (1.0, 0.0):
        for _ in range(3000):
            coverage.add(level)
            low, high = coverage.levels
            assert 0.0 <= low <= 0.5 <= high <= 1.0
    report = coverage.report()
    # Each side misses its nominal 5 % of its half, plus what it takes to open from where it was:
    # 0.05 / 0.005 and 0.5 / 0.005 calls of 6000.
    assert report.too_long == pytest.approx(0.025 + 10 / 6000, abs=0.003)
    assert report.too_short == pytest.approx(0.025 + 100 / 6000, abs=0.003)
