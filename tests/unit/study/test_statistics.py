import math
import random

import pytest

from tao_coordinator.study.statistics import mean_interval, ratio_interval


def test_interval_of_a_mean_has_the_width_of_its_standard_error() -> None:
    draw = random.Random(1)
    values = [draw.gauss(10.0, 2.0) for _ in range(400)]
    found = mean_interval(values)
    assert found.value == pytest.approx(sum(values) / 400)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 2.0 / math.sqrt(400), rel=0.15)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(2)
    hits = 0
    for _ in range(200):
        found = mean_interval([draw.expovariate(1.0) for _ in range(60)])
        hits += found.low <= 1.0 <= found.high
    assert hits >= 175  # 95 % of 200 are 190; skewed data cost a little


def test_paired_ratio_cancels_what_both_arms_have_in_common() -> None:
    """Sessions from 1 to 1,000 s, all 10 % longer in one arm: no doubt about the 10 %."""
    draw = random.Random(3)
    ours = {str(n): 10.0 ** draw.uniform(0, 3) for n in range(100)}
    theirs = {key: value / 1.1 for key, value in ours.items()}
    found = ratio_interval(ours, theirs)
    assert (found.low, found.value, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_units_that_one_arm_lacks_do_not_count_and_nothing_gives_nothing() -> None:
    assert ratio_interval({"a": 2.0, "b": 99.0}, {"a": 1.0}).value == 2.0
    assert math.isnan(ratio_interval({"a": 2.0}, {"b": 1.0}).value)
    assert math.isnan(ratio_interval({"a": 2.0}, {"a": 0.0}).value)
    assert math.isnan(mean_interval([]).value)


def test_one_unit_has_no_interval() -> None:
    for found in (mean_interval([2.0]), ratio_interval({"a": 2.0}, {"a": 1.0})):
        assert found.value == 2.0
        assert math.isnan(found.low) and math.isnan(found.high)
