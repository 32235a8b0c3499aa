"""Efforts end searches by work done, or by a clock that is passed in."""

import pytest

from tao_coordinator.scheduling.placement import FULL, INSTANT, LOOP, Effort, Rung
from tao_coordinator.scheduling.placement.effort import EffortSpent, Meter


def test_meter_is_exhausted_by_work() -> None:
    meter = Meter(Effort(work=10))
    meter.spend(9)
    assert not meter.exhausted
    meter.checkpoint()
    meter.spend(1)
    assert meter.exhausted
    with pytest.raises(EffortSpent):
        meter.checkpoint()


def test_meter_is_exhausted_by_the_clock() -> None:
    seconds = 0.0
    meter = Meter(Effort(work=10).timed(lambda: seconds, limit_s=2.0))
    assert not meter.exhausted
    seconds = 2.0
    assert meter.exhausted


def test_clock_without_limit_only_reports() -> None:
    meter = Meter(Effort(work=10).timed(lambda: 1e9))
    assert not meter.exhausted


def test_presets_grow() -> None:
    assert INSTANT.work < LOOP.work < FULL.work
    assert INSTANT.rung_max == Rung.LOCAL_RATIO
    assert LOOP.rung_max == FULL.rung_max == Rung.NEIGHBOURHOOD
