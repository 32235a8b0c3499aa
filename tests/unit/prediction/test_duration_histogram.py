"""Ski rental on a histogram, against closed forms and brute force."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.prediction.duration_histogram import (
    NUM_BUCKETS,
    DurationHistogram,
    bucket_index,
)


def filled(durations_s: list[float], key: str = "pytest") -> DurationHistogram:
    histogram = DurationHistogram()
    for duration_s in durations_s:
        histogram.add(key, duration_s)
    return histogram


def test_buckets_grow_and_cover_everything() -> None:
    assert bucket_index(0.0) == bucket_index(0.05) == 0
    assert bucket_index(0.06) == 1
    assert bucket_index(1e9) == NUM_BUCKETS - 1
    edges = [bucket_index(0.05 * 1.01**i) for i in range(1200)]
    assert edges == sorted(edges)


def test_short_tool_is_never_released() -> None:
    histogram = filled([2.0] * 400)
    assert histogram.keep_limit_s("pytest", 60.0) > 2.0


def test_always_long_tool_is_released_at_once() -> None:
    histogram = filled([290.0] * 2000)
    assert histogram.keep_limit_s("pytest", 30.0) == 0.0


def test_mixture_is_kept_until_the_short_part_is_over() -> None:
    histogram = filled([1.0] * 700 + [250.0] * 300)
    limit_s = histogram.keep_limit_s("pytest", 30.0)
    assert 1.0 <= limit_s < 3.0


def test_dear_cache_is_kept_longer_than_a_cheap_one() -> None:
    histogram = filled([1.0] * 500 + [100.0] * 500)
    assert histogram.keep_limit_s("pytest", 10.0) < histogram.keep_limit_s("pytest", 1000.0)


def test_exponential_durations_are_all_or_nothing() -> None:
    """Memoryless: waiting longer never changes the odds, so the best limit is 0 or far out."""
    draw = random.Random(1)
    histogram = filled([draw.expovariate(1 / 20.0) for _ in range(20_000)])
    assert histogram.keep_limit_s("pytest", 10.0) == 0.0
    assert histogram.keep_limit_s("pytest", 40.0) > 100.0


def test_unknown_key_uses_all_keys_and_own_samples_take_over() -> None:
    histogram = filled([200.0] * 1000, key="build")
    assert histogram.keep_limit_s("never seen", 20.0) == 0.0
    for _ in range(200):
        histogram.add("ls", 0.1)
    assert histogram.keep_limit_s("ls", 20.0) >= 0.1


def test_fresh_histogram_answers_from_the_prior() -> None:
    assert DurationHistogram().keep_limit_s("x", 60.0) > 5.0


def test_answer_follows_new_samples() -> None:
    histogram = filled([1.0] * 100)
    before_s = histogram.keep_limit_s("pytest", 20.0)
    for _ in range(5000):
        histogram.add("pytest", 250.0)
    assert histogram.keep_limit_s("pytest", 20.0) == 0.0 < before_s


def test_memory_is_bounded_by_the_number_of_keys() -> None:
    histogram = DurationHistogram()
    for number in range(5000):
        histogram.add(f"key {number}", 1.0)
        histogram.keep_limit_s(f"key {number}", 10.0 + number)
    assert len(histogram._by_key) == 4096
    assert len(histogram._limit_cache) <= 4 * 4096 + 1


@given(
    st.lists(st.floats(0.0, 400.0), min_size=200, max_size=300),
    st.floats(1.0, 300.0),
)
def test_limit_is_within_a_bucket_of_the_brute_force_optimum(
    durations_s: list[float], refill_s: float
) -> None:
    """Cost of the chosen limit on the very samples, against every limit there is."""

    def cost(limit_s: float) -> float:
        return sum(d if d <= limit_s else limit_s + refill_s for d in durations_s) / len(
            durations_s
        )

    best = min(cost(limit_s) for limit_s in [0.0, math.inf, *durations_s])
    chosen = filled(durations_s).keep_limit_s("pytest", refill_s)
    # Buckets are 25 % wide, R is rounded to 10 %, and 4 pseudo-counts weigh in.
    assert cost(chosen) <= best * 1.45 + 2.0


def test_negative_duration_counts_as_zero() -> None:
    histogram = filled([-3.0])
    assert histogram.weights("pytest")[0] == pytest.approx(1.0, abs=4.0)
