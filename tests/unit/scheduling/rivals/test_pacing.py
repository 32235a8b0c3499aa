"""Clocks of the rivals: whole intervals, whatever floats do to ticks."""

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.scheduling.rivals.pacing import Every, engine_second_s


def test_every_is_due_each_fifth_tick_in_spite_of_rounding() -> None:
    clock, parameters = Every(5.0), Parameters()
    now_s, due_ticks = 0.1, list[int]()
    for tick in range(1_000):
        if clock.due(now_s, parameters):
            due_ticks.append(tick)
        now_s += 1.0 + (1e-9 if tick % 2 else -1e-9)  # ticks are sums of floats
    assert due_ticks == list(range(5, 1_000, 5))


def test_every_runs_with_the_engines_time() -> None:
    clock, parameters = Every(5.0), Parameters().scaled(10.0)
    assert engine_second_s(parameters) == 0.1
    due = [n for n in range(21) if clock.due(n * 0.1, parameters)]
    assert due == [5, 10, 15, 20]
