"""`tao replay`: what other policies would have made of a recorded trace."""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tao_coordinator.cli.engine_choice import add_engine_option, engine_of
from tao_coordinator.cli.seeds import read_seeds
from tao_coordinator.cli.trace_damage import tell_skipped
from tao_coordinator.errors import ConfigurationError

if TYPE_CHECKING:
    from tao_coordinator.replay.findings import Findings
    from tao_coordinator.replay.plan import ReplayPlan, ReplaySettings


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "replay",
        help="run recorded sessions again under other policies, on modelled engines",
        description=(
            "Takes the sessions of a trace (a coordinator's --journal, own format, "
            "mini-SWE-agent, Claude Code, TraceLab, Weka, Mooncake; a file or a folder) and runs "
            "them in virtual time on modelled engines under each policy: task latency, time to "
            "first token, throughput, where the time went, and how many backends could be saved."
        ),
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="file or folder, .gz or not")
    parser.add_argument(
        "--policy",
        action="append",
        metavar="POLICY",
        help="NAME[@CAPACITY-SCALE][:key=value,...]; repeatable (default: tao, "
        "sticky-least-loaded, cache-aware, thunderagent, tao-paper@0.9)",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page (HTML)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    _add_fleet(parser)
    _add_sessions(parser)
    parser.add_argument("--jobs", type=int, help="processes (default: one per core)")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        help="keep finished runs in FILE and go on from those that are there",
    )
    parser.set_defaults(run=run)


