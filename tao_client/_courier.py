"""The courier: one background thread that does what no call should wait for.

It renews leases (first after 1 s, then every 10 s), delivers releases and withdrawals, sends
heartbeats while tools are open, and probes each coordinator that has stopped answering. Commands
reach it through a bounded, re-entrant queue, so that destructors may use it; a full queue drops and
counts.

Releases and withdrawals go to the coordinator that they concern. While it is away they are parked
(at most a minute: by then it has given the lease up by itself) and delivered when it is back.
Renewals then go to the one in charge, which may have taken its leases over.
"""

import contextlib
import heapq
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from tao_client._channel import LEASES_PATH
from tao_client._coordinators import Coordinators

logger = logging.getLogger("tao_client")

QUEUE_LIMIT = 4096
PARKED_LIMIT = 1024
PARKED_LIFE_S = 60.0
FIRST_RENEWAL_S = 1.0
RENEWAL_S = 10.0
HEARTBEAT_S = 10.0
REQUEST_LIMIT_S = 1.0
PROBE_LIMIT_S = 0.5
"""No longer than a lease request gets: one that is slower is of no use."""


class Wire(Protocol):
    """The part of the channel that the courier uses."""

    def send(
        self, endpoint: str, method: str, path: str, body: bytes, time_limit_s: float
    ) -> int | None:
        """One request; its status, or None when it was not answered."""
        ...


class HeldLease:
    """A lease that is running; `is_released` ends its renewals."""

    __slots__ = ("endpoint", "is_delivered", "is_released", "lease_id")

    def __init__(self, lease_id: str, endpoint: str) -> None:
        self.lease_id = lease_id
        self.endpoint = endpoint
        """The coordinator that gave it."""
        self.is_released = False
        self.is_delivered = False
        """The coordinator has heard of its release."""


@dataclass(frozen=True, slots=True)
class _Delivery:
    endpoint: str
    method: str
    path: str
    body: bytes
    made_s: float
    lease: HeldLease | None = None
    """The lease that this gives back."""


@dataclass(frozen=True, slots=True)
class _Timer:
    delay_s: float
    action: Callable[[], object]


class _Stop:
    """The last thing in a queue."""


