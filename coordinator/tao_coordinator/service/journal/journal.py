"""The journal as the runtime and the views see it."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tao_coordinator.core.effects import Effect
from tao_coordinator.core.events import Event
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.journal.folder import JournalFolder
from tao_coordinator.service.journal.recorder import Recorder
from tao_coordinator.service.journal.writer import JournalState, JournalWriter
from tao_coordinator.traces.agent_rows import VERSION, VERSION_FIELD

_log = logging.getLogger(__name__)


class Journal:
    """Records every step of the engine. Nothing here ever fails a step."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        has_lease: Callable[[str], bool],
        *,
        facts: dict[str, object],
        time_scale: float = 1.0,
    ) -> None:
        """Open the folder and start the writer.

        Args:
            path: Of the folder.
            bytes_max: All journals in it together take at most this much.
            has_lease: Of the engine.
            facts: About the process, for the first line of each file.
            time_scale: Of simulated engines.

        Raises:
            ConfigurationError: Nothing can be written there.
        """
        head = orjson.dumps(
            {VERSION_FIELD: VERSION, **facts, "pid": os.getpid()},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        try:
            folder = JournalFolder(path, bytes_max, lambda: head)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(
                f"--journal {path}: {reason}; name a folder that can be written to"
            ) from error
        self._recorder = Recorder(time.monotonic(), time.time(), has_lease, time_scale)
        self._writer = JournalWriter(folder, str(path))
        self._has_failed = False

    def take(
        self,
        now_s: float,
        events: Sequence[Event],
        effects: Iterable[Effect],
        ages_s: Sequence[float] = (),
    ) -> None:
        """Record one step; on the event loop's thread. Arguments as of `Recorder.take`."""
        try:
            rows = self._recorder.take(now_s, events, effects, ages_s)
        except Exception:  # noqa: BLE001 - a bug here must cost rows, never a lease
            if not self._has_failed:
                _log.exception("the journal could not record a step")
            self._has_failed = True
            return
        if rows:
            self._writer.put(rows)

    def state(self) -> JournalState:
        """How it does now."""
        return self._writer.state()

    def close(self) -> None:
        """Write what is queued."""
        if not self._writer.close():
            _log.warning("journal: the disk did not take the last rows in time")


class JournalCollector(Collector):
    """Metrics of a journal."""

    def __init__(self, state: Callable[[], JournalState]) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """All families."""
        state = self._state()
        yield CounterMetricFamily("tao_journal_rows", "Rows written.", value=state.rows_written)
        yield CounterMetricFamily(
            "tao_journal_dropped", "Rows that the disk did not take.", value=state.rows_dropped
        )
        yield CounterMetricFamily(
            "tao_journal_bytes", "Bytes written, before packing.", value=state.bytes_written
        )
        yield GaugeMetricFamily(
            "tao_journal_failing", "1 while rows are dropped.", value=state.error is not None
        )
