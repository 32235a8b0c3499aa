"""Asks one backend how it is, again and again, and tells the engine what came of it.

Each backend has a task and a time limit of its own, so that a slow one delays nobody else. A
backend that answers anything below 500 is alive, even without metrics; what that means is for the
engine to judge and to warn of.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

from tao_coordinator.adapters.engines.reading import EngineReading
from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendSampled, BackendUnreachable, Event
from tao_coordinator.errors import EngineError
from tao_coordinator.service.findings import Finding, findings_of
from tao_coordinator.service.probe import Look, Probe, ProbeError

_log = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 1.0
POLLS_PER_S_MAX: Final = 100.0
"""Over all backends: with more of them the interval grows. A poll costs the loop 1 to 2 ms."""
CONCURRENT_MAX: Final = 128
"""Polls under way at once: few enough that a burst of them does not look like slow backends."""
QUICK_S: Final = 0.3
"""To the next poll where the last one said that the backend has just gone or come back."""
QUICK_MAX: Final = 5
SILENT_INTERVAL_S_MAX: Final = 5.0
"""Between polls of a backend that has been silent for long."""
JITTER: Final = 0.1
"""Share by which intervals vary, so that a thousand backends are not asked in step."""


class Pace:
    """How fast all backends together may be asked."""

    def __init__(self) -> None:
        self.num_backends = 0
        """Kept up to date by whoever adds and removes them."""
        self.gate = asyncio.Semaphore(CONCURRENT_MAX)

    def interval_s(self) -> float:
        """Seconds between two polls of one healthy backend, before jitter."""
        return max(POLL_INTERVAL_S, self.num_backends / POLLS_PER_S_MAX)


class BackendPoller:
    """Polls one backend for ever. `dispatch` takes the events, on the same loop."""

    def __init__(
        self,
        backend: BackendConfig,
        probe: Probe,
        pace: Pace,
        dispatch: Callable[[Sequence[Event]], object],
    ) -> None:
        self.backend = backend
        self.engine_kind = ""
        """As found; empty before the first answer."""
        self.asked = asyncio.Event()
        """Set after the first poll, whatever came of it."""
        self.error = ""
        """Why the last poll failed; empty: it did not."""
        self.reading = EngineReading()
        """The last good one."""
        self._probe = probe
        self._pace = pace
        self._dispatch = dispatch
        self._name = f"backend {backend.backend_id} ({backend.base_url})"
        self.findings: tuple[Finding, ...] = ()
        """What the last good poll showed to be wrong."""
        self._told: set[str] = set()
        self._num_failed = 0
        self._is_quick = False

    async def run(self) -> None:
        """Poll until cancelled; the first time at once."""
        while True:
            started_s = time.monotonic()
            # A queue in front of the gate is no fault of this backend: its time starts inside.
            async with self._pace.gate:
                event = await self.poll()
            try:
                self._dispatch((event,))
            except EngineError:
                # Logged where it happened; this backend's next poll must come all the same.
                _log.debug("%s: sample lost in a failed step", self._name)
            self.asked.set()
            elapsed_s = time.monotonic() - started_s
            jitter = random.uniform(1.0 - JITTER, 1.0 + JITTER)
            await asyncio.sleep(max(0.05, self._interval_s() * jitter - elapsed_s))

    async def poll(self) -> BackendSampled | BackendUnreachable:
        """One poll, at most `probe.POLL_TIMEOUT_S` long. Never raises for what a peer can do."""
        is_refused = False
        try:
            look = await self._probe.look()
        except ProbeError as error:
            self.error, is_refused = str(error), error.is_refused
        except Exception:  # noqa: BLE001
            # The boundary of this task: a bug met on one page must not end the process.
            _log.exception("%s: the poll failed", self._name)
            self.error = "the poll failed; see the log"
        else:
            return self._good(look)
        _log.debug("%s: %s", self._name, self.error)
        self._num_failed += 1
        # Refused means that nobody listens: asked again quickly, it is known within a second.
        self._is_quick = is_refused and self._num_failed < QUICK_MAX
        return BackendUnreachable(backend_id=self.backend.backend_id, reason=self.error)

    def _good(self, look: Look) -> BackendSampled:
        self._is_quick = self._num_failed > 0
        self._num_failed = 0
        self.error = ""
        self.engine_kind, self.reading = look.kind, look.reading
        self._judge(look)
        reading = look.reading
        return BackendSampled(
            backend_id=self.backend.backend_id,
            capacity_tokens=reading.capacity_tokens,
            models=look.models,
            running=reading.running,
            waiting=reading.waiting,
            kv_usage_ratio=reading.kv_usage_ratio,
            prefix_cache_queries_tokens=reading.prefix_cache_queries_tokens,
            prefix_cache_hits_tokens=reading.prefix_cache_hits_tokens,
            preemptions=reading.preemptions,
        )

    def _judge(self, look: Look) -> None:
        self.findings = tuple(findings_of(self.backend, look))
        for finding in self.findings:
            # The engine itself warns of an unknown capacity, however it came about.
            if finding.code not in self._told and finding.code != "capacity_unknown":
                self._told.add(finding.code)
                _log.warning("%s: %s [%s]", self._name, finding, finding.code)

    def _interval_s(self) -> float:
        if self._is_quick:
            return QUICK_S
        interval_s = self._pace.interval_s()
        if self._num_failed > QUICK_MAX:
            return max(interval_s, min(SILENT_INTERVAL_S_MAX, self._num_failed / QUICK_MAX))
        return interval_s
