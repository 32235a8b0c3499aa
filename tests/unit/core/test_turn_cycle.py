"""Runs and pauses, and what an eviction costs in terms of them."""

import pytest

from tao_coordinator.core.turn_cycle import TurnCycle


def seen(run_s: float, idle_s: float) -> TurnCycle:
    cycle = TurnCycle()
    cycle.ran(run_s)
    cycle.was_idle(idle_s)
    return cycle


def test_nothing_is_said_before_both_parts_were_seen() -> None:
    cycle = TurnCycle()
    assert cycle.price_ratio(30.0) is None
    cycle.ran(5.0)
    assert cycle.price_ratio(30.0) is None
    cycle.was_idle(5.0)
    assert cycle.price_ratio(30.0) is not None


@pytest.mark.parametrize(
    ("run_s", "idle_s", "share_running"), [(10.0, 0.0, 1.0), (5.0, 5.0, 0.5), (2.0, 18.0, 0.1)]
)
def test_ratio_is_the_stalled_share_of_a_refill_over_one_cycle(
    run_s: float, idle_s: float, share_running: float
) -> None:
    expected = share_running * 40.0 / (run_s + idle_s)
    assert seen(run_s, idle_s).price_ratio(40.0) == pytest.approx(expected)


def test_time_that_goes_back_counts_as_none() -> None:
    assert seen(5.0, -1.0).price_ratio(60.0) == seen(5.0, 0.0).price_ratio(60.0)
    assert seen(-1.0, 5.0).price_ratio(60.0) == 0.0


def test_no_time_at_all_is_no_division_by_zero() -> None:
    assert seen(0.0, 0.0).price_ratio(60.0) == 0.0
