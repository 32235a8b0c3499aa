"""What events cost: decoding in one process, and requests against a real coordinator on loopback.

Three things run as processes of their own: the coordinator, the load (`bench.event_load`), and this
one, which asks for leases meanwhile. Every figure is the median of several runs, so that a busy
machine shows as a spread and not as the result.
"""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from tao_client import semconv
from tao_coordinator.adapters.events import log_records
from tao_coordinator.adapters.events.receiver import RECORDS_MAX, EventReceiver, Tally
from tao_coordinator.bench import process_use
from tao_coordinator.bench.event_load import record, request_of, session_name
from tao_coordinator.bench.lease import Latency, LeaseClient
from tao_coordinator.children import ChildProcesses

_DECODE_RECORDS: Final = 20_000
_DECODE_BATCHES: Final = (1, 100)
_BATCH: Final = 100
_CHILD_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to measure."""

    num_runs: int = 5
    seconds: float = 2.0
    """Of each run."""
    num_sessions: int = 1_000
    num_connections: int = 8
    rate: float = 1_000.0
    """Events per second of the paced load, beside which latencies are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFigure:
    """Reading requests into events, without HTTP and engine; CPU time of one core."""

    encoding: str
    num_records: int
    """Per request."""
    events_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigure:
    """One kind of load against the coordinator."""

    name: str
    num_records: int
    """Per request."""
    requests_per_s: float
    events_per_s: float
    event: Latency
    """Request to answer, which comes after the state has changed. Paced: from the due time."""
    lease: Latency | None
    """Leases of resident sessions meanwhile, one after the other; `None`: none were asked for."""
    cpu_us_per_request: float | None
    """CPU time of the coordinator, steadier than rates on a busy machine; `None`: not known, or
    spent on leases too."""
    requests_per_s_runs: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsResult:
    """All figures."""

    settings: Settings
    decode: list[DecodeFigure]
    loads: list[LoadFigure]
    lease_alone: Latency

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def run(settings: Settings, on_progress: Callable[[str], None]) -> EventsResult:
    """Measure.

    Args:
        settings: What to measure.
        on_progress: Told what happens, in words.

    Raises:
        ChildFailedError: A child process did not start or died.
        OSError: The coordinator did not answer.
        ValueError: It refused some of the events.
    """
    on_progress("decoding in this process")
    decoded = decode(settings.num_runs)
    with ChildProcesses() as children:
        on_progress("starting a backend and a coordinator")
        pool = str(settings.num_sessions * 20_000)
        backend = children.start(
            "backend",
            ["tao_coordinator", "sim-backend", "--port", "0", "--capacity-tokens", pool],
        )
        coordinator = children.start(
            "coordinator",
            ["tao_coordinator", "coordinator", "--port", "0", "--backend", backend.wait_for_url()],
        )
        url = coordinator.wait_for_url()
        with contextlib.closing(LeaseClient(url)) as client:
            client.wait_until_ready()
            on_progress(f"{settings.num_sessions} sessions take their first turn")
            for number in range(settings.num_sessions):
                client.turn(session_name(number), model="")
            bench = _Bench(settings, children, url, client, coordinator.process.pid)
            return bench.measure(decoded, on_progress)


def decode(num_runs: int) -> list[DecodeFigure]:
    """Events per second of CPU time, bytes to events, for small and large requests.

    Args:
        num_runs: Each figure is the median of as many.
    """
    figures: list[DecodeFigure] = []
    for num_records in _DECODE_BATCHES:
        binary = _bodies(num_records)
        text = [_as_json(body) for body in binary]
        for encoding, bodies, read in (
            ("protobuf", binary, log_records.rows_from_protobuf),
            ("json", text, log_records.rows_from_json),
        ):
            rates = [_decode_once(bodies, read) for _ in range(num_runs)]
            figures.append(
                DecodeFigure(encoding=encoding, num_records=num_records, events_per_s=median(rates))
            )
    return figures


def _decode_once(bodies: list[bytes], read: Callable[[bytes, int], log_records.LogRows]) -> float:
    receiver, tally = EventReceiver(), Tally()
    num_events = 0
    started_s = time.process_time()
    for body in bodies:
        rows, _ = read(body, RECORDS_MAX)
        num_events += len(receiver.logs(rows, time.time(), tally))
    seconds = time.process_time() - started_s
    if num_events != _DECODE_RECORDS:
        raise ValueError(f"{num_events} of {_DECODE_RECORDS} events came out: {tally}")
    return num_events / seconds


