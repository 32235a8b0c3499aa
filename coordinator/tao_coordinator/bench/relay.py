"""What a relayed call costs beside a direct one, and beside a proxy of the usual build.

One run, three targets in turn, the same instant engine behind all: the engine itself, the
coordinator's relay, and `proxy_of_their_shape`. Every process is a child of its own. Added latency
is a target's percentile minus the direct one's; CPU time is what the proxy's process used, divided
by its calls. Many short rounds alternate between the targets and their samples are put together:
this machine's other work hits all of them alike, so read ratios.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

import httpx2

from tao_coordinator.bench import process_use
from tao_coordinator.bench.load import LoadError, Requests, drive, request_bytes
from tao_coordinator.children import Child, ChildProcesses

CONCURRENCIES = (1, 32)
BODY_BYTES = (2_000, 100_000)
_READY_S = 15.0
_WARM_UP_CALLS = 1_000
"""Before the first cell, which would otherwise pay for every process's first steps."""
_PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One kind of load."""

    concurrency: int
    body_bytes: int
    is_stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one proxy adds to a call of one kind."""

    p50_ms: float
    p99_ms: float
    cpu_ms: float | None
    """Of the proxy's process per call; `None` where the system does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """One line of the table."""

    cell: Cell
    direct_p50_ms: float
    direct_p99_ms: float
    relay: Cost
    proxy: Cost

    @property
    def is_lower(self) -> bool:
        """The relay costs less in each figure."""
        ours, theirs = self.relay, self.proxy
        cpu = ours.cpu_ms is None or theirs.cpu_ms is None or ours.cpu_ms < theirs.cpu_ms
        return ours.p50_ms < theirs.p50_ms and ours.p99_ms < theirs.p99_ms and cpu

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {**asdict(self), "is_lower": self.is_lower}


@dataclass(slots=True)
class _Target:
    url: str
    child: Child
    times_s: list[float] = field(default_factory=list[float])
    cpu_s: list[float | None] = field(default_factory=list[float | None])
    """Of the process, by round."""

    def percentile_ms(self, percent: int) -> float:
        return statistics.quantiles(self.times_s, n=100, method="inclusive")[percent - 1] * 1e3

    def cpu_ms(self) -> float | None:
        known = [used_s for used_s in self.cpu_s if used_s is not None]
        return sum(known) * 1e3 / len(self.times_s) if len(known) == len(self.cpu_s) else None


def cells() -> Iterator[Cell]:
    """All kinds of load."""
    for is_stream in (False, True):
        for body_bytes in BODY_BYTES:
            for concurrency in CONCURRENCIES:
                yield Cell(concurrency=concurrency, body_bytes=body_bytes, is_stream=is_stream)


def run(num_calls: int, num_rounds: int, on_progress: Callable[[str], None]) -> list[CellResult]:
    """Measure every cell.

    Args:
        num_calls: Per target, cell and round, >= 64.
        num_rounds: >= 1.
        on_progress: Told what happens, in words.

    Raises:
        ChildFailedError: A child process did not start or died.
        LoadError: A target did not answer as it should.
    """
    with ChildProcesses() as children:
        on_progress("starting engine, coordinator and proxy")
        processes = start(children)
        warm_up = Cell(concurrency=4, body_bytes=2_000, is_stream=False)
        for url in (processes.engine_url, processes.coordinator_url, processes.proxy_url):
            drive_now(url, warm_up.concurrency, _WARM_UP_CALLS, requests_of(warm_up))
        results: list[CellResult] = []
        for cell in cells():
            targets = {
                "direct": _Target(processes.engine_url, processes.engine),
                "relay": _Target(processes.coordinator_url, processes.coordinator),
                "proxy": _Target(processes.proxy_url, processes.proxy),
            }
            on_progress(f"{_words(cell)}: {num_rounds} rounds of {num_calls} calls")
            for _ in range(num_rounds):
                for target in targets.values():
                    _measure(target, cell, num_calls)
            children.check()
            results.append(_result(cell, targets))
        return results


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of one run."""

    engine: Child
    engine_url: str
    coordinator: Child
    coordinator_url: str
    proxy: Child
    proxy_url: str


def start(children: ChildProcesses) -> Processes:
    """Start an engine, and a coordinator and a proxy in front of it; all are ready."""
    engine = children.start("engine", ["tao_coordinator.bench.instant_engine"])
    engine_url = engine.wait_for_url()
    coordinator, coordinator_url = start_coordinator(children, engine_url)
    proxy = children.start("proxy", ["tao_coordinator.bench.proxy_of_their_shape", engine_url])
    return Processes(engine, engine_url, coordinator, coordinator_url, proxy, proxy.wait_for_url())


