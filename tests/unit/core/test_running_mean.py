"""Plain at first, then forgetting."""

import pytest

from tao_coordinator.core.running_mean import RunningMean

GAIN = 0.005


def test_running_mean_begins_as_a_plain_one_and_then_forgets() -> None:
    mean = RunningMean(GAIN)
    assert not mean.is_known
    values = [3.0, 5.0, 10.0, 2.0]
    for value in values:
        mean.see(value)
    assert mean.value == pytest.approx(sum(values) / len(values))
    for _ in range(int(10 / GAIN)):
        mean.see(7.0)
    assert mean.value == pytest.approx(7.0, rel=1e-3)
