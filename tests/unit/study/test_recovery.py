"""When caches are warm again, on timelines that can be read by eye."""

import pytest

from tao_coordinator.simulation.run_record import Moment
from tao_coordinator.study.recovery import recovery_s


def timeline(*hit_rates: float, start_s: float = 1_000.0) -> list[Moment]:
    """100 s a moment, 1,000 prompt tokens each, cached at these rates."""
    prompt, cached = 0, 0
    found = [moment(start_s, 0, 0)]
    for number, rate in enumerate(hit_rates, start=1):
        prompt, cached = prompt + 1_000, cached + int(1_000 * rate)
        found.append(moment(start_s + 100.0 * number, prompt, cached))
    return found


def moment(time_s: float, prompt: int, cached: int) -> Moment:
    return Moment(time_s, 0, 0, 0, 0, 0.0, prompt, cached, 0, 0)


def test_warm_from_the_beginning() -> None:
    assert recovery_s(timeline(*[0.95] * 6), 1_000.0) == 0.0


def test_what_was_before_does_not_count() -> None:
    assert recovery_s(timeline(*[0.1] * 4, *[0.95] * 6), 1_400.0) == 0.0


def test_cold_windows_are_waited_for() -> None:
    assert recovery_s(timeline(*[0.3] * 4, *[0.95] * 6), 1_000.0) == 400.0


def test_two_warm_windows_between_cold_ones_are_luck() -> None:
    rates = [0.95] * 4 + [0.3] * 2 + [0.95] * 6
    assert recovery_s(timeline(*rates), 1_000.0) == 600.0


@pytest.mark.parametrize("rates", [[0.3] * 10, [0.95] * 5])
def test_never_warm_lasts_until_the_end(rates: list[float]) -> None:
    assert recovery_s(timeline(*rates), 1_000.0) == 100.0 * len(rates)


def test_silence_is_warm_and_nothing_is_nothing() -> None:
    silent = [moment(1_000.0 + 100.0 * number, 5_000, 100) for number in range(8)]
    assert recovery_s(silent, 1_000.0) == 0.0
    assert recovery_s([], 1_000.0) == 0.0
