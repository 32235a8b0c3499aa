"""Scores against counting pairs and cases one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.bench.readiness_score import (
    Forecast,
    StartForecast,
    area_under_curve,
    best_threshold,
    by_tool,
    score_ready,
    score_starts,
)


def forecast(
    probability: float, came_true: bool, tool: str = "x", median_s: float = 0.0
) -> Forecast:
    return Forecast(tool, probability, median_s, came_true)


forecasts = st.lists(
    st.builds(forecast, st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), st.booleans()),
    min_size=1,
    max_size=40,
)


@given(forecasts)
def test_area_under_curve_is_the_share_of_pairs_in_order(found: list[Forecast]) -> None:
    true = [f.probability for f in found if f.came_true]
    false = [f.probability for f in found if not f.came_true]
    wins = sum((t > f) + 0.5 * (t == f) for t in true for f in false)
    expected = wins / (len(true) * len(false)) if true and false else 0.5
    assert area_under_curve(found) == pytest.approx(expected)


def test_point_predictor_is_ranked_by_its_remaining_time() -> None:
    found = [forecast(0.0, True, median_s=2.0), forecast(0.0, False, median_s=9.0)]
    assert area_under_curve(found) == 1.0


@given(forecasts)
def test_best_threshold_has_no_better_one(found: list[Forecast]) -> None:
    def f1(threshold: float) -> float:
        return score_ready(found, threshold).f1

    best = f1(best_threshold(found))
    assert all(f1(threshold) <= best + 1e-12 for threshold in (0.0, 0.1, 0.3, 0.5, 0.9, 1.0))


def test_score_is_what_counting_gives() -> None:
    found = [forecast(0.9, True), forecast(0.8, False), forecast(0.2, True), forecast(0.1, False)]
    score = score_ready(found, 0.5)
    assert (score.precision, score.recall, score.f1) == (0.5, 0.5, 0.5)
    assert score.base_rate == 0.5
    assert score.brier == pytest.approx((0.01 + 0.64 + 0.64 + 0.01) / 4)
    assert score.calibration_error == pytest.approx((0.1 + 0.8 + 0.8 + 0.1) / 4)
    assert score.auc == 0.75


def test_first_third_only_chooses_the_threshold() -> None:
    warm_up = [forecast(0.4, True), forecast(0.3, False)]
    rest = [forecast(0.5, True), forecast(0.35, True), forecast(0.2, False), forecast(0.1, False)]
    score = score_ready(warm_up + rest)
    assert (score.count, score.threshold) == (4, 0.4)
    assert (score.precision, score.recall) == (1.0, 0.5)


def test_nothing_asked_scores_nothing() -> None:
    score = score_ready([])
    assert (score.count, score.f1, score.auc, score.brier) == (0, 0.0, 0.5, 0.0)
    assert score_starts([]).mae_s == 0.0


def test_tools_are_scored_apart_and_rare_ones_left_out() -> None:
    found = [forecast(0.9, True, "a")] * 9 + [forecast(0.1, True, "b")] * 12
    found += [forecast(0.9, True, "c")]
    scores = by_tool(found, 0.5, count_min=5)
    assert list(scores) == ["b"]  # of `a` only two are outside the first third
    assert scores["b"].recall == 0.0


def test_starts_are_scored_by_error_closeness_and_coverage() -> None:
    starts = [
        StartForecast(0.0, "a", 1.0, (0.5, 2.0), 1.4),
        StartForecast(1.0, "a", 1.0, (0.5, 2.0), 3.0),
        StartForecast(2.0, "a", 1.0, (0.0, math.inf), 9.0),
    ]
    score = score_starts(starts)
    assert score.mae_s == pytest.approx((0.4 + 2.0 + 8.0) / 3)
    assert score.close_share == pytest.approx(1 / 3)
    assert score.covered_share == pytest.approx(2 / 3)
