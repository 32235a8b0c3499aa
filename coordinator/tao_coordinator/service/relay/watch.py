"""Ends a call when its client leaves, or when no byte has moved for too long.

One task waits for the client's end of the connection and one timer looks at the time of the last
byte, so that the loop over a reply's chunks pays for neither. Both cancel the call's own task, and
leaving the block turns that cancellation into the reason, as `asyncio.timeout` does.
"""

import asyncio
from types import TracebackType
from typing import Self

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from tao_coordinator.errors import CoordinatorError


class CallStalled(CoordinatorError):
    """No byte has moved for the idle limit."""


class CallWatch:
    """Watches one call whose body has been read; an asynchronous context manager."""

    def __init__(self, receive: Receive, idle_s: float) -> None:
        """Watch the connection at once, the clock from `start_clock` on.

        Args:
            receive: The request's ASGI channel.
            idle_s: Longest time without `moved`, seconds.
        """
        self._receive = receive
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._moved_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._reason: type[Exception] | None = None
        self._is_over = False

    async def __aenter__(self) -> Self:
        """Begin."""
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._num_cancelled = task.cancelling()
        self.gone: asyncio.Task[None] = asyncio.create_task(self._wait_for_disconnect())
        """Done once the client has left."""
        self.gone.add_done_callback(self._client_gone)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; raises the reason in place of the cancellation that it caused."""
        self.stop()
        # Not awaited: a cancellation of this call could not be told from the task's own.
        self.gone.cancel()
        if self._reason is None:
            return
        if self._task.uncancel() <= self._num_cancelled and kind is asyncio.CancelledError:
            raise self._reason from error

    def start_clock(self) -> None:
        """From now on bytes must move."""
        self.moved()
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._look)

    def moved(self) -> None:
        """A byte has moved."""
        self._moved_s = self._loop.time()

    def stop(self) -> None:
        """Whatever happens from now on, it ends nothing."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue

    def _client_gone(self, gone: asyncio.Task[None]) -> None:
        if not gone.cancelled() and not self._is_over:
            self._end(ClientDisconnect)

    def _look(self) -> None:
        left_s = self._moved_s + self._idle_s - self._loop.time()
        if left_s > 0.0:
            self._timer = self._loop.call_later(left_s, self._look)
        elif not self._is_over:
            self._end(CallStalled)

    def _end(self, reason: type[Exception]) -> None:
        self._is_over = True
        self._reason = reason
        self._task.cancel()
