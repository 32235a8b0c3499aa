"""What a lease costs: round trips of resident sessions against a real coordinator on loopback.

A coordinator and two simulated backends run as child processes. Every session first takes one turn,
so that all are live and resident; then sessions are picked at random and one turn each is leased
and released over one keep-alive connection. The client is the standard library's, so that its own
cost is small; a `GET /healthz` over the same connection, measured in between, says what HTTP alone
costs.

Then the same beside a crowd: hundreds of started sessions of another model, for which a third
backend has no room, are held all the while, so that one large plan after the other is made.
"""

import http.client
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import quantiles
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tao_coordinator.children import ChildProcesses

_READY_S = 15.0
_CALL_S = 5.0
_TOKENS = 4_000
_MODEL = "quiet"
_CROWD_MODEL = "crowd"
_CROWD_POOL_TOKENS = 100_000_000
_CROWD_TOKENS = 60_000_000
"""Two of these do not fit the pool."""


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
    num_held: int
    """Turns held during the second part; 0: it was left out."""
    num_plans: int
    """Plans made in another process meanwhile."""
    lease_beside_plans: Latency | None
    """As `lease`, during the second part."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def run(
    num_sessions: int, num_calls: int, num_crowd: int, on_progress: Callable[[str], None]
) -> LeaseResult:
    """Measure.

    Args:
        num_sessions: live sessions, >= 1.
        num_calls: measured turns, >= 2.
        num_crowd: sessions held in the second part; 0 leaves it out.
        on_progress: told what happens, in words.

    Raises:
        ChildFailedError: a child process did not start or died.
        OSError: the coordinator did not answer.
    """
    with ChildProcesses() as children:
        on_progress("starting three backends and a coordinator")
        pools = [(num_sessions * 20_000, _MODEL)] * 2 + [(_CROWD_POOL_TOKENS, _CROWD_MODEL)]
        backends = [
            children.start(
                f"backend {n}",
                f"tao_coordinator sim-backend --model {model} --capacity-tokens {pool}".split(),
            )
            for n, (pool, model) in enumerate(pools)
        ]
        arguments = ["tao_coordinator", "coordinator", "--port", "0"]
        for backend in backends:
            arguments += ["--backend", backend.wait_for_url()]
        coordinator = children.start("coordinator", arguments)
        client = LeaseClient(coordinator.wait_for_url())
        client.wait_until_ready()
        on_progress(f"{num_sessions} sessions take their first turn")
        for number in range(num_sessions):
            client.turn(f"s{number}")
        on_progress(f"measuring {num_calls} turns")
        quiet = _measure(client, num_sessions, num_calls)
        beside, num_held, num_plans = None, 0, 0
        if num_crowd:
            on_progress(f"measuring {num_calls} turns beside {num_crowd} sessions that wait")
            num_held = _gather(client, num_crowd)
            beside = _measure(client, num_sessions, num_calls)
            num_plans = client.num_plans_aside()
        return LeaseResult(
            num_sessions=num_sessions,
            num_calls=num_calls,
            lease=Latency.of(quiet.leases_s),
            release=Latency.of(quiet.releases_s),
            healthz=Latency.of(quiet.healthz_s),
            pairs_per_s=num_calls / (sum(quiet.leases_s) + sum(quiet.releases_s)),
            num_resident=quiet.num_resident,
            num_held=num_held,
            num_plans=num_plans,
            lease_beside_plans=None if beside is None else Latency.of(beside.leases_s),
        )


@dataclass(slots=True)
class _Times:
    leases_s: list[float] = field(default_factory=list[float])
    releases_s: list[float] = field(default_factory=list[float])
    healthz_s: list[float] = field(default_factory=list[float])
    num_resident: int = 0


def _measure(client: "LeaseClient", num_sessions: int, num_calls: int) -> _Times:
    draw = random.Random(1)
    times = _Times()
    for index in range(num_calls):
        lease_s, release_s, reason = client.turn(f"s{draw.randrange(num_sessions)}")
        times.leases_s.append(lease_s)
        times.releases_s.append(release_s)
        times.num_resident += reason == "resident"
        if index % 4 == 0 or index < 2:
            start_s = time.perf_counter()
            client.call("GET", "/healthz", None)
            times.healthz_s.append(time.perf_counter() - start_s)
    return times


def _gather(client: "LeaseClient", num_crowd: int) -> int:
    """Sessions that have started, and come back with more than there is room for."""
    for number in range(num_crowd):
        client.turn(f"c{number}", 50, _CROWD_MODEL)
    return sum(
        client.ask(f"c{number}", _CROWD_TOKENS, _CROWD_MODEL)[0] == 202
        for number in range(num_crowd)
    )


class LeaseClient:
    """A client of the lease API on one keep-alive connection."""

    def __init__(self, url: str) -> None:
        """Connect at the first call.

        Args:
            url: The coordinator's.
        """
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_CALL_S)
        self._num_requests = 0

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def call(self, method: str, path: str, body: dict[str, object] | None) -> tuple[int, bytes]:
        """One request; status and body of its answer."""
        payload = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._connection.request(method, path, payload, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def wait_until_ready(self) -> None:
        """Return once a backend is healthy; `OSError` when none becomes it."""
        deadline_s = time.monotonic() + _READY_S
        while self.call("GET", "/readyz", None)[0] != 200:
            if time.monotonic() > deadline_s:
                raise OSError(f"the coordinator was not ready within {_READY_S:.0f} s")
            time.sleep(0.05)

    def ask(self, session_id: str, tokens: int, model: str) -> tuple[int, bytes]:
        """Ask for a lease, without waiting for it."""
        self._num_requests += 1
        request: dict[str, object] = {
            "request_id": f"r{self._num_requests}",
            "session_id": session_id,
            "input_tokens": tokens,
            "model": model,
        }
        return self.call("POST", "/tao/v1/leases", request)

    def turn(
        self, session_id: str, tokens: int = _TOKENS, model: str = _MODEL
    ) -> tuple[float, float, str]:
        """Lease and release one turn; the two durations and the receipt's reason."""
        start_s = time.perf_counter()
        status, answer = self.ask(session_id, tokens, model)
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

    def num_plans_aside(self) -> int:
        """Plans made in another process so far."""
        _, page = self.call("GET", "/metrics", None)
        return sum(
            int(sample.value)
            for family in text_string_to_metric_families(page.decode())
            for sample in family.samples
            if sample.name == "tao_plan_total" and sample.labels["path"] == "aside"
        )
