"""Rows from the event loop to the disk, over a bounded queue, by a thread of its own.

The loop never waits: a row that finds the queue full, or that the disk does not take, is dropped
and counted, and the operator is told once until it works again.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import orjson

_log = logging.getLogger(__name__)

QUEUE_MAX: Final = 16_384
"""Rows that wait for the disk."""
FLUSH_S: Final = 0.25
"""Rows are on the disk this long after they were made, where it can keep up."""
BATCH_MAX: Final = 4_096
"""Rows written at once."""
CLOSE_S_MAX: Final = 2.0
"""For the last rows, at the end."""
WARNING_S_MIN: Final = 600.0
"""Between two warnings, where a disk is full now and then."""
_SLOW: Final = "the disk does not keep up"


class Appends(Protocol):
    """What the writer needs of `folder.JournalFolder`."""

    def append(self, rows: bytes) -> None:
        """Write whole rows, all or none; `OSError` where that fails."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """How the journal does, for people and metrics."""

    path: str
    rows_written: int
    rows_dropped: int
    bytes_written: int
    """Before packing."""
    error: str | None
    """Why rows are being dropped now; `None`: they are not."""


class JournalWriter:
    """Takes rows on the loop's thread and writes them on its own."""

    def __init__(self, folder: Appends, name: str, queue_max: int = QUEUE_MAX) -> None:
        """Start the thread.

        Args:
            folder: Used by the thread only, from now on.
            name: Of the folder, for messages.
            queue_max: Rows that may wait.
        """
        self._folder = folder
        self._name = name
        self._queue: deque[dict[str, object]] = deque()
        self._queue_max = queue_max
        self._stop = threading.Event()
        # Counts by the loop's thread.
        self._num_overflown = 0
        # By the writer's.
        self._num_written = 0
        self._num_refused = 0
        self._num_bytes = 0
        self._error: str | None = None
        # By both: it only says what is shown.
        self._is_overflowing = False
        self._next_warning_s = float("-inf")
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, rows: Iterable[dict[str, object]]) -> None:
        """Queue rows; never waits."""
        for row in rows:
            if len(self._queue) < self._queue_max:
                self._queue.append(row)
                continue
            self._num_overflown += 1
            if not self._is_overflowing:
                self._is_overflowing = True
                self._warn(_SLOW)

    def state(self) -> JournalState:
        """How it does now."""
        error = self._error
        if error is None and self._is_overflowing:
            error = _SLOW
        return JournalState(
            path=self._name,
            rows_written=self._num_written,
            rows_dropped=self._num_overflown + self._num_refused,
            bytes_written=self._num_bytes,
            error=error,
        )

    def close(self) -> bool:
        """Write what is queued; false where the disk did not take it in time."""
        self._stop.set()
        self._thread.join(CLOSE_S_MAX)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.wait(FLUSH_S):
                self._write_all()
            self._write_all()
        finally:
            self._folder.close()

    def _write_all(self) -> None:
        while self._queue:
            batch = [self._queue.popleft() for _ in range(min(BATCH_MAX, len(self._queue)))]
            lines = [line for line in map(_line, batch) if line]
            self._num_refused += len(batch) - len(lines)
            data = b"".join(lines)
            try:
                self._folder.append(data)
            except OSError as error:
                self._num_refused += len(lines)
                self._failed(error.strerror or str(error))
                continue
            self._num_written += len(lines)
            self._num_bytes += len(data)
            self._worked()
        self._is_overflowing = False

    def _failed(self, reason: str) -> None:
        if self._error is None:
            self._warn(reason)
        self._error = reason

    def _worked(self) -> None:
        if self._error is not None:
            dropped = self._num_overflown + self._num_refused
            _log.info("journal %s is written again; %d rows are lost", self._name, dropped)
        self._error = None

    def _warn(self, reason: str) -> None:
        now_s = time.monotonic()
        if now_s < self._next_warning_s:
            return
        self._next_warning_s = now_s + WARNING_S_MIN
        _log.warning(
            "journal %s: %s; what it does not take is dropped and counted"
            " (tao_journal_dropped_total), sessions go on",
            self._name,
            reason,
        )


def _line(row: dict[str, object]) -> bytes:
    """A row as a line; empty: it cannot be told."""
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        return b""
