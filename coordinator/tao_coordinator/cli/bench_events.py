"""`tao bench events`: what lifecycle events cost, and what leases cost beside them."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tao_coordinator.bench.events import EventsResult
    from tao_coordinator.bench.lease import Latency


def register(benchmarks: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the benchmark."""
    parser = benchmarks.add_parser(
        "events",
        help="rate and latency of lifecycle events",
        description=(
            "Decodes OTLP requests in this process, then posts events to a coordinator from a"
            " process of its own: one per request, many per request, and at a steady rate while"
            " leases are asked for. Medians of several runs."
        ),
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (%(default)s)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (%(default)s)")
    parser.add_argument("--sessions", type=int, default=1_000, help="live sessions (%(default)s)")
    parser.add_argument("--connections", type=int, default=8, help="of the load (%(default)s)")
    parser.add_argument(
        "--rate", type=float, default=1_000.0, help="events per second, paced (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `tao bench events`."""
    if arguments.runs < 1 or arguments.seconds <= 0 or arguments.rate <= 0:
        raise ValueError("--runs must be at least 1, --seconds and --rate above 0")
    if not (1 <= arguments.sessions <= 99_999 and 1 <= arguments.connections <= 99):
        raise ValueError("--sessions must be in 1..99999 and --connections in 1..99")
    from tao_coordinator.bench import events

    settings = events.Settings(
        num_runs=arguments.runs,
        seconds=arguments.seconds,
        num_sessions=arguments.sessions,
        num_connections=arguments.connections,
        rate=arguments.rate,
    )
    result = events.run(settings, lambda text: print(text, file=sys.stderr))
    if arguments.json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        _print(result)
    return 0


def _print(result: "EventsResult") -> None:
    for decoded in result.decode:
        print(
            f"decode   {decoded.encoding:8} {decoded.num_records:4} per request "
            f"{decoded.events_per_s:9,.0f} events/s of CPU time"
        )
    for load in result.loads:
        low, high = min(load.requests_per_s_runs), max(load.requests_per_s_runs)
        print(
            f"{load.name:8} {load.num_records:4} per request {load.requests_per_s:7,.0f} requests/s"
            f" ({low:,.0f}-{high:,.0f}), {load.events_per_s:9,.0f} events/s"
        )
        print(f"         event to state      {_latency(load.event)}")
        if load.cpu_us_per_request is not None:
            print(f"         coordinator's CPU   {load.cpu_us_per_request:6.0f} us per request")
        if load.lease is not None:
            print(f"         lease meanwhile     {_latency(load.lease)}")
    print(f"lease without events         {_latency(result.lease_alone)}")


def _latency(latency: "Latency") -> str:
    return (
        f"p50 {latency.p50_ms:6.2f} ms  p99 {latency.p99_ms:6.2f} ms  max {latency.max_ms:6.2f} ms"
    )
