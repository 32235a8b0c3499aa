"""One deadline over all reads of an answer, for threads.

An HTTP client's read time-out starts anew with each byte that arrives, so a peer that sends one now
and then holds its caller for as long as it likes. (Event loops cancel the whole request instead.)
These stand between httpx2's client and its sockets, and do nothing else.
"""

import math
import threading
import time
from typing import Any


class Deadline(threading.local):
    """When this thread's present request must be over, on the monotonic clock."""

    at_s: float = math.inf


class TimedNetwork:
    """A network backend whose connections keep the deadline."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        """Connect as `inner` does."""
        self._inner = inner
        self._deadline = deadline

    def connect_tcp(self, *args: Any, **kwargs: Any) -> "TimedStream":
        """A connection; the arguments are `inner`'s."""
        return TimedStream(self._inner.connect_tcp(*args, **kwargs), self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TimedStream:
    """One connection."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Some bytes, within `timeout` and the deadline.

        Raises:
            TimeoutError: the deadline has passed. A silent peer is the inner stream's to tell.
        """
        left_s = self._deadline.at_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError("the time for the whole answer is over")
        return self._inner.read(max_bytes, left_s if timeout is None else min(timeout, left_s))

    def start_tls(self, *args: Any, **kwargs: Any) -> "TimedStream":
        """The same connection, encrypted; the arguments are `inner`'s."""
        return TimedStream(self._inner.start_tls(*args, **kwargs), self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
