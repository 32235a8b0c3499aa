"""How fast a queue moves: what an honest estimate of a wait is made of.

Turns leave the queue of new sessions when seats are given up. Before the first has left, Little's
law says how fast that will be: `n` seats held for `S` seconds each come free every `S / n`. Then
what the queue has shown takes over: its waiting time over the turns that left it, old ones fading.
Time in which nobody left counts too, so the estimate grows when nothing moves. The time between two
queues counts not.
"""

from dataclasses import dataclass

_MEMORY = 32.0
"""Turns that left the queue, over which the pace is taken."""
_PRIOR_WEIGHT = 4.0
"""Turns that the prior counts as."""


@dataclass(slots=True)
class QueuePace:
    """One queue, watched at every tick and whenever a turn enters or leaves it."""

    _waited_s: float = 0.0
    _num_left: float = 0.0
    _seen_s: float | None = None
    """`None`: the queue was empty."""
    _still_s: float = 0.0
    """Part of it since the last turn left."""

    def see(self, now_s: float, num_waiting: int) -> None:
        """Time has passed; so many wait now."""
        if self._seen_s is not None:
            passed_s = max(0.0, now_s - self._seen_s)
            self._waited_s += passed_s
            self._still_s += passed_s
        self._seen_s = now_s if num_waiting else None

    def left(self, now_s: float, num_waiting: int) -> None:
        """A turn got its lease; so many wait still."""
        self.see(now_s, num_waiting)
        fading = 1.0 - 1.0 / _MEMORY
        self._waited_s *= fading
        self._num_left = fading * (self._num_left + 1.0)
        self._still_s = 0.0

    def wait_s(self, position: int, prior_s: float) -> float:
        """Seconds until the turn at `position` (from 1) leaves.

        Args:
            position: in this queue.
            prior_s: time between two turns that leave, as far as is known without a queue.
        """
        interval_s = (self._waited_s + _PRIOR_WEIGHT * prior_s) / (self._num_left + _PRIOR_WEIGHT)
        # Of regular intervals the time since the last turn has passed, of random ones none of it.
        passed_s = min(self._still_s, interval_s) / 2.0
        return position * interval_s - passed_s