def start_coordinator(
    children: ChildProcesses, engine_url: str, *flags: str, name: str = "coordinator"
) -> tuple[Child, str]:
    """Start a coordinator in front of an engine; its process and URL once it is ready."""
    arguments = ["tao_coordinator", "coordinator", "--port", "0", "--backend", engine_url, *flags]
    child = children.start(name, arguments)
    url = child.wait_for_url()
    _wait_until_ready(url)
    return child, url


def _wait_until_ready(url: str) -> None:
    deadline_s = time.monotonic() + _READY_S
    with httpx2.Client(trust_env=False, timeout=_READY_S) as client:
        while client.get(f"{url}/readyz").status_code != 200:
            if time.monotonic() > deadline_s:
                raise LoadError(f"the coordinator was not ready within {_READY_S:.0f} s")
            time.sleep(0.05)


def body_of(cell: Cell, session: str) -> bytes:
    """A chat call of the cell's size."""
    document: dict[str, object] = {"model": "bench", "program_id": session}
    if cell.is_stream:
        document["stream"] = True
    message = {"role": "user", "content": ""}
    document["messages"] = [message]
    empty = json.dumps(document, separators=(",", ":"))
    message["content"] = "x" * (cell.body_bytes - len(empty))
    return json.dumps(document, separators=(",", ":")).encode()


def requests_of(cell: Cell) -> Requests:
    """Each connection is a session; all of a session's calls are alike."""
    ready = [
        request_bytes(_PATH, body_of(cell, f"s{number}"), f"x-session-id: s{number}\r\n")
        for number in range(cell.concurrency)
    ]
    return lambda number, _sent, _reply: ready[number]


def _measure(target: _Target, cell: Cell, num_calls: int) -> None:
    requests = requests_of(cell)
    drive_now(target.url, cell.concurrency, 2 * cell.concurrency, requests)
    begin_s = process_use.cpu_s(target.child.process.pid)
    target.times_s += drive_now(target.url, cell.concurrency, num_calls, requests)
    end_s = process_use.cpu_s(target.child.process.pid)
    target.cpu_s.append(None if begin_s is None or end_s is None else end_s - begin_s)


def drive_now(url: str, concurrency: int, num_calls: int, requests: Requests) -> list[float]:
    """`drive` on a loop of its own."""
    job = drive(url, concurrency, num_calls, requests)
    if sys.platform == "win32":
        return asyncio.run(job)
    import uvloop

    return uvloop.run(job)


def _result(cell: Cell, targets: dict[str, _Target]) -> CellResult:
    direct_p50_ms = targets["direct"].percentile_ms(50)
    direct_p99_ms = targets["direct"].percentile_ms(99)

    def cost(target: _Target) -> Cost:
        return Cost(
            p50_ms=target.percentile_ms(50) - direct_p50_ms,
            p99_ms=target.percentile_ms(99) - direct_p99_ms,
            cpu_ms=target.cpu_ms(),
        )

    return CellResult(
        cell=cell,
        direct_p50_ms=direct_p50_ms,
        direct_p99_ms=direct_p99_ms,
        relay=cost(targets["relay"]),
        proxy=cost(targets["proxy"]),
    )


def _words(cell: Cell) -> str:
    kind = "stream" if cell.is_stream else "whole"
    return f"{kind}, {cell.body_bytes // 1000} kB, concurrency {cell.concurrency}"


def table(results: list[CellResult]) -> Iterator[str]:
    """The results as lines for people."""
    yield "added to a direct call (p50 / p99 ms, CPU ms per call)"
    for one in results:
        ours, theirs = one.relay, one.proxy
        yield (
            f"{_words(one.cell):32} direct {one.direct_p50_ms:6.2f} / {one.direct_p99_ms:6.2f}   "
            f"relay +{ours.p50_ms:6.2f} / +{ours.p99_ms:6.2f}, {_cpu(ours)}   "
            f"proxy +{theirs.p50_ms:6.2f} / +{theirs.p99_ms:6.2f}, {_cpu(theirs)}   "
            f"{'lower' if one.is_lower else 'NOT LOWER'}"
        )


def _cpu(cost: Cost) -> str:
    return "CPU    -" if cost.cpu_ms is None else f"CPU {cost.cpu_ms:5.2f}"
