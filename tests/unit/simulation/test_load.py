import pytest

from tao_coordinator.simulation.load import ClosedLoop, OpenLoop


def test_closed_loop_ramps_up_and_replaces_whoever_ends() -> None:
    load = ClosedLoop(workers=4, ramp_s=60.0)
    assert load.starts(100) == [(0.0, 1), (15.0, 1), (30.0, 1), (45.0, 1)]
    assert load.starts(2) == [(0.0, 1), (30.0, 1)]
    assert load.after_end(100.0, 3) == 100.5


def test_workers_that_leave_finish_and_those_that_come_start_together() -> None:
    load = ClosedLoop(workers=4, changes=((50.0, 2), (80.0, 5)))
    assert (80.0, 3) in load.starts(100)
    assert load.after_end(49.0, 3) == 49.5
    assert load.after_end(50.0, 3) is None
    assert load.after_end(50.0, 1) == 50.5
    assert load.after_end(90.0, 4) == 90.5


def test_open_loop_waits_for_nobody() -> None:
    load = OpenLoop(arrivals_s=(1.0, 2.0, 5.0))
    assert load.starts(2) == [(1.0, 1), (2.0, 1)]
    assert load.after_end(3.0, 0) is None


def test_a_loop_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        ClosedLoop(workers=0)
