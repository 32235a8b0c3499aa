"""One model call: from asking for its lease to giving it back with the usage seen.

The same object serves `Session.turn` (any HTTP client) and the transports of `wrap`.
"""

import json
import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from tao_client import _connection, _events, semconv
from tao_client._channel import drive, drive_async
from tao_client._courier import HeldLease
from tao_client._lease import Affinity, Grant, Receipt, TurnRequest
from tao_client._session import Session, end_of

if TYPE_CHECKING:
    from tao_client._connection import Connection

Number = TypeVar("Number", int, float)
Outcome = Literal["completed", "error", "cancelled"]

SERVED_BY_LENGTH_MAX = 512
"""A longer header names no backend."""
LONGEST_S = 31_536_000.0
"""The coordinator refuses what says more: callers write "no limit" as a huge number or infinity."""


class Turn:
    """A turn of a session, as returned by `Session.turn`."""

    def __init__(
        self,
        session: Session,
        *,
        model: str = "",
        input_chars: int | None = None,
        input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.id: str = _events.new_id()
        """Id of the request, to the coordinator and (`x-request-id`) to the engine."""
        self._session = session
        self._model = model
        self._input_chars = input_chars
        self._input_tokens = input_tokens
        self._max_output_tokens = max_output_tokens
        self._timeout_s = timeout_s
        self._process_id = os.getpid()
        self._connection: Connection | None = None
        self._grant: Grant | None = None
        self._lease: HeldLease | None = None
        self._started_s = 0.0
        self._asked_s = 0.0
        self._is_finished = False
        self._usage: dict[str, int | float] = {}
        self._served_by: dict[str, str] = {}

    @property
    def affinity(self) -> Affinity | None:
        """Where the call shall go. None: to its own base URL, unscheduled."""
        return None if self._grant is None else self._grant.affinity

    @property
    def receipt(self) -> Receipt | None:
        """Why it shall go there. None when unscheduled."""
        return None if self._grant is None else self._grant.receipt

    @property
    def headers(self) -> dict[str, str]:
        """Headers to send along; none without a connection."""
        if self._connection is None:
            return {}
        headers = {semconv.HEADER_SESSION: self._session.id, "x-request-id": self.id}
        traceparent = _events.current_traceparent()
        if traceparent is not None:
            headers["traceparent"] = traceparent
        if self._grant is not None:
            minted = self._grant.affinity.headers
            taken = {name.lower() for name in minted}
            headers = {name: value for name, value in headers.items() if name.lower() not in taken}
            headers.update(minted)
        return headers

    @property
    def held_s(self) -> float:
        """Seconds that entering took: the hold, and the asking itself."""
        return max(0.0, self._started_s - self._asked_s)

    def base_url(self, default: str) -> str:
        """The base URL for an OpenAI client: the backend's, or `default` when unscheduled."""
        return default if self._grant is None else f"{self._grant.affinity.base_url}/v1"

    def report(
        self,
        *,
        input_tokens: int | None = None,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        ttft_s: float | None = None,
    ) -> None:
        """Usage of the reply, as far as it is known; goes along when the lease is given back.

        Args:
            input_tokens: Prompt tokens, those from the cache included.
            cached_tokens: Prompt tokens that the engine had cached. None: it does not say.
            output_tokens: Tokens of the reply.
            ttft_s: Seconds from sending the call to the first token.

        What cannot be (negative, absurd, no number) is left out: it would keep the lease from being
        given back.
        """
        counts = {
            "input_tokens": input_tokens,
            "cached_tokens": cached_tokens,
            "output_tokens": output_tokens,
        }
        for name, count in counts.items():
            if type(count) is int and 0 <= count <= semconv.TOKENS_MAX:
                self._usage[name] = count
        if isinstance(ttft_s, int | float) and 0.0 <= ttft_s <= LONGEST_S:
            self._usage["ttft_s"] = float(ttft_s)

    def answered(self, headers: Mapping[str, str]) -> None:
        """Note which backend served the call, where a gateway's answer tells.

        Args:
            headers: Of the response; looked up by lower-case names.
        """
        affinity = self.affinity
        for name in () if affinity is None else affinity.served_by_headers:
            value = headers.get(name)
            if value and len(value) <= SERVED_BY_LENGTH_MAX:
                self._served_by[name] = value

    def acquire(self) -> None:
        """Wait for the lease on this thread. Raises `HoldTimeoutError` past `timeout_s`."""
        self._asked_s = time.monotonic()
        connection = self._connection = _connection.active()
        if connection is not None and not connection.coordinators.are_away:
            flow = connection.turn_flow(self._request())
            self._hold_lease(connection, drive(flow, connection.channel))
        self._started_s = time.monotonic()

    async def acquire_async(self) -> None:
        """Wait for the lease in this task. Raises `HoldTimeoutError` past `timeout_s`."""
        self._asked_s = time.monotonic()
        connection = self._connection = _connection.active()
        if connection is not None and not connection.coordinators.are_away:
            flow = connection.turn_flow(self._request())
            self._hold_lease(connection, await drive_async(flow, connection.async_channel))
        self._started_s = time.monotonic()

    def finish(self, outcome: Outcome) -> None:
        """Give the lease back. The first call counts; never waits, never raises."""
        if self._is_finished or self._process_id != os.getpid():
            return
        self._is_finished = True
        input_tokens = self._usage.get("input_tokens")
        if self._input_chars is not None and input_tokens is not None:
            self._session.learn_tokens(self._input_chars, int(input_tokens))
        if self._connection is not None and self._lease is not None:
            body = {
                "outcome": outcome,
                **self._usage,
                "duration_s": round(time.monotonic() - self._started_s, 6),
                **({"served_by": self._served_by} if self._served_by else {}),
            }
            self._session.last_release = (self._lease, body)
            self._connection.courier.release(self._lease, json.dumps(body).encode())

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        reason, _ = end_of(exc)
        self.finish("cancelled" if reason == "cancelled" else "error" if exc else "completed")

    async def __aenter__(self) -> Self:
        await self.acquire_async()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    def _request(self) -> TurnRequest:
        session = self._session
        input_tokens = self._input_tokens
        if input_tokens is None and self._input_chars is not None:
            input_tokens = session.estimate_tokens(self._input_chars)
        return TurnRequest(
            request_id=self.id,
            session_id=session.id,
            root_session_id=session.root_id if session.root_id != session.id else None,
            parent_session_id=session.parent_id,
            agent=session.agent,
            model=self._model,
            input_tokens=input_tokens,
            max_output_tokens=_within(self._max_output_tokens, semconv.TOKENS_MAX),
            priority=session.priority,
            tenant=session.tenant,
            timeout_s=_within(self._timeout_s, LONGEST_S),
            released=session.undelivered_release(),
        )

    def _hold_lease(self, connection: "Connection", grant: Grant | None) -> None:
        if grant is not None:
            self._grant = grant
            self._lease = HeldLease(grant.lease_id, grant.endpoint)
            connection.courier.keep(self._lease)


def _within(limit: Number | None, most: Number) -> Number | None:
    """The limit; None, which is no limit, where it is none that anybody means."""
    return limit if limit is not None and limit <= most else None
