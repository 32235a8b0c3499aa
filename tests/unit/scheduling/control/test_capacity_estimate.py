"""The capacity controller: direction, limits, dead zone, anti-windup, and what must not move it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.core.evidence import CacheEvidence
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.scheduling.control.capacity_estimate import CapacityEstimate

PARAMETERS = Parameters()
WINDOW = PARAMETERS.capacity_window_tokens


def corrected(
    estimate: CapacityEstimate,
    error: float,
    *,
    quality: float = 1.0,
    parameters: Parameters = PARAMETERS,
) -> float | None:
    evidence = CacheEvidence(surplus_tokens=int(error * WINDOW), prompt_tokens=WINDOW)
    return estimate.correct(evidence, quality, parameters)


def test_nothing_moves_before_a_window_is_full() -> None:
    evidence = CacheEvidence(surplus_tokens=-WINDOW, prompt_tokens=WINDOW - 1)
    assert CapacityEstimate().correct(evidence, 1.0, PARAMETERS) is None
    assert evidence.prompt_tokens == WINDOW - 1


def test_full_window_is_taken_and_the_next_begins_at_zero() -> None:
    evidence = CacheEvidence(surplus_tokens=-100, prompt_tokens=WINDOW)
    CapacityEstimate().correct(evidence, 1.0, PARAMETERS)
    assert (evidence.surplus_tokens, evidence.prompt_tokens) == (0, 0)


@pytest.mark.parametrize(("error", "expected"), [(-0.1, 0.97), (0.1, 1.03), (-0.9, 0.91)])
def test_step_is_gain_times_clipped_error(error: float, expected: float) -> None:
    assert corrected(CapacityEstimate(), error) == pytest.approx(expected)


@pytest.mark.parametrize("error", [0.0, 0.019, -0.019])
def test_dead_zone_holds_still(error: float) -> None:
    estimate = CapacityEstimate(integral=0.8)
    assert corrected(estimate, error) == pytest.approx(0.8)


def test_integral_stays_inside_the_actuators_range_and_leaves_it_at_once() -> None:
    """No windup: however long the error pushed against the limit, one opposite window moves it."""
    estimate = CapacityEstimate()
    for _ in range(100):
        corrected(estimate, -1.0)
    assert estimate.integral == PARAMETERS.capacity_factor_min
    assert corrected(estimate, 0.2) == pytest.approx(PARAMETERS.capacity_factor_min + 0.06)


def test_wrong_predictions_return_the_estimate_to_one() -> None:
    estimate = CapacityEstimate(integral=0.5)
    assert corrected(estimate, -0.3, quality=0.4) == 1.0
    assert estimate.integral == 1.0


def test_proportional_part_adds_to_the_step_and_does_not_accumulate() -> None:
    parameters = replace(PARAMETERS, capacity_proportional_gain=0.5)
    estimate = CapacityEstimate()
    assert corrected(estimate, -0.1, parameters=parameters) == pytest.approx(0.97 - 0.05)
    assert corrected(estimate, 0.0, parameters=parameters) == pytest.approx(0.97)


@given(st.lists(st.floats(-1.0, 1.0), max_size=60))
def test_factor_is_always_within_its_limits(errors: list[float]) -> None:
    estimate = CapacityEstimate()
    for error in errors:
        factor = corrected(estimate, error)
        assert factor is not None
        assert PARAMETERS.capacity_factor_min <= factor <= PARAMETERS.capacity_factor_max


@given(st.floats(0.45, 1.55))
def test_static_loop_converges_without_crossing(true_factor: float) -> None:
    """A pool whose surplus is proportional to the distance: monotone, no overshoot."""
    estimate = CapacityEstimate()
    distances = [abs(1.0 - true_factor)]
    for _ in range(200):
        corrected(estimate, true_factor - estimate.integral)
        distances.append(abs(estimate.integral - true_factor))
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] <= PARAMETERS.capacity_dead_zone + 1e-5


# --- evidence -----------------------------------------------------------------------------------


def surplus(predicted: int, cached: int, depth: float, prompt: int = 20_000) -> int:
    evidence = CacheEvidence()
    evidence.record(
        prompt_tokens=prompt, predicted_tokens=predicted, cached_tokens=cached, depth_ratio=depth
    )
    assert evidence.prompt_tokens == prompt
    return evidence.surplus_tokens


def test_total_miss_of_a_deep_chain_is_missing_capacity() -> None:
    assert surplus(10_000, 0, 0.8) == -10_000
    assert surplus(10_000, 499, 0.8) == -10_000


def test_partial_hit_is_a_changed_prompt_not_an_eviction() -> None:
    assert surplus(10_000, 501, 0.8) == 0
    assert surplus(10_000, 10_000, 0.8) == 0


def test_miss_of_a_shallow_chain_says_nothing_about_capacity() -> None:
    assert surplus(10_000, 0, 0.49) == 0


def test_small_prediction_is_no_evidence() -> None:
    assert surplus(1_000, 0, 0.9) == 0


def test_hit_of_what_should_be_gone_is_spare_capacity() -> None:
    assert surplus(0, 7_000, 0.0) == 7_000
