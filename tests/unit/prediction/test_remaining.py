"""Laws of remaining time against closed forms and against each other."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.prediction.remaining import (
    READY,
    Aged,
    LastOf,
    Law,
    Overdue,
    Point,
    Remaining,
    Source,
    last_of,
)
from tao_coordinator.prediction.survival import DURATIONS, Curve


def exponential(mean_s: float) -> Curve:
    ends = 1.0 - np.exp(-np.array(DURATIONS.widths) / mean_s)
    return Curve(DURATIONS, np.minimum(ends, 1.0 - 1e-12))


def of(law: Law) -> Remaining:
    return Remaining(law, Source.HISTORY, "key")


curves = st.lists(
    st.floats(0.0, 0.999), min_size=DURATIONS.num_closed, max_size=DURATIONS.num_closed
).map(lambda ends: Curve(DURATIONS, np.array(ends)))


def aged_with_room(curve: Curve, age_s: float, room_s: float) -> Aged:
    return Aged(curve, age_s, age_s + room_s)


def last_of_two(one: Aged, other: Aged) -> LastOf:
    return LastOf((one, other))


aged = st.builds(
    aged_with_room,
    curves,
    st.floats(0.0, 1_000.0),
    st.one_of(st.just(math.inf), st.floats(0.01, 500.0)),
)
laws: st.SearchStrategy[Law] = st.one_of(
    aged,
    st.builds(Overdue, st.floats(0.1, 1_000.0)),
    st.builds(Point, st.floats(0.0, 100.0)),
    st.builds(last_of_two, aged, aged),
)


@given(laws, st.floats(0.0, 1_000.0), st.floats(0.0, 1_000.0))
def test_probability_rises_with_the_horizon(law: Law, horizon_s: float, more_s: float) -> None:
    shorter, longer = law.p_by(horizon_s), law.p_by(horizon_s + more_s)
    assert -1e-12 <= shorter <= longer + 1e-12
    assert longer <= 1.0 + 1e-12


@given(laws, st.floats(0.0, 0.99), st.floats(0.0, 0.99))
def test_quantiles_are_ordered_and_never_negative(law: Law, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0.0 <= law.quantile(low) <= law.quantile(high) * 1.002 + 1e-9


@given(laws, st.floats(0.01, 0.99))
def test_quantile_is_where_the_probability_is_reached(law: Law, share: float) -> None:
    at_s = law.quantile(share)
    assert law.p_by(at_s * 1.002 + 1e-6) >= share - 1e-6


@given(laws, st.floats(0.5, 300.0))
def test_best_cost_is_at_most_the_refill(law: Law, refill_s: float) -> None:
    limit_s, cost_s = law.keep(refill_s)
    assert 0.0 <= cost_s <= refill_s + 1e-9
    assert limit_s >= 0.0


@given(aged, st.floats(0.5, 200.0))
def test_dearer_refills_are_avoided_longer(law: Aged, refill_s: float) -> None:
    cheap_s, dear_s = law.keep(refill_s)[0], law.keep(3.0 * refill_s)[0]
    assert dear_s >= cheap_s - 1e-9


def test_limit_is_a_certain_end() -> None:
    law = Aged(exponential(1e6), age_s=10.0, limit_s=30.0)
    assert law.p_by(20.0) == 1.0
    assert law.p_by(19.9) < 1e-3
    assert law.quantile(0.5) == 20.0
    assert law.quantile(0.999999) == 20.0


def test_unit_scales_the_curve() -> None:
    plain = Aged(exponential(10.0), age_s=3.0)
    scaled = Aged(exponential(1.0), age_s=3.0, unit_s=10.0)
    for horizon_s in (0.5, 4.0, 50.0):
        assert scaled.p_by(horizon_s) == pytest.approx(plain.p_by(horizon_s))
    assert scaled.quantile(0.7) == pytest.approx(plain.quantile(0.7))
    assert scaled.keep(30.0)[1] == pytest.approx(plain.keep(30.0)[1], rel=1e-3)


def test_overdue_gets_later_the_later_it_is() -> None:
    assert Overdue(1.0).p_by(1.0) == pytest.approx(0.5)
    assert Overdue(60.0).p_by(1.0) == pytest.approx(1.0 / 61.0)
    assert Overdue(60.0).quantile(0.5) == pytest.approx(60.0)


@pytest.mark.parametrize(("scale_s", "refill_s"), [(1.0, 60.0), (20.0, 60.0), (90.0, 60.0)])
def test_overdue_is_kept_to_its_brute_force_optimum(scale_s: float, refill_s: float) -> None:
    def cost_s(limit_s: float) -> float:
        # E[min(X, tau)] is the integral of the survival scale / (scale + x).
        return scale_s * math.log1p(limit_s / scale_s) + refill_s * scale_s / (scale_s + limit_s)

    limit_s, found_s = Overdue(scale_s).keep(refill_s)
    best_s = min(cost_s(0.1 * step) for step in range(3000))
    assert found_s == pytest.approx(best_s, rel=1e-3)
    assert found_s == pytest.approx(cost_s(limit_s))


def test_last_of_two_agrees_with_sampling() -> None:
    draw = random.Random(5)
    law = LastOf((Aged(exponential(5.0), 0.0), Aged(exponential(20.0), 0.0)))
    samples = [max(draw.expovariate(1 / 5.0), draw.expovariate(1 / 20.0)) for _ in range(20_000)]
    for horizon_s in (2.0, 10.0, 40.0):
        share = sum(sample <= horizon_s for sample in samples) / len(samples)
        assert law.p_by(horizon_s) == pytest.approx(share, abs=0.015)
    samples.sort()
    assert law.quantile(0.5) == pytest.approx(samples[10_000], rel=0.04)


def test_last_of_copies_of_a_certain_end_is_that_end() -> None:
    certain = Aged(exponential(1e9), 0.0, limit_s=12.0)
    both = LastOf((certain, certain))
    assert both.quantile(0.5) == pytest.approx(12.0, rel=2e-3)
    assert both.keep(50.0)[0] == math.inf
    # On the grid of durations, whose next edge is up to 25 % away.
    assert both.keep(50.0)[1] == pytest.approx(12.0, rel=0.25)
    assert both.keep(5.0) == (0.0, 5.0)


def test_last_of_answers_speaks_for_the_slowest() -> None:
    quick = Remaining(Aged(exponential(1.0), 0.0), Source.PROGRESS, "")
    slow = Remaining(Aged(exponential(50.0), 0.0), Source.HISTORY, "tool")
    both = last_of([quick, slow])
    assert (both.source, both.level) == (Source.HISTORY, "tool")
    assert both.p_ready_by(3.0) == pytest.approx(quick.p_ready_by(3.0) * slow.p_ready_by(3.0))
    assert last_of([quick]) is quick


def test_point_is_all_or_nothing() -> None:
    assert [Point(3.0).p_by(h) for h in (2.9, 3.0)] == [0.0, 1.0]
    assert Point(3.0).keep(2.0) == (0.0, 2.0)
    assert Point(3.0).keep(4.0) == (math.inf, 3.0)
    assert Point(0.0, ready=False).p_by(9.0) == 0.0


def test_ready_session_is_ready_now() -> None:
    assert READY.p_ready_by(0.0) == 1.0
    assert READY.median_s == 0.0
    assert READY.keep_limit_s(5.0) == math.inf
    assert READY.idle_cost_s(5.0) == 0.0


def test_open_interval_reaches_from_zero_to_never() -> None:
    answer = Remaining(Aged(exponential(5.0), 0.0), Source.PRIOR, "", (0.0, 1.0))
    assert answer.interval_s == (0.0, math.inf)
    assert answer.quantile(1.0) == math.inf
    assert answer.to_json(1.0)["interval_s"] == [0.0, None]


def test_plain_values_name_the_evidence() -> None:
    shown = of(Aged(exponential(5.0), 0.0)).to_json(1.0)
    assert shown["p_ready"] == pytest.approx(1.0 - math.exp(-0.2))
    assert (shown["source"], shown["level"]) == ("history", "key")
