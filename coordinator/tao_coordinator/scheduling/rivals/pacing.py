"""Clocks of policies that think in intervals of their own instead of the engine's tick."""

from tao_coordinator.core.parameters import Parameters

_TICK_S = Parameters().tick_s
_SLACK_S = 1e-6
"""Ticks are sums of floats: one that is late by rounding must not cost a whole tick."""


def engine_second_s(parameters: Parameters) -> float:
    """Seconds of the coordinator's clock that pass in one second of the engines' time.

    1 except against accelerated engines: `Parameters.scaled` shortens the tick by the same factor.
    """
    return parameters.tick_s / _TICK_S


class Every:
    """Due once per interval, for the first time one interval after it was first asked."""

    def __init__(self, interval_s: float) -> None:
        """Repeat every `interval_s` of the engines' time."""
        self.interval_s = interval_s
        self._next_s: float | None = None

    def due(self, now_s: float, parameters: Parameters) -> bool:
        """True when the interval is over; starts the next one."""
        step_s = self.interval_s * engine_second_s(parameters)
        if self._next_s is None:
            self._next_s = now_s + step_s
            return False
        if now_s < self._next_s - _SLACK_S:
            return False
        self._next_s = now_s + step_s
        return True
