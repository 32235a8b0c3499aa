"""The load of `tao bench events`: a process of its own that posts events as often as told.

Run as `python -m tao_coordinator.bench.event_load URL ...`; prints one line of JSON at the end.
Requests are patched templates and answers are only recognised, so that the generator costs a
fraction of what it measures. Each answer comes after the coordinator's state has changed: its
latency is an upper bound of event to state.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final, cast
from urllib.parse import urlsplit

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

from tao_client import semconv

_TIME_MARK: Final = 0x0123_4567_89AB_CDEF
_SESSION_MARK: Final = "s@@@@@"
_NUMBER_MARK: Final = "@" * 16
_ANSWER_S: Final = 5.0
_OK: Final = b"HTTP/1.1 200"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What one run of the load saw."""

    num_requests: int
    num_failed: int
    seconds: float
    latencies_ms: list[float]
    """Of every request: from its due time where a rate was given, else from its send."""


def session_name(number: int) -> str:
    """The session of this number, the same for events and leases."""
    return f"s{number:05d}"


def record(name: str, session: str, number: str, time_ns: int) -> LogRecord:
    """One event as the SDK sends it: ten attributes, about 400 bytes.

    Args:
        name: Of the event.
        session: Its session id.
        number: Tells calls apart.
        time_ns: Its timestamp.
    """
    attributes: dict[str, str | float] = {
        semconv.CONVERSATION_ID: session,
        semconv.AGENT_NAME: "coder",
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_CALL_ID: f"call-{number}",
        semconv.TOOL_NAME: "bash",
        semconv.TOOL_KEY: "python -m pytest",
        semconv.TOOL_TIMEOUT: 600.0,
        semconv.RECORD_UID: f"{name[-5:]}-{number}",
    }
    return LogRecord(
        event_name=name,
        time_unix_nano=time_ns,
        observed_time_unix_nano=1,
        severity_number=9,  # pyright: ignore[reportArgumentType]
        attributes=[KeyValue(key=key, value=_any(value)) for key, value in attributes.items()],
    )


def request_of(records: list[LogRecord]) -> bytes:
    """The body of one export."""
    scope = ScopeLogs(log_records=records)
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[scope])])
    return request.SerializeToString()


def _any(value: str | float) -> AnyValue:
    return AnyValue(string_value=value) if isinstance(value, str) else AnyValue(double_value=value)


