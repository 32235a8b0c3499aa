"""Leases of relayed calls: asked for, waited for, kept alive and given back in this process."""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect

from tao_coordinator.core.effects import Grant, Hold, Reject
from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    LeaseRenewed,
    SessionEnded,
    TurnRequested,
)
from tao_coordinator.errors import EngineError, RequestError
from tao_coordinator.service.replies import reject_error, shutting_down
from tao_coordinator.service.runtime import HoldEnd, Runtime

RENEWAL_S: Final = 2.0
"""Below half of the time in which a new lease must be renewed for the first time (5 s)."""


class Leasing:
    """Takes leases from the engine that the lease API serves too."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: set[str] = set()
        self._prefix = f"relay-{uuid.uuid4().hex[:12]}"
        self._num_requests = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None

    def new_request_id(self) -> str:
        """An id that no other request has, in this process or another."""
        return f"{self._prefix}-{next(self._num_requests)}"

    async def take(
        self,
        turn: TurnRequested,
        client_gone: asyncio.Future[None],
        tell_s: float,
        tell: Callable[[Hold], Awaitable[None]],
    ) -> Grant:
        """Wait for a lease as long as the engine has it wait.

        Args:
            turn: What is asked; its request id must be new.
            client_gone: Done once nobody wants the answer.
            tell_s: While held, `tell` is called this often.
            tell: Shows the client that its call is alive.

        Raises:
            RequestError: The engine refused, or the process is shutting down.
            EngineError: The engine failed.
            ClientDisconnect: The client left; the turn was taken back.
        """
        if self._runtime.is_closing:
            raise shutting_down()
        answer = self._runtime.request_turn(turn)
        try:
            while isinstance(answer, Hold):
                waited = await self._runtime.hold(turn.request_id, tell_s, client_gone)
                if waited is HoldEnd.STILL_HELD:
                    await tell(answer)
                    # It may have been granted while nobody waited.
                    answer = self._runtime.request_turn(turn)
                else:
                    answer = _told(waited)
        except BaseException:
            # Idempotent, and right wherever the call was: held, or granted and not yet running.
            with contextlib.suppress(EngineError):
                self._runtime.abandon(turn.request_id)
            raise
        if isinstance(answer, Reject):
            raise reject_error(answer)
        self._keep(answer.lease_id)
        return answer

    def give_back(self, released: LeaseReleased, ended_session_id: str | None) -> None:
        """A call is over; so is its session, where that had this one call only. Idempotent."""
        self._running.discard(released.lease_id)
        events: tuple[Event, ...] = (released,)
        if ended_session_id is not None:
            events = (released, SessionEnded(session_id=ended_session_id))
        # A failing step is logged; the lease then ends by silence.
        with contextlib.suppress(EngineError):
            self._runtime.dispatch(events)

    def hand_over(self, lease_id: str, turn: TurnRequested, *, is_single: bool) -> None:
        """The client is redirected: its session's next event, or silence, ends the lease."""
        self._running.discard(lease_id)
        events: list[Event] = [LeaseRenewed(lease_id=lease_id)]
        if is_single:
            events.append(SessionEnded(session_id=turn.session_id))
        with contextlib.suppress(EngineError):
            self._runtime.dispatch(events)
        self._runtime.release_at_next_event(lease_id, turn)

    def _keep(self, lease_id: str) -> None:
        self._running.add(lease_id)
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(RENEWAL_S, self._renew)

    def _renew(self) -> None:
        self._timer = None
        if not self._running:
            return
        with contextlib.suppress(EngineError):
            self._runtime.dispatch([LeaseRenewed(lease_id=lease) for lease in self._running])
        self._arm()


def _told(waited: Grant | Reject | HoldEnd) -> Grant | Reject:
    if waited is HoldEnd.SHUTTING_DOWN:
        raise shutting_down()
    if waited is HoldEnd.ABANDONED:
        raise RequestError(409, "abandoned", "this turn was taken back")
    if isinstance(waited, HoldEnd):
        raise ClientDisconnect
    return waited
