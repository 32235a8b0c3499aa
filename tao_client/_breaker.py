"""The breaker: no call waits for a coordinator that does not answer.

    closed --no answer--> open --a probe is answered--> closed

While it is open nothing is asked of that coordinator. Probes are the courier's business; an agent's
call never pays for one. The pause between probes doubles from 0.5 s to 30 s and starts anew only
when a lease request itself was answered: a coordinator that answers probes but no lease requests is
thus asked less and less often.
"""

import threading

FIRST_PROBE_S = 0.5
LONGEST_PROBE_S = 30.0


class Breaker:
    """Whether one coordinator is being asked at present. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._pause_s = FIRST_PROBE_S

    @property
    def is_open(self) -> bool:
        """True while it is not asked."""
        return self._is_open

    def record_no_answer(self) -> bool:
        """Open it; True if this opened it, so that the caller can start the probing."""
        return self._change(to_open=True)

    def record_answer(self) -> None:
        """A lease request was answered: the next outage is probed soon again."""
        self._pause_s = FIRST_PROBE_S

    def record_probe_answered(self) -> bool:
        """Close it; True if this closed it."""
        return self._change(to_open=False)

    def next_pause_s(self) -> float:
        """Seconds until the next probe; each call doubles the one after."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PROBE_S)
        return pause_s

    def _change(self, *, to_open: bool) -> bool:
        with self._lock:
            has_changed = self._is_open is not to_open
            self._is_open = to_open
        return has_changed
