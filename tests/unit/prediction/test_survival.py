"""Curves against closed forms: constant hazards, point masses, and ski rental by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_coordinator.prediction.survival import DURATIONS, Curve, Grid, scale_free


def exponential(mean_s: float) -> Curve:
    ends = 1.0 - np.exp(-np.array(DURATIONS.widths) / mean_s)
    return Curve(DURATIONS, np.minimum(ends, 1.0 - 1e-12))


def p_by(curve: Curve, age: float, horizon: float) -> float:
    return 1.0 - math.exp(curve.hazard_to(age) - curve.hazard_to(age + horizon))


curves = st.lists(
    st.floats(0.0, 0.999), min_size=DURATIONS.num_closed, max_size=DURATIONS.num_closed
).map(lambda ends: Curve(DURATIONS, np.array(ends)))
ages = st.floats(0.0, 20_000.0)


def test_grid_finds_the_bucket_of_every_value() -> None:
    grid = Grid([0.0, 1.0, 2.5, 10.0])
    assert [grid.index(value) for value in (0.0, 0.99, 1.0, 2.4, 2.5, 9.9, 10.0, 1e9)] == [
        0, 0, 1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    assert grid.widths == (1.0, 1.5, 7.5)


@pytest.mark.parametrize("edges", [[0.0], [1.0, 2.0], [0.0, 2.0, 2.0], [0.0, 3.0, 2.0]])
def test_grid_refuses_edges_that_do_not_ascend_from_zero(edges: list[float]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        Grid(edges)


def test_durations_are_a_quarter_wide_from_50_ms_to_hours() -> None:
    ratios = [b / a for a, b in zip(DURATIONS.edges[1:], DURATIONS.edges[2:], strict=False)]
    assert ratios == pytest.approx([1.25] * len(ratios))
    assert DURATIONS.edges[1] == 0.05
    assert DURATIONS.edges[-1] > 6 * 3600


@pytest.mark.parametrize("mean_s", [4.0, 20.0, 80.0])
@pytest.mark.parametrize("age_s", [0.0, 0.02, 1.0, 7.7, 100.0])
def test_exponential_has_a_constant_hazard(mean_s: float, age_s: float) -> None:
    curve = exponential(mean_s)
    assert p_by(curve, age_s, 1.0) == pytest.approx(1.0 - math.exp(-1.0 / mean_s))
    assert curve.hazard_to(age_s) == pytest.approx(age_s / mean_s)


def test_exponential_median_is_ln_2() -> None:
    assert exponential(10.0).value_at(math.log(2.0)) == pytest.approx(10.0 * math.log(2.0))


def test_beyond_the_last_edge_twice_as_long_is_half_as_likely() -> None:
    curve = exponential(10_000.0)
    last = DURATIONS.edges[-1]
    assert p_by(curve, 2.0 * last, 2.0 * last) == pytest.approx(0.5)
    assert curve.value_at(curve.hazard_to(5.0 * last)) == pytest.approx(5.0 * last)
    assert curve.value_at(1e9) < math.inf


def test_scale_free_prior_is_the_same_at_every_age() -> None:
    curve = scale_free(DURATIONS, 0.5)
    edges = DURATIONS.edges
    for age in (edges[4], edges[20], edges[40]):
        # Three buckets of 25 % are a factor of 1.953; inside a bucket the law is only close.
        assert p_by(curve, age, age * (1.25**3 - 1.0)) == pytest.approx(1.0 - 1.25**-1.5)
    assert math.exp(-curve.hazard_to(0.05)) == pytest.approx(0.5)


@given(curves, ages, st.floats(0.0, 5_000.0))
def test_value_at_inverts_hazard_to(curve: Curve, age: float, horizon: float) -> None:
    hazard = curve.hazard_to(age + horizon)
    found = curve.value_at(hazard)
    # Where nothing ends the inverse is a range, so compare hazards.
    assert curve.hazard_to(found) == pytest.approx(hazard, abs=1e-9)


@given(curves, ages, st.floats(0.0, 1_000.0), st.floats(0.0, 1_000.0))
def test_hazard_never_falls(curve: Curve, age: float, more: float, still_more: float) -> None:
    assert curve.hazard_to(age) <= curve.hazard_to(age + more) + 1e-12
    assert curve.hazard_to(age + more) <= curve.hazard_to(age + more + still_more) + 1e-12


@pytest.mark.parametrize(("refill_s", "limit_s"), [(10.0, 0.0), (30.0, math.inf)])
def test_memoryless_durations_are_kept_for_ever_or_not_at_all(
    refill_s: float, limit_s: float
) -> None:
    curve = exponential(20.0)
    found_s, cost_s = curve.keep(0.0, refill_s)
    assert found_s == limit_s
    assert cost_s == pytest.approx(min(refill_s, 20.0), rel=1e-3)


def test_a_certain_end_is_awaited_when_it_is_cheaper_than_the_refill() -> None:
    never_by_itself = Curve(DURATIONS, np.full(DURATIONS.num_closed, 1e-9))
    assert never_by_itself.keep(10.0, 25.0, limit=30.0) == (math.inf, pytest.approx(20.0))
    assert never_by_itself.keep(10.0, 15.0, limit=30.0) == (10.0, pytest.approx(15.0))


@settings(max_examples=40)
@given(
    curves,
    st.floats(0.0, 300.0),
    st.floats(0.5, 300.0),
    st.one_of(st.just(math.inf), st.floats(0.1, 200.0)),
)
def test_keep_is_the_brute_force_optimum(
    curve: Curve, age: float, refill: float, room: float
) -> None:
    """Cost of giving up after tau, integrated in small steps, for many tau."""
    until = age + min(room, 6.0 * refill)
    taus = np.linspace(age, until, 2001)
    hazards = np.array([curve.hazard_to(tau) for tau in taus])
    alive = np.exp(hazards[0] - hazards)
    spent = np.concatenate([[0.0], np.cumsum(0.5 * (alive[1:] + alive[:-1]) * np.diff(taus))])
    price = np.where(taus >= age + room - 1e-9, 0.0, refill)
    best = float(np.min(spent + price * alive))
    _, cost = curve.keep(age, refill, age + room)
    assert cost <= best + 0.01 * refill
    assert cost >= best - 0.05 * refill
