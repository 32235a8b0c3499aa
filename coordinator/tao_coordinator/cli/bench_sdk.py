"""`tao bench sdk`: what the SDK costs an agent's own thread."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tao_coordinator.bench.sdk import SdkResult


def register(benchmarks: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the benchmark."""
    parser = benchmarks.add_parser(
        "sdk",
        help="what the SDK costs an agent's own thread",
        description=(
            "Starts a simulated backend and a coordinator, and an agent that measures: model calls "
            "of a wrapped OpenAI client beside those of a bare one, in turns, without contention; "
            "tool events; the import. Medians of one run."
        ),
    )
    parser.add_argument("--calls", type=int, default=300, help="calls in each way (%(default)s)")
    parser.add_argument("--events", type=int, default=2000, help="events (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `tao bench sdk`."""
    from tao_coordinator.bench import sdk

    if arguments.calls < 1 or arguments.events < 2:
        raise ValueError("--calls must be at least 1 and --events at least 2")
    result = sdk.run(arguments.calls, arguments.events, lambda text: print(text, file=sys.stderr))
    if arguments.json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        _show(result)
    return 0


def _show(result: "SdkResult") -> None:
    from tao_coordinator.bench import sdk

    print(f"model call, ms ({result.num_calls} each)    bare  wrapped   added  of it CPU  ratio")
    for name, cost in result.call_ms.items():
        print(
            f"  {name:28}{cost.bare:8.2f} {cost.wrapped:8.2f}{cost.added:8.2f}"
            f"{cost.added_cpu:11.2f}  {cost.ratio:5.2f}   added <= {sdk.CALL_MS_MAX}"
        )
    print(f"event, us ({result.num_events})")
    for name, cost_us in result.event_us.items():
        print(f"  {name:28}{cost_us:8.1f}{'':26}<= {sdk.EVENT_US_MAX:.0f}")
    print("import, ms")
    for name, cost_ms in result.import_ms.items():
        reach = f"<= {sdk.IMPORT_MS_MAX:.0f}" if name == "tao_client" else "the bare client"
        print(f"  {name:28}{cost_ms:8.1f}{'':26}{reach}")
    print(f"{result.num_granted} leases and {result.num_tool_starts} tool calls told")
