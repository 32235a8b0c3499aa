"""`tao demo`: real agents on modelled GPUs under three policies, one table."""

import argparse
import json
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tao_coordinator.demo.arm import Progress
    from tao_coordinator.demo.measure import PolicyResult

_DEFAULT_POLICIES = ("round-robin", "sticky-least-loaded", "tao")


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command."""
    parser = subparsers.add_parser(
        "demo",
        help="real agents on modelled GPUs, three policies, one table (under 3 minutes)",
        description=(
            "Starts simulated backends and a coordinator on this machine and runs a fleet of real "
            "mini-SWE-agent sessions, which execute real shell commands in temporary folders, "
            "once per policy. No GPU, no key, no network. All figures are measured in the run; "
            "times are engine seconds (real seconds x --time-scale)."
        ),
    )
    parser.add_argument(
        "--sessions", type=int, default=24, help="agents alive at once (%(default)s)"
    )
    parser.add_argument("--turns", type=int, default=10, help="mean model calls each (%(default)s)")
    parser.add_argument("--backends", type=int, default=2, help="backends (%(default)s)")
    parser.add_argument(
        "--capacity-tokens",
        type=int,
        default=307_000,
        help="KV pool of one backend; smaller means more pressure (%(default)s)",
    )
    parser.add_argument(
        "--engine", default="qwen3-32b-bf16-tp2", help="modelled engine (%(default)s)"
    )
    parser.add_argument(
        "--time-scale",
        type=float,
        default=24.0,
        help="engine seconds per real second: engines, scripted tools and the policy's time "
        "constants all run this much faster (%(default)s); above about 30 the agents' own CPU "
        "time begins to show",
    )
    parser.add_argument(
        "--chars-per-token",
        type=float,
        default=1.0,
        help="characters that count as one token; 1 makes the agents' short texts stand for long "
        "contexts (%(default)s)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help="policy to run, repeatable (default: " + ", ".join(_DEFAULT_POLICIES) + ")",
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="DIR",
        help="keep each policy's journal in DIR/POLICY, for `tao replay`",
    )
    parser.add_argument("--seed", type=int, default=1, help="same seed, same work (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run every policy on the same work and report."""
    from tao_coordinator.demo import workload
    from tao_coordinator.demo.arm import DemoSettings, run_arm, write_inputs
    from tao_coordinator.engine import POLICIES

    policies: list[str] = arguments.policy or list(_DEFAULT_POLICIES)
    _check(arguments, policies, POLICIES)
    if find_spec("minisweagent") is None:
        raise ValueError('the demo runs mini-SWE-agent: pip install "tao-client[demo]"')
    signal.signal(signal.SIGTERM, _interrupt)
    work = workload.build(
        num_sessions=arguments.sessions,
        num_turns=arguments.turns,
        time_scale=arguments.time_scale,
        seed=arguments.seed,
    )
    settings = DemoSettings(
        num_backends=arguments.backends,
        capacity_tokens=arguments.capacity_tokens,
        engine=arguments.engine,
        time_scale=arguments.time_scale,
        chars_per_token=arguments.chars_per_token,
        journal=arguments.journal,
    )
    shown = _ProgressLine(len(work.tasks), work.num_turns)
    shown.say(
        f"{len(work.tasks)} real mini-SWE-agent sessions on {arguments.backends} modelled "
        f"{arguments.engine} backends with {arguments.capacity_tokens:,} KV tokens each, "
        f"time x {arguments.time_scale:g}"
    )
    results: list[PolicyResult] = []
    with tempfile.TemporaryDirectory(prefix="tao-demo-") as name:
        folder = Path(name)
        write_inputs(work, folder)
        for policy in policies:
            try:
                results.append(run_arm(policy, work, settings, folder, shown.update))
            finally:
                shown.end()
    _print(arguments, results)
    return 1 if any(r.num_failed_sessions for r in results) else 0


def _print(arguments: argparse.Namespace, results: "list[PolicyResult]") -> None:
    from tao_coordinator.demo import report

    verdict = report.verdict(results)
    if arguments.json:
        settings = {
            name: getattr(arguments, name)
            for name in (
                "sessions", "turns", "backends", "capacity_tokens", "engine", "time_scale",
                "chars_per_token", "seed",
            )
        }  # fmt: skip
        body = {"settings": settings, "results": [r.to_json() for r in results], "verdict": verdict}
        print(json.dumps(body, indent=2))
        return
    print()
    print(report.table(results))
    print()
    print(verdict)
    failed = sum(r.num_failed_sessions for r in results)
    if failed:
        print(f"{failed} sessions did not finish their task.")


def _check(arguments: argparse.Namespace, policies: list[str], known: tuple[str, ...]) -> None:
    for policy in policies:
        if policy not in known:
            raise ValueError(f"unknown policy {policy!r}; choose one of {', '.join(known)}")
    for name in ("sessions", "turns", "backends", "capacity_tokens", "time_scale"):
        if not getattr(arguments, name) > 0:
            raise ValueError(f"--{name.replace('_', '-')} must be positive")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _ProgressLine:
    """One line on stderr: rewritten in a terminal, every few seconds elsewhere."""

    def __init__(self, num_sessions: int, num_turns: int) -> None:
        self._num_sessions, self._num_turns = num_sessions, num_turns
        self._live = sys.stderr.isatty()
        self._next_s = 0.0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def update(self, progress: "Progress") -> None:
        if progress.elapsed_s < self._next_s:
            return
        self._next_s = progress.elapsed_s + (0.2 if self._live else 5.0)
        text = (
            f"{progress.policy}: {progress.turns_done}/{self._num_turns} turns, "
            f"{progress.sessions_done}/{self._num_sessions} sessions, {progress.elapsed_s:.0f} s"
        )
        end = "\r" if self._live else "\n"
        print(f"{text:<70}", end=end, file=sys.stderr, flush=True)

    def end(self) -> None:
        self._next_s = 0.0
        if self._live:
            print(file=sys.stderr, flush=True)