class Courier:
    """See the module. Every public method may be called from any thread and returns at once."""

    def __init__(self, wire: Wire, coordinators: Coordinators, limit: int = QUEUE_LIMIT) -> None:
        self._wire = wire
        self._coordinators = coordinators
        self._limit = limit
        self._queue: queue.SimpleQueue[_Delivery | _Timer | _Stop] = queue.SimpleQueue()
        self._start_lock = threading.RLock()
        self._has_started = False
        self._is_closed = False
        self._has_given_up = False
        self._finished = threading.Event()
        # Only the courier's own thread touches what follows.
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._timer_order = itertools.count()
        self._parked: deque[_Delivery] = deque()
        self.dropped = 0
        """Commands that were lost: queue full, or undeliverable for a minute."""

    def keep(self, lease: HeldLease) -> None:
        """Renew this lease until it is released."""
        self._put(_Timer(FIRST_RENEWAL_S, lambda: self._renew(lease)))

    def release(self, lease: HeldLease, body: bytes) -> None:
        """Give a lease back. Once; a second time does nothing."""
        if not lease.is_released:
            lease.is_released = True
            path = f"{_lease_path(lease)}/release"
            self._deliver_later(lease.endpoint, "POST", path, body, lease)

    def abandon(self, request_id: str, endpoint: str) -> None:
        """Withdraw a request that nobody waits for any more."""
        path = f"{LEASES_PATH}/{quote(request_id, safe='')}"
        self._deliver_later(endpoint, "DELETE", path, b"")

    def repeat(self, action: Callable[[], bool]) -> None:
        """Call `action` every 10 s until it returns False."""

        def run() -> None:
            if action():
                self._schedule(HEARTBEAT_S, run)

        self._put(_Timer(HEARTBEAT_S, run))

    def start_probing(self, endpoint: str) -> None:
        """Its breaker has just opened: find out when this coordinator is back."""
        pause_s = self._coordinators.next_pause_s(endpoint)
        self._put(_Timer(pause_s, lambda: self._probe(endpoint)))

    def warm_up(self) -> None:
        """Find the coordinator to ask, and open the connection to it, before a call needs it."""
        self._put(_Timer(0.0, self._first_contact))

    def look_after(self, endpoint: str) -> None:
        """Something did not get through to this coordinator: see whether it is still there."""
        self._put(_Timer(0.0, lambda: self._is_well(endpoint)))

    def close(self, time_limit_s: float) -> None:
        """Deliver what is queued, for `time_limit_s` at most, and stop."""
        self._is_closed = True
        if self._has_started:
            self._queue.put(_Stop())
            self._finished.wait(time_limit_s)
            self._has_given_up = True

    # --- any thread ---------------------------------------------------------------------------

    def _deliver_later(
        self,
        endpoint: str,
        method: str,
        path: str,
        body: bytes,
        lease: HeldLease | None = None,
    ) -> None:
        self._put(_Delivery(endpoint, method, path, body, time.monotonic(), lease))

    def _put(self, command: _Delivery | _Timer) -> None:
        if self._is_closed or self._queue.qsize() >= self._limit:
            self.dropped += 1
            return
        self._queue.put(command)
        if not self._has_started:
            self._start()

    def _start(self) -> None:
        with self._start_lock:
            if self._has_started:
                return
            self._has_started = True
            thread = threading.Thread(target=self._run, name="tao-client-courier", daemon=True)
            # At interpreter shutdown no thread can start: the coordinator's own limits take over.
            with contextlib.suppress(RuntimeError):
                thread.start()
                return
            self._finished.set()

    # --- the courier's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._handle_next():
                pass
        finally:
            self._finished.set()

    def _handle_next(self) -> bool:
        """Handle one command or what has come due; True at the end."""
        try:
            due_s = self._timers[0][0] if self._timers else None
            pause_s = None if due_s is None else max(0.0, due_s - time.monotonic())
            command = self._queue.get(timeout=pause_s)
        except queue.Empty:
            command = None
        if isinstance(command, _Stop) or self._has_given_up:
            self._deliver_parked()
            return True
        try:
            if isinstance(command, _Delivery):
                self._deliver(command)
            elif command is not None:
                self._schedule(command.delay_s, command.action)
            self._run_due()
        except Exception:
            # A boundary: one command that fails must not end the renewals of all leases.
            logger.debug("a background command failed", exc_info=True)
        return False

    def _run_due(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _schedule(self, delay_s: float, action: Callable[[], object]) -> None:
        due_s = time.monotonic() + delay_s
        heapq.heappush(self._timers, (due_s, next(self._timer_order), action))

    def _renew(self, lease: HeldLease) -> None:
        if lease.is_released:
            return
        endpoint = lease.endpoint
        if self._coordinators.is_away(endpoint):
            endpoint = self._coordinators.in_charge() or ""
        status = None
        if endpoint:
            status = self._send(endpoint, "POST", f"{_lease_path(lease)}/renew", b"")
        if status == 404 and endpoint == lease.endpoint:
            return  # whoever gave it does not know it any more
        self._schedule(FIRST_RENEWAL_S if status is None else RENEWAL_S, lambda: self._renew(lease))

    def _deliver(self, delivery: _Delivery) -> None:
        if (
            self._coordinators.is_away(delivery.endpoint)
            or self._send(delivery.endpoint, delivery.method, delivery.path, delivery.body) is None
        ):
            if len(self._parked) >= PARKED_LIMIT:
                self._parked.popleft()
                self.dropped += 1
            self._parked.append(delivery)
        elif delivery.lease is not None:
            delivery.lease.is_delivered = True

    def _deliver_parked(self) -> None:
        oldest_s = time.monotonic() - PARKED_LIFE_S
        for _ in range(len(self._parked)):
            delivery = self._parked.popleft()
            if delivery.made_s < oldest_s:
                self.dropped += 1
            else:
                self._deliver(delivery)

    def _first_contact(self) -> None:
        for endpoint in self._coordinators.present():
            if self._is_well(endpoint):
                return

    def _is_well(self, endpoint: str) -> bool:
        status = self._probe_status(endpoint)
        if status != 200:
            reason = "nothing heard" if status is None else f"status {status}"
            self._no_answer(endpoint, reason, is_planned=status == 503)
        return status == 200

    def _probe(self, endpoint: str) -> None:
        if self._probe_status(endpoint) == 200:
            self._coordinators.record_probe_answered(endpoint)
            self._deliver_parked()
        else:
            pause_s = self._coordinators.next_pause_s(endpoint)
            self._schedule(pause_s, lambda: self._probe(endpoint))

    def _probe_status(self, endpoint: str) -> int | None:
        return self._wire.send(endpoint, "GET", self._coordinators.probe_path, b"", PROBE_LIMIT_S)

    def _send(self, endpoint: str, method: str, path: str, body: bytes) -> int | None:
        status = self._wire.send(endpoint, method, path, body, REQUEST_LIMIT_S)
        if status is None:
            self._no_answer(endpoint, f"nothing heard to {method} {path.split('/')[-1]}")
        return status

    def _no_answer(self, endpoint: str, reason: str, *, is_planned: bool = False) -> None:
        if self._coordinators.record_no_answer(endpoint, reason, is_planned=is_planned):
            pause_s = self._coordinators.next_pause_s(endpoint)
            self._schedule(pause_s, lambda: self._probe(endpoint))


def _lease_path(lease: HeldLease) -> str:
    return f"{LEASES_PATH}/{quote(lease.lease_id, safe='')}"
