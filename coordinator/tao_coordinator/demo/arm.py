"""One policy's run: start everything fresh, watch the fleet, collect what was recorded."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tao_coordinator.children import Child, ChildFailedError, ChildProcesses
from tao_coordinator.demo import measure
from tao_coordinator.demo.measure import PolicyResult, Record
from tao_coordinator.demo.workload import Workload

FLEET_S_MAX = 600.0
"""Real seconds after which a fleet counts as stuck."""
_FETCH_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What every arm has in common."""

    num_backends: int
    capacity_tokens: int
    """KV pool of one backend."""
    engine: str
    time_scale: float
    chars_per_token: float
    model: str = "sim-model"
    journal: Path | None = None
    """Each policy's coordinator keeps its journal in a folder of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an arm is."""

    policy: str
    turns_done: int
    sessions_done: int
    elapsed_s: float


def run_arm(
    policy: str,
    workload: Workload,
    settings: DemoSettings,
    folder: Path,
    on_progress: Callable[[Progress], None],
) -> PolicyResult:
    """Run the whole workload under one policy, with cold caches.

    Raises:
        ChildFailedError: a child did not start or died, or the fleet got stuck.
    """
    started_s = time.monotonic()
    with ChildProcesses() as children:
        urls = _start_backends(children, settings, folder)
        coordinator = _start_coordinator(children, policy, urls, settings)
        fleet = _start_fleet(children, urls[0], coordinator, workload, settings, folder)
        records = _watch(fleet, policy, started_s, on_progress, children)
        requests = [record for url in urls for record in _finished_requests(url)]
    return measure.summarise(
        policy,
        records,
        requests,
        pool_tokens=settings.num_backends * settings.capacity_tokens,
        time_scale=settings.time_scale,
        wall_s=time.monotonic() - started_s,
    )


def write_inputs(workload: Workload, folder: Path) -> None:
    """Write the script and the tasks where the children read them."""
    (folder / "script.json").write_text(json.dumps(workload.script), encoding="utf-8")
    (folder / "tasks.json").write_text(json.dumps(workload.tasks), encoding="utf-8")


def _start_backends(children: ChildProcesses, settings: DemoSettings, folder: Path) -> list[str]:
    arguments = [
        "tao_coordinator", "sim-backend", "--port", "0",
        "--engine", settings.engine,
        "--capacity-tokens", str(settings.capacity_tokens),
        "--chars-per-token", str(settings.chars_per_token),
        "--time-scale", str(settings.time_scale),
        "--model", settings.model,
        "--script", str(folder / "script.json"),
    ]  # fmt: skip
    backends = [
        children.start(f"backend {number}", arguments) for number in range(settings.num_backends)
    ]
    return [backend.wait_for_url() for backend in backends]


def _start_coordinator(
    children: ChildProcesses, policy: str, urls: list[str], settings: DemoSettings
) -> str:
    arguments = [
        "tao_coordinator", "coordinator", "--port", "0",
        "--policy", policy,
        "--time-scale", str(settings.time_scale),
    ]  # fmt: skip
    if settings.journal is not None:
        arguments += ["--journal", str(settings.journal / policy)]
    for number, url in enumerate(urls):
        arguments += ["--backend", f"backend-{number}={url}"]
    coordinator = children.start("coordinator", arguments)
    url = coordinator.wait_for_url()
    deadline_s = time.monotonic() + _FETCH_S
    while httpx2.get(f"{url}/readyz", timeout=_FETCH_S).status_code != 200:
        if time.monotonic() > deadline_s:
            raise ChildFailedError(f"no backend became ready: {coordinator.last_words()}")
        time.sleep(0.05)
    return url


def _start_fleet(
    children: ChildProcesses,
    base_url: str,
    coordinator: str,
    workload: Workload,
    settings: DemoSettings,
    folder: Path,
) -> Child:
    arguments = [
        "tao_integrations.mini_swe_agent_fleet",
        "--base-url", f"{base_url}/v1",
        "--tao-endpoint", coordinator,
        "--model", settings.model,
        "--tasks", str(folder / "tasks.json"),
        "--workers", str(len(workload.tasks)),
    ]  # fmt: skip
    # The SDK would learn this by itself; told, it is right from the first prompt on.
    return children.start(
        "fleet", arguments, {"TAO_CHARS_PER_TOKEN": str(settings.chars_per_token)}
    )


def _watch(
    fleet: Child,
    policy: str,
    started_s: float,
    on_progress: Callable[[Progress], None],
    children: ChildProcesses,
) -> list[Record]:
    records: list[Record] = []
    turns = sessions = 0
    for line in fleet.lines(FLEET_S_MAX):
        children.check()
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ChildFailedError(f"the fleet printed {line[:200]!r}") from error
        records.append(record)
        turns += record.get("kind") == "turn"
        sessions += record.get("kind") == "session"
        elapsed_s = time.monotonic() - started_s
        on_progress(
            Progress(policy=policy, turns_done=turns, sessions_done=sessions, elapsed_s=elapsed_s)
        )
    if fleet.process.wait() != 0:
        raise ChildFailedError(f"the fleet failed: {fleet.last_words()}")
    return records


def _finished_requests(url: str) -> list[Record]:
    answer = httpx2.get(f"{url}/sim/requests", timeout=_FETCH_S)
    answer.raise_for_status()
    found: list[Record] = answer.json()
    return found