def _bodies(num_records: int) -> list[bytes]:
    time_ns = time.time_ns()
    names = (semconv.TOOL_START, semconv.TOOL_END)
    records = [
        record(names[n % 2], session_name(n // 2 % 1_000), f"{n // 2:016d}", time_ns + n)
        for n in range(_DECODE_RECORDS)
    ]
    starts = range(0, _DECODE_RECORDS, num_records)
    return [request_of(records[first : first + num_records]) for first in starts]


def _as_json(body: bytes) -> bytes:
    rows, _ = log_records.rows_from_protobuf(body, RECORDS_MAX)
    records = [
        {
            "eventName": row.event_name,
            "timeUnixNano": str(row.time_unix_ns),
            "severityNumber": 9,
            "attributes": [
                {
                    "key": key,
                    "value": {"stringValue" if isinstance(value, str) else "doubleValue": value},
                }
                for key, value in row.attributes.items()
            ],
        }
        for row in rows
    ]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()


class _Bench:
    def __init__(
        self,
        settings: Settings,
        children: ChildProcesses,
        url: str,
        client: LeaseClient,
        coordinator_pid: int,
    ) -> None:
        self._settings = settings
        self._children = children
        self._url = url
        self._client = client
        self._pid = coordinator_pid
        self._num_loads = 0

    def measure(
        self, decoded: list[DecodeFigure], on_progress: Callable[[str], None]
    ) -> EventsResult:
        settings = self._settings
        on_progress("leases without events")
        alone = Latency.of(self._leases_for(settings.seconds))
        on_progress(f"{settings.num_runs} runs with one event per request")
        single = self._load("single", 1, 0.0)
        on_progress(f"{settings.num_runs} runs with {_BATCH} events per request")
        batched = self._load("batched", _BATCH, 0.0)
        on_progress(f"{settings.num_runs} runs at {settings.rate:g} events/s, with leases")
        paced = self._load("paced", 1, settings.rate)
        return EventsResult(
            settings=settings,
            decode=decoded,
            loads=[single, batched, paced],
            lease_alone=alone,
        )

    def _load(self, name: str, num_records: int, rate: float) -> LoadFigure:
        before_s = process_use.cpu_s(self._pid)
        runs = [self._load_once(num_records, rate) for _ in range(self._settings.num_runs)]
        after_s = process_use.cpu_s(self._pid)
        rates = [requests_per_s for requests_per_s, _, _ in runs]
        leases = [lease for _, _, lease in runs if lease is not None]
        return LoadFigure(
            name=name,
            num_records=num_records,
            requests_per_s=median(rates),
            events_per_s=median(rates) * num_records,
            event=_median_of([event for _, event, _ in runs]),
            lease=_median_of(leases) if leases else None,
            cpu_us_per_request=(
                None
                if rate or before_s is None or after_s is None
                else 1e6 * (after_s - before_s) / (sum(rates) * self._settings.seconds)
            ),
            requests_per_s_runs=rates,
        )

    def _load_once(self, num_records: int, rate: float) -> tuple[float, Latency, Latency | None]:
        settings = self._settings
        self._num_loads += 1
        child = self._children.start(
            "event load",
            [
                "tao_coordinator.bench.event_load",
                self._url,
                f"--connections={settings.num_connections}",
                f"--seconds={settings.seconds}",
                f"--sessions={settings.num_sessions}",
                f"--records={num_records}",
                f"--rate={rate}",
                f"--run={self._num_loads}",
            ],
        )
        child.wait_for_line("running")
        lease = Latency.of(self._leases_for(settings.seconds)) if rate else None
        line = child.next_line(_CHILD_S_MAX)
        if line is None:
            raise OSError(f"the event load failed: {child.last_words()}")
        result = json.loads(line)
        if result["num_failed"]:
            raise ValueError(f"{result['num_failed']} requests were refused")
        event = Latency.of([ms / 1e3 for ms in result["latencies_ms"]])
        return result["num_requests"] / result["seconds"], event, lease

    def _leases_for(self, seconds: float) -> list[float]:
        times_s: list[float] = []
        ends_s = time.perf_counter() + seconds
        number = 0
        while time.perf_counter() < ends_s or len(times_s) < 2:
            number = (number + 7) % self._settings.num_sessions
            times_s.append(self._client.turn(session_name(number), model="")[0])
        return times_s


def _median_of(latencies: list[Latency]) -> Latency:
    return Latency(
        p50_ms=median(latency.p50_ms for latency in latencies),
        p99_ms=median(latency.p99_ms for latency in latencies),
        max_ms=median(latency.max_ms for latency in latencies),
    )
