"""One deadline over all of a request that an HTTP client bounds piece by piece, for threads.

Its read time-out starts anew with each byte that arrives, so a peer that sends one now and then
holds its caller for as long as it likes; its connect time-out starts anew with each address of a
name; and nothing bounds looking the name up. (Event loops cancel the whole request instead.)
These stand between httpx2's client and its sockets, and do nothing else.
"""

import ipaddress
import math
import socket
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
        self._lookups = _Lookups()

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, **kwargs: Any
    ) -> "TimedStream":
        """A connection to the first address of `host` that answers; each has its share of the time.

        Raises:
            httpcore2.ConnectTimeout: nobody was found, or answered, in time.
            httpcore2.ConnectError: the name is unknown, or nobody is there.
        """
        import httpcore2

        give_up_s = min(
            self._deadline.at_s, time.monotonic() + (math.inf if timeout is None else timeout)
        )
        try:
            addresses = self._lookups.addresses(host, port, give_up_s - time.monotonic())
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(str(error)) from error
        while True:
            address = addresses.pop(0)
            share_s = max(0.001, (give_up_s - time.monotonic()) / (1 + len(addresses)))
            limit_s = None if math.isinf(share_s) else share_s
            try:
                stream = self._inner.connect_tcp(address, port, timeout=limit_s, **kwargs)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
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
        """The addresses of a name; an address, or this machine, is not asked for.

        Raises:
            TimeoutError: no answer within `limit_s`; a later caller waits for the same question.
            OSError, UnicodeError: there are none.
        """
        if host == "localhost" or _is_address(host):
            return [host]
        key = (host, port)
        with self._lock:
            lookup = self._pending.get(key)
            if lookup is None:
                lookup = self._pending[key] = _Lookup()
                threading.Thread(
                    target=self._look_up, args=(key, lookup), name="tao-lookup", daemon=True
                ).start()
        if not lookup.is_done.wait(None if math.isinf(limit_s) else max(0.0, limit_s)):
            raise TimeoutError(f"no answer to the question where {host} is")
        if lookup.error is not None:
            raise lookup.error
        return list(lookup.addresses)

    def _look_up(self, key: tuple[str, int], lookup: "_Lookup") -> None:
        try:
            found = socket.getaddrinfo(*key, type=socket.SOCK_STREAM)
            lookup.addresses = [str(address[0]) for *_, address in found]
        except (OSError, UnicodeError) as error:
            lookup.error = error
        finally:
            with self._lock:
                del self._pending[key]
            lookup.is_done.set()


class _Lookup:
    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.addresses: list[str] = []
        self.error: OSError | UnicodeError | None = None


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
        left_s = self._deadline.at_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError("the time for the whole answer is over")
        return self._inner.read(max_bytes, left_s if timeout is None else min(timeout, left_s))

    def start_tls(self, *args: Any, **kwargs: Any) -> "TimedStream":
        """The same connection, encrypted; the arguments are `inner`'s."""
        return TimedStream(self._inner.start_tls(*args, **kwargs), self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
