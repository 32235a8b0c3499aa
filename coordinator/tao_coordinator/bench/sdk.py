"""What the SDK costs an agent's own thread, beside the bare client and beside what it may cost.

A simulated backend (whose engine runs so fast that its time does not count) and a coordinator run
as child processes; the agent that measures is a third one, `tao_integrations.sdk_cost`, because
nothing in here imports the SDK. The coordinator's own part of a call is `tao bench lease`.
"""

import importlib.util
import json
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tao_coordinator.children import ChildProcesses

EVENT_US_MAX = 200.0
CALL_MS_MAX = 1.5
IMPORT_MS_MAX = 150.0
"""Figures to reach (docs/sdk.md)."""
_TIME_SCALE = "1000"
_AGENT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """One model call by the bare and by the wrapped client; medians, milliseconds."""

    bare: float
    wrapped: float
    added: float
    """Median over the pairs, which took turns."""
    added_cpu: float
    """Of that, work of the agent's own thread; the rest is waiting for the coordinator."""
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkResult:
    """Figures of one run."""

    num_calls: int
    num_events: int
    event_us: dict[str, float]
    """Per event on the agent's thread: `hot`, one right after the other; `cold`, after a pause."""
    call_ms: dict[str, CallCost]
    """`sync`, `async`, and `no coordinator`: the breaker is open."""
    import_ms: dict[str, float]
    """`tao_client`, and `openai` beside it."""
    num_granted: int
    """Leases that the coordinator has given, those of the warm-up too: every scheduled call."""
    num_tool_starts: int
    """Tool calls that it has heard of: half as many as events, if none was dropped."""

    def to_json(self) -> dict[str, object]:
        """Plain values, with the figures to reach."""
        reach = {"event_us": EVENT_US_MAX, "call_ms": CALL_MS_MAX, "import_ms": IMPORT_MS_MAX}
        return {**asdict(self), "to_reach": reach}


def run(num_calls: int, num_events: int, on_progress: Callable[[str], None]) -> SdkResult:
    """Measure.

    Args:
        num_calls: calls of each client in each way, >= 1.
        num_events: events, >= 2.
        on_progress: told what happens, in words.

    Raises:
        ValueError: the openai package is not installed.
        ChildFailedError: a child process did not start or died.
    """
    if importlib.util.find_spec("openai") is None:
        raise ValueError('the agent needs the openai package: pip install "tao-client[openai]"')
    with ChildProcesses() as children:
        on_progress("starting a backend and a coordinator")
        scale = ["--time-scale", _TIME_SCALE]
        backend = children.start(
            "backend", ["tao_coordinator", "sim-backend", "--port", "0", *scale]
        )
        backend_url = backend.wait_for_url()
        coordinator = children.start(
            "coordinator",
            ["tao_coordinator", "coordinator", "--port", "0", "--backend", backend_url, *scale],
        )
        coordinator_url = coordinator.wait_for_url()
        on_progress(f"measuring {num_calls} calls in three ways and {num_events} events in two")
        agent = children.start(
            "agent",
            [
                "tao_integrations.sdk_cost", f"{backend_url}/v1", coordinator_url,
                "--calls", str(num_calls), "--events", str(num_events),
            ],
        )  # fmt: skip
        lines = list(agent.lines(_AGENT_S))
        children.check()
        counters = _counters(coordinator_url)
    figures: dict[str, Any] = json.loads(lines[-1])
    return SdkResult(
        num_calls=num_calls,
        num_events=num_events,
        event_us=figures["event_us"],
        call_ms={name: CallCost(**cost) for name, cost in figures["call_ms"].items()},
        import_ms=figures["import_ms"],
        num_granted=sum(counters["granted"].values()),
        num_tool_starts=counters["tool_starts"],
    )


def _counters(coordinator_url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{coordinator_url}/tao/v1/state", timeout=10) as answer:
        return json.load(answer)["counters"]
