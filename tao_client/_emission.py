"""The prompt sender of events: a bounded queue and one background thread.

It does what OpenTelemetry's batch processor does, with other priorities: an event goes out at once
(a tool's start is worth something only now), a full queue drops and counts, sending takes 1 s at
most, exit waits 1 s at most. The queue holds plain events, so that the agent's thread pays
microseconds; the background thread makes log records of them (`_otlp`).
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from tao_client._events import Event

logger = logging.getLogger("tao_client")

QUEUE_LIMIT = 2048
LONGEST_BATCH = 512


class Sink(Protocol):
    """Where the thread puts the events."""

    def send(self, events: Sequence[Event]) -> bool:
        """Send them; False if they did not arrive. Takes 1 s at most."""
        ...


class _Stop:
    """The last thing in a queue."""


class Emitter:
    """Sends events from any thread, also from destructors (its queue is re-entrant)."""

    def __init__(self, sink: Sink, is_paused: Callable[[], bool], limit: int = QUEUE_LIMIT) -> None:
        """The thread starts with the first event.

        Args:
            sink: Used by the background thread only.
            is_paused: While true (the coordinator is known to be away), events are dropped at once.
            limit: Events that may wait.
        """
        self._sink = sink
        self._is_paused = is_paused
        self._limit = limit
        self._queue: queue.SimpleQueue[Event | _Stop] = queue.SimpleQueue()
        # Re-entrant, because a destructor may emit on the thread that just starts the other one.
        self._start_lock = threading.RLock()
        self._has_started = False
        self._is_closed = False
        self._finished = threading.Event()
        self.dropped = 0
        """Events that were lost: queue full, coordinator away, or sending failed."""

    def emit(self, event: Event) -> None:
        """Queue one event; never waits, never raises."""
        if self._is_closed or self._queue.qsize() >= self._limit:
            self.dropped += 1
            return
        self._queue.put(event)
        if not self._has_started:
            self._start()

    def close(self, time_limit_s: float) -> None:
        """Send what is queued, for `time_limit_s` at most, and stop."""
        self._is_closed = True
        if not self._has_started:
            return
        self._queue.put(_Stop())
        self._finished.wait(time_limit_s)

    def _start(self) -> None:
        with self._start_lock:
            if self._has_started:
                return
            self._has_started = True
            thread = threading.Thread(target=self._run, name="tao-client-events", daemon=True)
            # At interpreter shutdown no thread can start: these events are lost.
            with contextlib.suppress(RuntimeError):
                thread.start()
                return
            self._finished.set()

    def _run(self) -> None:
        try:
            while True:
                batch, is_last = self._take()
                if batch:
                    self._send(batch)
                if is_last:
                    return
        finally:
            self._finished.set()

    def _take(self) -> tuple[list[Event], bool]:
        batch: list[Event] = []
        item = self._queue.get()
        while True:
            if isinstance(item, _Stop):
                return batch, True
            batch.append(item)
            if len(batch) == LONGEST_BATCH:
                return batch, False
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False

    def _send(self, batch: list[Event]) -> None:
        if self._is_paused():
            self.dropped += len(batch)
            return
        try:
            if self._sink.send(batch):
                return
        except Exception:
            # A boundary: telemetry must not fail loudly, and the next batch may do better.
            logger.debug("sending events failed", exc_info=True)
        self.dropped += len(batch)
