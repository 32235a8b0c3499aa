"""The pace of a queue, against queues whose pace is known."""

import pytest

from tao_coordinator.core.queue_pace import QueuePace


def test_before_anybody_has_left_the_prior_is_the_pace() -> None:
    pace = QueuePace()
    pace.see(100.0, 3)
    assert pace.wait_s(3, prior_s=20.0) == 60.0


@pytest.mark.parametrize("every_s", [2.0, 50.0])
def test_pace_becomes_what_the_queue_shows(every_s: float) -> None:
    pace = QueuePace()
    pace.see(0.0, 100)
    for n in range(1, 200):
        pace.left(n * every_s, 100)
    assert pace.wait_s(10, prior_s=10.0) == pytest.approx(10 * every_s, rel=0.5)
    assert pace.wait_s(10, prior_s=every_s) == pytest.approx(10 * every_s, rel=0.05)


def test_queue_that_does_not_move_gets_longer_estimates() -> None:
    pace = QueuePace()
    pace.see(0.0, 5)
    seen: list[float] = []
    for n in range(1, 6):
        pace.see(n * 100.0, 5)
        seen.append(pace.wait_s(1, prior_s=10.0))
    assert seen == sorted(seen)
    assert seen[-1] > 2 * seen[0]


def test_time_between_two_queues_does_not_count() -> None:
    pace = QueuePace()
    pace.see(0.0, 1)
    pace.left(10.0, 0)
    before_s = pace.wait_s(1, prior_s=10.0)
    pace.see(30_000.0, 0)
    pace.see(60_000.0, 1)
    assert pace.wait_s(1, prior_s=10.0) == before_s


def test_turn_that_is_due_waits_less_than_one_that_just_began() -> None:
    """Half of the time since the last turn left is taken off, at most half an interval."""
    pace = QueuePace()
    pace.see(0.0, 5)
    for n in range(1, 100):
        pace.left(n * 10.0, 5)
    fresh_s = pace.wait_s(1, prior_s=10.0)
    pace.see(995.0, 5)
    assert fresh_s - 3.0 < pace.wait_s(1, prior_s=10.0) < fresh_s
    pace.see(1_000.0, 5)
    assert pace.wait_s(1, prior_s=10.0) >= fresh_s / 2.0
