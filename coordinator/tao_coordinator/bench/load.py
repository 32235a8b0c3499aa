"""A load generator that costs little: keep-alive connections, requests as ready bytes.

Runs in the benchmark's own process. The next request of a connection goes out when its reply is
complete; the time between is one sample.
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import httptools

from tao_coordinator.errors import CoordinatorError

CALL_S_MAX = 60.0

Requests = Callable[[int, int, bytes], bytes]
"""The request to send: by the connection's number, how many it has sent before, and the body of
the last reply."""


class LoadError(CoordinatorError):
    """The server answered with something that is no success, or hung up."""


class _Connection(asyncio.Protocol):
    def __init__(self, number: int, requests: Requests, run: "_Run") -> None:
        self._number = number
        self._requests = requests
        self._run = run
        self._num_sent = 0
        self._sent_s = 0.0
        self._reply = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpResponseParser(self)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.closed(self._number, exc)

    def on_body(self, body: bytes) -> None:
        self._reply += body

    def on_message_complete(self) -> None:
        taken_s = time.perf_counter() - self._sent_s
        status = self._parser.get_status_code()
        self._parser = httptools.HttpResponseParser(self)
        if self._run.counts(taken_s, status):
            self._send()
        else:
            self._transport.close()

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        reply, self._reply = self._reply, b""
        self._transport.write(self._requests(self._number, self._num_sent, reply))
        self._num_sent += 1


class _Run:
    def __init__(self, num_calls: int, concurrency: int) -> None:
        self.times_s: list[float] = []
        self._num_left = num_calls - concurrency
        self._num_open = concurrency
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def counts(self, taken_s: float, status: int) -> bool:
        """Note one reply; true when its connection shall send another request."""
        self.times_s.append(taken_s)
        if status >= 300:
            self._fail(LoadError(f"a call was answered with {status}"))
            return False
        self._num_left -= 1
        return self._num_left >= 0

    def closed(self, number: int, error: Exception | None) -> None:
        self._num_open -= 1
        if self._num_left >= 0:
            self._fail(LoadError(f"connection {number} was closed: {error or 'by the server'}"))
        elif self._num_open == 0 and not self._done.done():
            self._done.set_result(None)

    async def wait(self) -> None:
        async with asyncio.timeout(CALL_S_MAX):
            await self._done

    def _fail(self, error: LoadError) -> None:
        if not self._done.done():
            self._done.set_exception(error)


async def drive(url: str, concurrency: int, num_calls: int, requests: Requests) -> list[float]:
    """Send `num_calls` requests over `concurrency` connections.

    Returns:
        Seconds from each request to the end of its reply.

    Raises:
        LoadError: A reply was no success, or a connection was closed early.
        TimeoutError: It took longer than a minute.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    loop = asyncio.get_running_loop()
    run = _Run(num_calls, concurrency)
    transports = [
        (
            await loop.create_connection(
                lambda number=number: _Connection(number, requests, run),
                parts.hostname,
                parts.port,
            )
        )[0]
        for number in range(concurrency)
    ]
    try:
        await run.wait()
    finally:
        for transport in transports:
            transport.close()
    return run.times_s


def request_bytes(path: str, body: bytes, headers: str = "") -> bytes:
    """One HTTP/1.1 POST of JSON; `headers` are whole lines."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"{headers}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode("ascii") + body
