"""`tao bench`: measure the product on this machine."""

import argparse
import json
import sys

from tao_coordinator.cli import bench_events, bench_readiness, bench_sdk


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the sub-command and its benchmarks."""
    parser = subparsers.add_parser("bench", help="measure the product on this machine")
    benchmarks = parser.add_subparsers(metavar="BENCHMARK", required=True)
    _register_lease(benchmarks)
    _register_relay(benchmarks)
    _register_decision(benchmarks)
    bench_readiness.register(benchmarks)
    bench_sdk.register(benchmarks)
    bench_events.register(benchmarks)


def _register_lease(benchmarks: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    lease = benchmarks.add_parser(
        "lease",
        help="latency of a resident lease on loopback",
        description=(
            "Starts a coordinator and two simulated backends and measures lease and release of "
            "resident sessions over one keep-alive connection, beside GET /healthz on the same. "
            "Then the turns that one process schedules per second over 32 connections, beside the "
            "calls per second through a Starlette + httpx proxy, and by lease with a journal."
        ),
    )
    lease.add_argument("--sessions", type=int, default=1000, help="live sessions (%(default)s)")
    lease.add_argument(
        "--crowd",
        type=int,
        default=500,
        help="sessions that wait while the second part is measured; 0: none (%(default)s)",
    )
    lease.add_argument("--calls", type=int, default=5000, help="measured turns (%(default)s)")
    lease.add_argument(
        "--rounds", type=int, default=4, help="of 500 turns for the rates, 0: none (%(default)s)"
    )
    lease.add_argument("--json", action="store_true", help="print the result as JSON")
    lease.set_defaults(run=run_lease)


def _register_relay(benchmarks: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    relay = benchmarks.add_parser(
        "relay",
        help="cost of a relayed call beside a plain proxy",
        description=(
            "Starts an instant engine, a coordinator and a Starlette + httpx proxy, and measures "
            "added latency and CPU time per call in one run: concurrency 1 and 32, bodies of 2 and "
            "100 kB, streamed and whole."
        ),
    )
    relay.add_argument(
        "--calls", type=int, default=200, help="per target, cell and round (%(default)s)"
    )
    relay.add_argument(
        "--rounds", type=int, default=8, help="alternating between targets (%(default)s)"
    )
    relay.add_argument("--json", action="store_true", help="print the result as JSON")
    relay.set_defaults(run=run_relay)


def _register_decision(benchmarks: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    decision = benchmarks.add_parser(
        "decision",
        help="time and optimality of placement",
        description=(
            "Solves random placement problems with the ladder, beside the published capacity grid "
            "and, if scipy is installed, a MILP solver, in the same run."
        ),
    )
    decision.add_argument(
        "--instances", type=int, default=18, help="problems per line (%(default)s)"
    )
    decision.add_argument(
        "--budget-ms", type=float, default=250, help="CPU time per problem (%(default)s)"
    )
    decision.add_argument("--family", action="append", help="only this family; may be repeated")
    decision.add_argument("--no-large", action="store_true", help="leave out large problems")
    decision.add_argument("--no-milp", action="store_true", help="leave out the MILP solver")
    decision.add_argument("--json", action="store_true", help="print the result as JSON")
    decision.set_defaults(run=run_decision)


def run_lease(arguments: argparse.Namespace) -> int:
    """Run `tao bench lease`."""
    from tao_coordinator.bench import lease, lease_rate

    if arguments.sessions < 1 or arguments.calls < 2:
        raise ValueError("--sessions must be at least 1 and --calls 2")
    if arguments.crowd < 0 or arguments.rounds < 0:
        raise ValueError("--crowd and --rounds must be at least 0")

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    result = lease.run(arguments.sessions, arguments.calls, arguments.crowd, tell)
    rates = lease_rate.run(500, arguments.rounds, tell) if arguments.rounds else None
    if arguments.json:
        document = result.to_json() | {"rates": None if rates is None else rates.to_json()}
        print(json.dumps(document, indent=2))
        return 0
    print(f"{result.num_sessions} live sessions, {result.num_calls} turns, one connection")
    rows = {"lease": result.lease, "release": result.release, "healthz": result.healthz}
    if result.lease_beside_plans is not None:
        rows |= {f"lease, {result.num_held} held": result.lease_beside_plans}
    for name, latency in rows.items():
        print(
            f"{name:18} p50 {latency.p50_ms:6.2f} ms  p99 {latency.p99_ms:6.2f} ms  "
            f"max {latency.max_ms:6.2f} ms"
        )
    if result.num_plans:
        print(f"{result.num_plans} large plans were made meanwhile, in another process")
    print(f"{result.pairs_per_s:.0f} lease+release pairs/s, {result.num_resident} by bypass")
    if rates is not None:
        for line in rates.lines():
            print(line)
    return 0


def run_relay(arguments: argparse.Namespace) -> int:
    """Run `tao bench relay`."""
    from tao_coordinator.bench import relay

    if arguments.calls < 64 or arguments.rounds < 1:
        raise ValueError("--calls must be at least 64 and --rounds at least 1")
    results = relay.run(
        arguments.calls, arguments.rounds, lambda text: print(text, file=sys.stderr)
    )
    if arguments.json:
        print(json.dumps([result.to_json() for result in results], indent=2))
        return 0
    for line in relay.table(results):
        print(line)
    return 0


def run_decision(arguments: argparse.Namespace) -> int:
    """Run `tao bench decision`."""
    from tao_coordinator.bench import decision, decision_problems, decision_report

    if arguments.instances < 1 or arguments.budget_ms <= 0:
        raise ValueError("--instances must be at least 1 and --budget-ms above 0")
    for family in arguments.family or ():
        if family not in decision_problems.FAMILIES:
            known = ", ".join(decision_problems.FAMILIES)
            raise ValueError(f"no family {family!r}; there are {known}")
    settings = decision.Settings(
        num_instances=arguments.instances,
        budget_s=arguments.budget_ms / 1e3,
        families=None if arguments.family is None else tuple(arguments.family),
        with_large=not arguments.no_large,
        with_milp=not arguments.no_milp,
    )
    result = decision.run(settings, lambda text: print(text, file=sys.stderr))
    if arguments.json:
        print(json.dumps(result.to_json(), indent=2))
        return 0
    for line in decision_report.lines(result):
        print(line)
    return 0
