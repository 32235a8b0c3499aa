"""One deadline over all of a request that an HTTP client bounds piece by piece, for threads.

Its read time-out starts anew with each byte that arrives, so a peer that sends one now and then
holds its caller for as long as it likes; its connect time-out starts anew with each address of a
name, and again for TLS; and nothing bounds looking the name up. (Event loops cancel the whole
request instead.) These stand between httpx2's client and its sockets, and do nothing else.
"""

import ipaddress
import math
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any


class Deadline(threading.local):
    """When this thread's present request must be over, on the monotonic clock."""

    at_s: float = math.inf

    def shortened(self, timeout: float | None) -> float:
        """What is left of `timeout` (`None`: endless), in seconds; infinite without a deadline."""
        left_s = self.at_s - time.monotonic()
        return left_s if timeout is None else min(timeout, left_s)


class TimedNetwork:
    """A network backend whose connections keep the deadline."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        """Connect as `inner` does."""
        self._inner = inner
        self._deadline = deadline
        self._lookups = _Lookups()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **kwargs: Any
    ) -> "TimedStream":
        """A connection to the first address of `host` that answers.

        Each but the last gets half of the time that is left.

        Raises:
            httpx2.ConnectTimeout: no answer to the question where `host` is.
            httpx2.ConnectError: the name is unknown.
            Exception: what `inner` says of the last address.
        """
        import httpx2

        give_up_s = time.monotonic() + self._deadline.shortened(timeout)
        try:
            addresses = self._lookups.addresses(host, port, give_up_s - time.monotonic())
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error)) from error
        while True:
            address = addresses.pop(0)
            left_s = max(0.001, give_up_s - time.monotonic())
            limit_s = None if math.isinf(left_s) else left_s / 2 if addresses else left_s
            try:
                stream = self._inner.connect_tcp(address, port, timeout=limit_s, **kwargs)
            except Exception:
                if not addresses:
                    raise
            else:
                return TimedStream(stream, self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Lookups:
    """Names are looked up on threads of their own, which can be left; one a name at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], _Lookup] = {}

    def addresses(self, host: str, port: int, limit_s: float) -> list[str]:
        """The addresses of a name, at least one; an address, or this machine, is not asked for.

        Raises:
            TimeoutError: no answer within `limit_s`; a later caller waits for the same question.
            OSError: there are none.
        """
        if host == "localhost" or _is_address(host):
            return [host]
        key = (host, port)
        with self._lock:
            lookup = self._pending.get(key)
            is_ours = lookup is None
            if lookup is None:
                lookup = self._pending[key] = _Lookup()
        if is_ours:
            self._begin(key, lookup)
        if not lookup.is_done.wait(None if math.isinf(limit_s) else max(0.0, limit_s)):
            raise TimeoutError(f"no answer to the question where {host} is")
        if not lookup.addresses:
            raise OSError(lookup.reason or f"{host} has no address")
        return list(lookup.addresses)

    def _begin(self, key: tuple[str, int], lookup: "_Lookup") -> None:
        job = threading.Thread(
            target=self._look_up, args=(key, lookup), name="tao-lookup", daemon=True
        )
        try:
            job.start()
        except RuntimeError:
            # No more threads, or none any more while the interpreter ends, when the last releases
            # are on their way: better without a limit than not at all.
            self._look_up(key, lookup)

    def _look_up(self, key: tuple[str, int], lookup: "_Lookup") -> None:
        try:
            found = socket.getaddrinfo(*key, type=socket.SOCK_STREAM)
            lookup.addresses = list(dict.fromkeys(_written(address) for *_, address in found))
        except Exception as error:  # noqa: BLE001 - whatever a resolver raises, callers wait for it
            lookup.reason = f"{type(error).__name__}: {error}"
        finally:
            with self._lock:
                del self._pending[key]
            lookup.is_done.set()


class _Lookup:
    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.addresses: list[str] = []
        self.reason = ""


def _written(address: Sequence[Any]) -> str:
    """As text; an IPv6 address that is valid on one interface only names it."""
    scope = address[3] if len(address) > 3 else 0
    return f"{address[0]}%{scope}" if scope else str(address[0])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


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
        return self._inner.read(max_bytes, self._left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """All of `buffer`, each part within `timeout` and the deadline.

        Raises:
            TimeoutError: the deadline has passed.
        """
        self._inner.write(buffer, self._left_s(timeout))

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> "TimedStream":
        """The same connection, encrypted.

        Raises:
            TimeoutError: the deadline has passed.
        """
        stream = self._inner.start_tls(ssl_context, server_hostname, self._left_s(timeout))
        return TimedStream(stream, self._deadline)

    def _left_s(self, timeout: float | None) -> float | None:
        left_s = self._deadline.shortened(timeout)
        if left_s <= 0.0:
            raise TimeoutError("the time for the whole answer is over")
        return None if math.isinf(left_s) else left_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
