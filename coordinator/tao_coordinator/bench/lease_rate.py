"""Turns per second that one process schedules, beside calls per second through a proxy.

The two ways to put a scheduler before an engine: hand out leases and stay out of the way (lease +
release, two requests per turn), or pass every call through (`proxy_of_their_shape`, 2 kB, not
streamed). And by lease with a journal (`--journal`), to see what that costs. One run, 32
connections each, the same instant engine, alternating rounds.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory

import httpx2
import orjson

from tao_coordinator.bench import process_use, relay
from tao_coordinator.bench.load import LoadError, Requests, request_bytes
from tao_coordinator.children import Child, ChildProcesses
from tao_coordinator.service.journal.writer import FLUSH_S

CONCURRENCY = 32
_FETCH_S = 10.0
_TOKENS = 500
_CALL = relay.Cell(concurrency=CONCURRENCY, body_bytes=2_000, is_stream=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of one process."""

    turns_per_s: float
    cpu_ms: float | None
    """Of the process per turn; `None` where the system does not tell."""
    p50_ms: float
    """Of one request, at this load."""
    p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RateResult:
    """Figures of one run."""

    lease: Rate
    journal: Rate
    """By lease, with a journal."""
    proxy: Rate
    journal_bytes: float
    """Per turn, before packing."""

    @property
    def ratio(self) -> float:
        """Turns per second by lease for one through the proxy."""
        return self.lease.turns_per_s / self.proxy.turns_per_s

    @property
    def cpu_ratio(self) -> float | None:
        """The same by CPU time, which other work on the machine disturbs least."""
        ours, theirs = self.lease.cpu_ms, self.proxy.cpu_ms
        return None if not ours or theirs is None else theirs / ours

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            **asdict(self),
            "ratio": self.ratio,
            "cpu_ratio": self.cpu_ratio,
            "journal_cpu_ratio": self.journal_cpu_ratio,
        }

    @property
    def journal_cpu_ratio(self) -> float | None:
        """CPU time of a turn with a journal over that of one without."""
        with_it, without = self.journal.cpu_ms, self.lease.cpu_ms
        return None if not without or with_it is None else with_it / without

    def lines(self) -> Iterator[str]:
        """For people."""
        yield self._proxy_line()
        cpu = self.journal_cpu_ratio
        words = "" if cpu is None else f", {cpu:.2f} x the CPU time"
        yield (
            f"with a journal: {self.journal.turns_per_s:.0f} turns/s "
            f"({self.journal.turns_per_s / self.lease.turns_per_s:.2f} x){words}, request p50 "
            f"{self.journal.p50_ms:.2f} ms (without {self.lease.p50_ms:.2f}), p99 "
            f"{self.journal.p99_ms:.2f} ms (without {self.lease.p99_ms:.2f}), "
            f"{self.journal_bytes:.0f} bytes per turn"
        )

    def _proxy_line(self) -> str:
        cpu = "" if self.cpu_ratio is None else f", {self.cpu_ratio:.1f} x by CPU time"
        return (
            f"32 connections: {self.lease.turns_per_s:.0f} turns/s by lease, "
            f"{self.proxy.turns_per_s:.0f} calls/s through the proxy: {self.ratio:.1f} x{cpu}"
        )


def run(num_turns: int, num_rounds: int, on_progress: Callable[[str], None]) -> RateResult:
    """Measure.

    Args:
        num_turns: Per target and round, >= 64.
        num_rounds: >= 1.
        on_progress: Told what happens, in words.

    Raises:
        ChildFailedError: A child process did not start or died.
        LoadError: A target did not answer as it should.
    """
    with TemporaryDirectory(prefix="tao-journal-") as folder, ChildProcesses() as children:
        on_progress("starting engine, coordinators and proxy")
        processes = relay.start(children)
        recording, recording_url = relay.start_coordinator(
            children, processes.engine_url, "--journal", folder, name="recording coordinator"
        )
        numbers = itertools.count(1)
        ours, theirs = _Tally(processes.coordinator), _Tally(processes.proxy)
        recorded = _Tally(recording)
        on_progress(f"measuring {num_rounds} rounds of {num_turns} turns each")
        for _ in range(num_rounds):
            ours.measure(processes.coordinator_url, 2 * num_turns, num_turns, _turns(numbers))
            recorded.measure(recording_url, 2 * num_turns, num_turns, _turns(numbers))
            theirs.measure(processes.proxy_url, num_turns, num_turns, relay.requests_of(_CALL))
        children.check()
        return RateResult(
            lease=ours.rate(),
            journal=recorded.rate(),
            proxy=theirs.rate(),
            journal_bytes=_journal_bytes(recording_url),
        )


def _journal_bytes(url: str) -> float:
    """Per row, as the coordinator says itself; every row is a turn here."""
    time.sleep(2 * FLUSH_S)
    state = httpx2.get(f"{url}/tao/v1/state", timeout=_FETCH_S).json()["journal"]
    if state["rows_dropped"]:
        raise LoadError(f"the journal has dropped {state['rows_dropped']} rows")
    return state["bytes_written"] / state["rows_written"]


class _Tally:
    def __init__(self, child: Child) -> None:
        self._child = child
        self._num_turns = 0
        self._taken_s = 0.0
        self._times_s: list[float] = []
        self._cpu_s: list[float | None] = []

    def measure(self, url: str, num_requests: int, num_turns: int, requests: Requests) -> None:
        relay.drive_now(url, CONCURRENCY, 2 * CONCURRENCY, requests)
        begin_cpu_s = process_use.cpu_s(self._child.process.pid)
        begin_s = time.perf_counter()
        self._times_s += relay.drive_now(url, CONCURRENCY, num_requests, requests)
        self._taken_s += time.perf_counter() - begin_s
        end_cpu_s = process_use.cpu_s(self._child.process.pid)
        if begin_cpu_s is None or end_cpu_s is None:
            self._cpu_s.append(None)
        else:
            self._cpu_s.append(end_cpu_s - begin_cpu_s)
        self._num_turns += num_turns

    def rate(self) -> Rate:
        known = [used_s for used_s in self._cpu_s if used_s is not None]
        is_known = len(known) == len(self._cpu_s)
        cuts = statistics.quantiles(self._times_s, n=100, method="inclusive")
        return Rate(
            turns_per_s=self._num_turns / self._taken_s,
            cpu_ms=sum(known) * 1e3 / self._num_turns if is_known else None,
            p50_ms=cuts[49] * 1e3,
            p99_ms=cuts[98] * 1e3,
        )


def _turns(numbers: "itertools.count[int]") -> Requests:
    """Lease, release, lease ...: each connection is a session."""
    report = b'{"outcome":"completed","input_tokens":%d,"cached_tokens":%d,"output_tokens":8}'
    release = report % (_TOKENS, _TOKENS)

    def next_request(number: int, num_sent: int, reply: bytes) -> bytes:
        if num_sent % 2:
            lease_id = orjson.loads(reply)["lease_id"]
            return request_bytes(f"/tao/v1/leases/{lease_id}/release", release)
        ask = {
            "request_id": f"r{next(numbers)}",
            "session_id": f"s{number}",
            "input_tokens": _TOKENS,
        }
        return request_bytes("/tao/v1/leases", orjson.dumps(ask))

    return next_request