def _add_fleet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backends", type=int, default=2, metavar="N", help="backends (default %(default)s)"
    )
    add_engine_option(parser)
    parser.add_argument(
        "--capacity-tokens",
        type=int,
        metavar="N",
        help="KV pool of a backend (the engine's)",
    )
    parser.add_argument(
        "--capacity-scale",
        type=float,
        metavar="X",
        help="the operator's factor on reported pools, for policies without one of their own",
    )
    parser.add_argument(
        "--same-fleet", action="store_true", help="do not try smaller fleets as well"
    )


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--workers", type=int, metavar="N", help="sessions at a time")
    load.add_argument(
        "--pressure",
        type=float,
        default=1.2,
        metavar="X",
        help="as many sessions at a time as want X times the KV pools (default %(default)s)",
    )
    load.add_argument(
        "--as-arrived",
        action="store_true",
        help="start sessions when they arrived, for traces that tell; stretches of more than 6 h "
        "(or --gap-max, if longer) in which none did are cut to that",
    )
    parser.add_argument(
        "--sessions",
        type=int,
        metavar="N",
        help="draw N sessions at random (default: each recorded one once)",
    )
    parser.add_argument(
        "--shared-tokens",
        type=int,
        default=0,
        metavar="N",
        help="system prompt and tools that all sessions have in common; traces do not tell it",
    )
    parser.add_argument(
        "--gap-max", type=float, default=60.0, metavar="S", help="cut pauses to this (%(default)s)"
    )
    parser.add_argument(
        "--turns-max", type=int, default=1_000, metavar="N", help="cut sessions (%(default)s)"
    )
    parser.add_argument(
        "--context-max",
        type=int,
        default=200_000,
        metavar="TOKENS",
        help="cut a session before the turn that needs more (%(default)s)",
    )
    parser.add_argument("--format", help="trace format (default: told by the content)")
    parser.add_argument("--seeds", default="1", help="comma-separated (default %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Run `tao replay`."""
    from tao_coordinator.replay import findings as reading
    from tao_coordinator.replay.plan import make_plan
    from tao_coordinator.study.sweep import ResultFile, default_jobs, sweep

    if arguments.jobs is not None and arguments.jobs < 1:
        raise ConfigurationError("--jobs must be at least 1")
    report: Path | None = arguments.report
    if report is not None and not report.parent.is_dir():
        raise ConfigurationError(f"--report {report}: there is no folder {report.parent}")
    for flag, file in (("--report", report), ("--keep", arguments.keep)):
        if file is not None and file.exists() and not file.is_file():
            raise ConfigurationError(f"{flag} {file} is no file")
    plan = make_plan(_settings(arguments))
    _tell(plan)
    results = sweep(
        plan.cells,
        ResultFile(arguments.keep, resume=True),
        jobs=arguments.jobs or default_jobs(),
        report=lambda text: print(f"replay: {text}", file=sys.stderr, flush=True),
    )
    found = reading.find(plan, results)
    if arguments.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        _show(found)
    if report is not None:
        # Last: a full disk must not cost what hours of runs have found.
        from tao_coordinator.replay import page

        report.write_text(page.html(found, _command(arguments)), encoding="utf-8")
        print(f"tao: wrote {report}", file=sys.stderr)
    return 0


def _tell(plan: "ReplayPlan") -> None:
    """What is run, and what is left out."""
    from tao_coordinator.simulation.trace_sessions import TURNS_MIN

    tell_skipped(plan.skipped)
    if plan.short_sessions:
        print(
            f"tao: left out: {plan.short_sessions} of"
            f" {plan.short_sessions + plan.recorded_sessions} recorded sessions, with fewer than"
            f" {TURNS_MIN} model calls with known prompts",
            file=sys.stderr,
        )
    if plan.cut_sessions:
        print(
            f"tao: cut: {plan.cut_sessions} sessions that no pool can hold to their end",
            file=sys.stderr,
        )
    if plan.quiet_stretches:
        one = plan.quiet_stretches == 1
        hours = f"{plan.quiet_s_max / 3600:g} h"
        print(
            f"tao: {plan.quiet_stretches} quiet {'stretch' if one else 'stretches'} longer than "
            f"{hours} {'is' if one else 'are'} cut to {hours}",
            file=sys.stderr,
        )
    load = "as they arrived"
    if plan.workers:
        load = f"{plan.workers} at a time, working set {plan.pressure:.2f} x the KV pools asked for"
    print(
        f"tao: recorded sessions: {plan.recorded_sessions}, {load}; runs: {len(plan.cells)}",
        file=sys.stderr,
    )


def _settings(arguments: argparse.Namespace) -> "ReplaySettings":
    from dataclasses import replace

    from tao_coordinator.replay.plan import DEFAULT_POLICIES, ReplaySettings
    from tao_coordinator.study.policy_choice import PolicyChoice
    from tao_coordinator.traces import files

    policies = [PolicyChoice.parse(text) for text in arguments.policy or DEFAULT_POLICIES]
    scale: float | None = arguments.capacity_scale
    if scale is not None:
        if not 0.05 <= scale <= 20.0:
            raise ConfigurationError("--capacity-scale must be between 0.05 and 20")
        policies = [
            replace(policy, capacity_scale=scale) if policy.capacity_scale == 1.0 else policy
            for policy in policies
        ]
    return ReplaySettings(
        trace=str(arguments.trace),
        trace_digest=files.digest(arguments.trace),
        trace_format=arguments.format,
        policies=tuple(policies),
        engine=engine_of(arguments.engine),
        num_backends=arguments.backends,
        capacity_tokens=arguments.capacity_tokens,
        workers=arguments.workers,
        pressure=arguments.pressure,
        as_arrived=arguments.as_arrived,
        sessions=arguments.sessions,
        shared_tokens=arguments.shared_tokens,
        gap_s_max=arguments.gap_max,
        turns_max=arguments.turns_max,
        context_tokens_max=arguments.context_max,
        seeds=read_seeds(arguments.seeds),
        with_fewer_backends=not arguments.same_fleet,
    )


def _show(found: "Findings") -> None:
    """A table for the terminal."""
    print(
        f"{'policy':28}{'task mean s':>12}{'p99':>9}{'TTFT p50':>10}{'p99 s':>8}{'run tok/s':>11}"
        f"{'hit rate':>10}{'hold s':>8}"
    )
    for arm in found.arms:
        measures = arm.measures
        print(
            f"{arm.arm[:27]:28}{arm.task_s.value:12,.0f}{measures['task_s_p99']:9,.0f}"
            f"{measures['ttft_s_p50']:10.2f}{measures['ttft_s_p99']:8.1f}"
            f"{measures['output_tokens_per_s_all']:11,.0f}{measures['hit_rate']:10.3f}"
            f"{measures['hold_started_s_max']:8,.0f}"
        )
    if found.plan.as_recorded is not None:
        print(found.plan.as_recorded.sentence())
    measured = found.working_set()
    if measured is not None:
        asked = f"{found.plan.pressure:.2f} asked for (workers x mean context), "
        print(
            f"Working set over KV pools: {asked if found.plan.workers else ''}"
            f"{measured[1]:.2f} measured under {measured[0]}."
        )
    for sentence in [*found.sentences, *(f"Note: {warning}" for warning in found.warnings)]:
        print(sentence)


def _command(arguments: argparse.Namespace) -> str:
    """What was asked, without the paths of this machine."""
    parts = ["tao", "replay", arguments.trace.name]
    for name in ("policy", "backends", "engine", "workers", "sessions", "shared_tokens", "seeds",
                 "capacity_tokens", "capacity_scale", "gap_max", "turns_max",
                 "context_max", "format"):  # fmt: skip
        value = getattr(arguments, name)
        if name == "engine":
            value = Path(value).name
        for one in value if isinstance(value, list) else [value]:  # pyright: ignore[reportUnknownVariableType]
            if one is not None and (name, one) not in _UNTOLD:
                parts += [f"--{name.replace('_', '-')}", str(one)]  # pyright: ignore[reportUnknownArgumentType]
    if arguments.same_fleet:
        parts.append("--same-fleet")
    if arguments.as_arrived:
        parts.append("--as-arrived")
    elif arguments.workers is None:
        parts += ["--pressure", f"{arguments.pressure:g}"]
    return shlex.join(parts)


_UNTOLD = (
    ("shared_tokens", 0),
    ("gap_max", 60.0),
    ("turns_max", 1_000),
    ("context_max", 200_000),
)
