"""The breaker: no call waits for a coordinator that does not answer.

    closed --no answer--> open --a probe is answered--> closed

While it is open every call passes through with no wait at all. Probes are the courier's business;
an agent's call never pays for one. The pause between probes doubles from 0.5 s to 30 s and starts
anew only when a lease request itself was answered: a coordinator that answers probes but no lease
requests is thus asked less and less often.
"""

import logging
import threading

logger = logging.getLogger("tao_client")

FIRST_PROBE_S = 0.5
LONGEST_PROBE_S = 30.0


class Breaker:
    """Whether the coordinator is being asked at present. Safe to use from any thread."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._is_open = False
        self._pause_s = FIRST_PROBE_S

    @property
    def is_open(self) -> bool:
        """True while calls pass through without asking."""
        return self._is_open

    def record_no_answer(self, reason: str) -> bool:
        """Open it; True if this opened it, so that the caller can start the probing."""
        with self._lock:
            if self._is_open:
                return False
            self._is_open = True
        logger.warning(
            "the coordinator at %s does not answer (%s): calls pass through until it does",
            self._endpoint,
            reason,
        )
        return True

    def record_answer(self) -> None:
        """A lease request was answered: the next outage is probed soon again."""
        self._pause_s = FIRST_PROBE_S

    def record_probe_answered(self) -> None:
        """Close it."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
        logger.info("the coordinator at %s answers again: calls are scheduled", self._endpoint)

    def next_pause_s(self) -> float:
        """Seconds until the next probe; each call doubles the one after."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, LONGEST_PROBE_S)
        return pause_s