class _Template:
    """A request whose sessions, numbers and stamps are put in by position."""

    def __init__(self, first: str, num_records: int, authority: str) -> None:
        names = [semconv.TOOL_START, semconv.TOOL_END]
        begin = names.index(first)
        body = request_of(
            [
                record(names[(begin + n) % 2], _SESSION_MARK, _NUMBER_MARK, _TIME_MARK)
                for n in range(num_records)
            ]
        )
        head = (
            f"POST {semconv.LOGS_PATH} HTTP/1.1\r\nhost: {authority}\r\n"
            f"content-type: application/x-protobuf\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._bytes = bytearray(head.encode() + body)
        self._sessions = self._positions(_SESSION_MARK.encode())
        self._numbers = self._positions(_NUMBER_MARK.encode())
        self._times = self._positions(_TIME_MARK.to_bytes(8, "little"))

    def _positions(self, mark: bytes) -> list[int]:
        found: list[int] = []
        at = self._bytes.find(mark)
        while at >= 0:
            found.append(at)
            at = self._bytes.find(mark, at + 1)
        return found

    def fill(self, session: str, numbers: list[bytes]) -> bytes:
        """The next request.

        Args:
            session: All its events are of this session.
            numbers: One per record, 16 bytes each.
        """
        data = self._bytes
        stamp = time.time_ns().to_bytes(8, "little")
        for at in self._sessions:
            data[at : at + 6] = session.encode()
        for position, at in enumerate(self._numbers):
            # A call id and a uid per record.
            data[at : at + 16] = numbers[position // 2]
        for at in self._times:
            data[at : at + 8] = stamp
        return bytes(data)


class _Requests:
    """What one connection sends: starts and ends of calls, in turn, over all sessions."""

    def __init__(self, num_sessions: int, num_records: int, authority: str, source: int) -> None:
        self._templates = [
            _Template(first, num_records, authority)
            for first in (semconv.TOOL_START, semconv.TOOL_END)
        ]
        self._num_sessions = num_sessions
        self._num_records = num_records
        self._source = source
        self._next = 0

    def next(self) -> bytes:
        """The next request."""
        index, self._next = self._next, self._next + 1
        number, template = divmod(index, 2) if self._num_records == 1 else (index, 0)
        first = number * ((self._num_records + 1) // 2)
        numbers = [
            b"%06d%010d" % (self._source, first + position // 2)
            for position in range(self._num_records)
        ]
        session = session_name((number + 37 * self._source) % self._num_sessions)
        return self._templates[template].fill(session, numbers)


class _Connection(asyncio.Protocol):
    """One keep-alive connection with one request under way at most."""

    def __init__(
        self, requests: _Requests, on_answer: Callable[["_Connection", bool], None]
    ) -> None:
        self._requests = requests
        self._on_answer = on_answer
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self.due_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass.
        self._transport = cast("asyncio.Transport", transport)

    def send(self, due_s: float) -> None:
        """Send the next request; `on_answer` is called once its answer is there."""
        assert self._transport is not None
        self.due_s = due_s
        self._transport.write(self._requests.next())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        # A success has an empty body; anything else is counted as failed.
        if self._buffer.endswith(b"\r\n\r\n") or not self._buffer.startswith(_OK):
            ok, self._buffer = self._buffer.startswith(_OK), b""
            self._on_answer(self, ok)

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()


def _itself(connection: _Connection) -> _Connection:
    return connection


class _Load:
    def __init__(self, requests: list[_Requests], rate: float) -> None:
        self._requests = requests
        self._rate = rate
        self._idle: deque[_Connection] = deque()
        self._latencies_ms: list[float] = []
        self._num_failed = 0
        self._ends_s = 0.0
        self._freed = asyncio.Event()

    async def run(self, host: str, port: int, seconds: float) -> LoadResult:
        loop = asyncio.get_running_loop()
        connections = [_Connection(requests, self._answered) for requests in self._requests]
        for connection in connections:
            await loop.create_connection(partial(_itself, connection), host, port)
        sys.stdout.write("running\n")
        sys.stdout.flush()
        started_s = time.perf_counter()
        self._ends_s = started_s + seconds
        try:
            if self._rate:
                await self._paced(connections, started_s)
            else:
                for connection in connections:
                    connection.send(time.perf_counter())
                await self._all_idle(len(connections), seconds + _ANSWER_S)
        finally:
            for connection in connections:
                connection.close()
        return LoadResult(
            num_requests=len(self._latencies_ms),
            num_failed=self._num_failed,
            seconds=time.perf_counter() - started_s,
            latencies_ms=self._latencies_ms,
        )

    async def _paced(self, connections: list[_Connection], started_s: float) -> None:
        self._idle.extend(connections)
        sent = 0
        while (due_s := started_s + sent / self._rate) < self._ends_s:
            delay_s = due_s - time.perf_counter()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            while not self._idle:
                self._freed.clear()
                await asyncio.wait_for(self._freed.wait(), _ANSWER_S)
            self._idle.popleft().send(due_s)
            sent += 1
        await self._all_idle(len(connections), _ANSWER_S)

    async def _all_idle(self, num_connections: int, limit_s: float) -> None:
        async with asyncio.timeout(limit_s):
            while len(self._idle) < num_connections:
                self._freed.clear()
                await self._freed.wait()

    def _answered(self, connection: _Connection, ok: bool) -> None:
        now_s = time.perf_counter()
        self._latencies_ms.append((now_s - connection.due_s) * 1e3)
        self._num_failed += not ok
        if self._rate or now_s >= self._ends_s:
            self._idle.append(connection)
            self._freed.set()
        else:
            connection.send(now_s)


def main() -> None:
    """Run one load; prints `running`, then its `LoadResult`."""
    parser = argparse.ArgumentParser(prog="event_load")
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--records", type=int, default=1, help="events per request")
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second; 0: no pause")
    parser.add_argument("--run", type=int, default=0, help="keeps the ids of several runs apart")
    arguments = parser.parse_args()
    parts = urlsplit(str(arguments.url))
    assert parts.hostname is not None
    assert parts.port is not None
    requests = [
        _Requests(arguments.sessions, arguments.records, parts.netloc, 100 * arguments.run + n)
        for n in range(arguments.connections)
    ]
    load = _Load(requests, arguments.rate)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        result = runner.run(load.run(parts.hostname, parts.port, float(arguments.seconds)))
    json.dump(asdict(result), sys.stdout)
    sys.stdout.write("\n")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    main()
