"""How a session's time passes between two turns: a call runs, then it is idle.

Times are seconds of the caller's clock. What was held is in neither: it is the policy's own doing.
"""

from typing import Final

from tao_coordinator.core.running_mean import RunningMean

GAIN: Final = 0.005
"""Of one turn: pauses are heavy-tailed, and their mean enters the ratio squared."""


class TurnCycle:
    """Means over all sessions; unknown until both have been seen."""

    __slots__ = ("_idle_s", "_run_s")

    def __init__(self) -> None:
        self._run_s = RunningMean(GAIN)
        self._idle_s = RunningMean(GAIN)

    def ran(self, seconds: float) -> None:
        """A call took so long from its grant to its end."""
        self._run_s.see(max(0.0, seconds))

    def was_idle(self, seconds: float) -> None:
        """A session asked again so long after its last reply."""
        self._idle_s.see(max(0.0, seconds))

    def price_ratio(self, refill_s: float) -> float | None:
        """What an eviction costs, in what a seat is worth until its next turn; `None`: unknown.

        Refilling w of a pool of C tokens takes `w / rate`, and only the seats whose calls run at
        that time, a share d of all, wait for it: `d * refill_s` token-seconds per token, with
        `refill_s` that of the whole pool. The same token serves a seat for one cycle.
        """
        if not (self._run_s.is_known and self._idle_s.is_known):
            return None
        run_s = self._run_s.value
        cycle_s = max(1e-6, run_s + self._idle_s.value)
        return refill_s * run_s / cycle_s**2
