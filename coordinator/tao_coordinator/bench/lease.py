"""What a lease costs: round trips of resident sessions against a real coordinator on loopback.

A coordinator and two simulated backends run as child processes. Every session first takes one turn,
so that all are live and resident; then sessions are picked at random and one turn each is leased
and released over one keep-alive connection. The client is the standard library's, so that its own
cost is small; a `GET /healthz` over the same connection, measured in between, says what HTTP alone
costs.
"""

import http.client
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import quantiles
from urllib.parse import urlsplit

from tao_coordinator.children import ChildProcesses

_READY_S = 15.0
_CALL_S = 5.0
_TOKENS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Distribution of one kind of call, milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float

    @staticmethod
    def of(times_s: list[float]) -> "Latency":
        """Summarise; needs two samples at least."""
        cuts = quantiles(times_s, n=100, method="inclusive")
        return Latency(p50_ms=cuts[49] * 1e3, p99_ms=cuts[98] * 1e3, max_ms=max(times_s) * 1e3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseResult:
    """Figures of one run."""

    num_sessions: int
    num_calls: int
    lease: Latency
    release: Latency
    healthz: Latency
    pairs_per_s: float
    """Lease + release, one after the other on one connection."""
    num_resident: int
    """Leases granted by bypass, without a plan: all of them, if the run measured what it says."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def run(num_sessions: int, num_calls: int, on_progress: Callable[[str], None]) -> LeaseResult:
    """Measure.

    Args:
        num_sessions: live sessions, >= 1.
        num_calls: measured turns, >= 2.
        on_progress: told what happens, in words.

    Raises:
        ChildFailedError: a child process did not start or died.
        OSError: the coordinator did not answer.
    """
    with ChildProcesses() as children:
        on_progress("starting two backends and a coordinator")
        pool = str(num_sessions * 20_000)
        backend_arguments = [
            "tao_coordinator", "sim-backend", "--port", "0", "--capacity-tokens", pool
        ]  # fmt: skip
        backends = [children.start(f"backend {n}", backend_arguments) for n in range(2)]
        arguments = ["tao_coordinator", "coordinator", "--port", "0"]
        for backend in backends:
            arguments += ["--backend", backend.wait_for_url()]
        coordinator = children.start("coordinator", arguments)
        client = _Client(coordinator.wait_for_url())
        client.wait_until_ready()
        on_progress(f"{num_sessions} sessions take their first turn")
        for number in range(num_sessions):
            client.turn(number, _TOKENS)
        on_progress(f"measuring {num_calls} turns")
        return _measure(client, num_sessions, num_calls)


def _measure(client: "_Client", num_sessions: int, num_calls: int) -> LeaseResult:
    draw = random.Random(1)
    leases_s: list[float] = []
    releases_s: list[float] = []
    healthz_s: list[float] = []
    num_resident = 0
    for index in range(num_calls):
        lease_s, release_s, reason = client.turn(draw.randrange(num_sessions), _TOKENS)
        leases_s.append(lease_s)
        releases_s.append(release_s)
        num_resident += reason == "resident"
        if index % 4 == 0:
            start_s = time.perf_counter()
            client.call("GET", "/healthz", None)
            healthz_s.append(time.perf_counter() - start_s)
    return LeaseResult(
        num_sessions=num_sessions,
        num_calls=num_calls,
        lease=Latency.of(leases_s),
        release=Latency.of(releases_s),
        healthz=Latency.of(healthz_s * 2 if len(healthz_s) < 2 else healthz_s),
        pairs_per_s=num_calls / (sum(leases_s) + sum(releases_s)),
        num_resident=num_resident,
    )


class _Client:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_CALL_S)
        self._num_requests = 0

    def call(self, method: str, path: str, body: dict[str, object] | None) -> tuple[int, bytes]:
        payload = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._connection.request(method, path, payload, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + _READY_S
        while self.call("GET", "/readyz", None)[0] != 200:
            if time.monotonic() > deadline_s:
                raise OSError(f"the coordinator was not ready within {_READY_S:.0f} s")
            time.sleep(0.05)

    def turn(self, session: int, tokens: int) -> tuple[float, float, str]:
        """Lease and release one turn; the two durations and the receipt's reason."""
        self._num_requests += 1
        request: dict[str, object] = {
            "request_id": f"r{self._num_requests}",
            "session_id": f"s{session}",
            "input_tokens": tokens,
        }
        start_s = time.perf_counter()
        status, answer = self.call("POST", "/tao/v1/leases", request)
        leased_s = time.perf_counter()
        if status != 200:
            raise OSError(f"a lease was answered with {status}: {answer[:200]!r}")
        granted = json.loads(answer)
        report: dict[str, object] = {
            "outcome": "completed",
            "input_tokens": tokens,
            "cached_tokens": tokens,
            "output_tokens": 100,
        }
        begin_s = time.perf_counter()
        self.call("POST", f"/tao/v1/leases/{granted['lease_id']}/release", report)
        released_s = time.perf_counter()
        return leased_s - start_s, released_s - begin_s, granted["receipt"]["reason"]
