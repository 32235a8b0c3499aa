"""Turns per second that one process schedules, beside calls per second through a proxy.

The two ways to put a scheduler before an engine: hand out leases and stay out of the way (lease +
release, two requests per turn), or pass every call through (`proxy_of_their_shape`, 2 kB, not
streamed). One run, 32 connections each, the same instant engine, alternating rounds.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import orjson

from tao_coordinator.bench import relay
from tao_coordinator.bench.load import Requests, request_bytes
from tao_coordinator.children import Child, ChildProcesses

CONCURRENCY = 32
_TOKENS = 500
_CALL = relay.Cell(concurrency=CONCURRENCY, body_bytes=2_000, is_stream=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Of one process."""

    turns_per_s: float
    cpu_ms: float | None
    """Of the process per turn; `None` where the system does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateResult:
    """Figures of one run."""

    lease: Rate
    proxy: Rate

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
        return {**asdict(self), "ratio": self.ratio, "cpu_ratio": self.cpu_ratio}

    def line(self) -> str:
        """For people."""
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
    with ChildProcesses() as children:
        on_progress("starting engine, coordinator and proxy")
        processes = relay.start(children)
        numbers = itertools.count(1)
        ours, theirs = _Tally(processes.coordinator), _Tally(processes.proxy)
        on_progress(f"measuring {num_rounds} rounds of {num_turns} turns each")
        for _ in range(num_rounds):
            ours.measure(processes.coordinator_url, 2 * num_turns, num_turns, _turns(numbers))
            theirs.measure(processes.proxy_url, num_turns, num_turns, relay.requests_of(_CALL))
        children.check()
        return RateResult(lease=ours.rate(), proxy=theirs.rate())


class _Tally:
    def __init__(self, child: Child) -> None:
        self._child = child
        self._num_turns = 0
        self._taken_s = 0.0
        self._cpu_s: list[float | None] = []

    def measure(self, url: str, num_requests: int, num_turns: int, requests: Requests) -> None:
        relay.drive_now(url, CONCURRENCY, 2 * CONCURRENCY, requests)
        begin_cpu_s = relay.cpu_s(self._child.process.pid)
        begin_s = time.perf_counter()
        relay.drive_now(url, CONCURRENCY, num_requests, requests)
        self._taken_s += time.perf_counter() - begin_s
        end_cpu_s = relay.cpu_s(self._child.process.pid)
        if begin_cpu_s is None or end_cpu_s is None:
            self._cpu_s.append(None)
        else:
            self._cpu_s.append(end_cpu_s - begin_cpu_s)
        self._num_turns += num_turns

    def rate(self) -> Rate:
        known = [used_s for used_s in self._cpu_s if used_s is not None]
        is_known = len(known) == len(self._cpu_s)
        return Rate(
            turns_per_s=self._num_turns / self._taken_s,
            cpu_ms=sum(known) * 1e3 / self._num_turns if is_known else None,
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
