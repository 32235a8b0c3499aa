"""`tao bench readiness`: how well the predictors know when a session comes back, on any trace."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tao_coordinator.cli.trace_damage import tell_skipped

if TYPE_CHECKING:
    from tao_coordinator.bench.readiness import PredictorResult, ReadinessResult


def register(benchmarks: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the benchmark."""
    parser = benchmarks.add_parser(
        "readiness",
        help="quality of the readiness predictors on a trace",
        description=(
            "Replays a trace and asks each predictor, before it happens, which calls are about to "
            "end and which sessions are about to return. Durations are visible only once they have "
            "passed; the first third of the questions chooses the threshold, the rest is scored."
        ),
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="file or folder, .gz or not")
    parser.add_argument("--format", help="trace format (default: told by the content)")
    parser.add_argument("--model", help="only sessions of this model")
    parser.add_argument(
        "--predictor", action="append", metavar="NAME", help="repeatable (default: all)"
    )
    parser.add_argument("--horizon", type=float, default=1.0, help="H, seconds (%(default)s)")
    parser.add_argument(
        "--first", type=float, default=40.0, help="ask up to this age, seconds (%(default)s)"
    )
    parser.add_argument("--lanes", type=int, default=32, help="sessions at a time (%(default)s)")
    parser.add_argument(
        "--phases", type=int, default=4, help="pooled series of 1 s ticks (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run `tao bench readiness`."""
    from tao_coordinator.bench import readiness
    from tao_coordinator.traces import files

    if not (0 < arguments.horizon < 1e6 and 0 < arguments.first < 1e6):
        raise ValueError("--horizon and --first must be positive seconds")
    if not (1 <= arguments.lanes <= 10_000 and 1 <= arguments.phases <= 100):
        raise ValueError("--lanes must be 1 to 10000, --phases 1 to 100")
    settings = readiness.ReadinessSettings(
        horizon_s=arguments.horizon,
        first_s=arguments.first,
        lanes=arguments.lanes,
        phases=arguments.phases,
        model=arguments.model,
        predictors=tuple(arguments.predictor or readiness.PREDICTORS),
    )
    trace = files.load(arguments.trace, arguments.format)
    tell_skipped(trace.skipped)
    result = readiness.run(trace, settings, lambda text: print(text, file=sys.stderr))
    if arguments.json:
        print(json.dumps({"format": trace.format, **result.to_json()}, indent=2))
    else:
        _show(result)
    return 0


def _show(result: "ReadinessResult") -> None:
    print(f"{result.num_sessions} sessions, {result.num_calls} tool calls")
    for name, predictor in result.predictors.items():
        print(f"\n{name}")
        _show_predictor(predictor)


def _show_predictor(result: "PredictorResult") -> None:
    print("  ready within H               n   base     F1    AUC  Brier  calib.error  threshold")
    rows = {
        "calls, 1 s ticks": result.calls_at_ticks,
        "calls, at events": result.calls_at_events,
        "sessions, 1 s ticks": result.sessions_at_ticks,
        **{f"  {tool}": score for tool, score in result.by_tool.items()},
    }
    for label, score in rows.items():
        print(
            f"  {label[:21]:21}{score.count:9}  {score.base_rate:5.3f}  {score.f1:5.3f}  "
            f"{score.auc:5.3f}  {score.brier:5.3f}  {score.calibration_error:11.3f}  "
            f"{score.threshold:9.2f}"
        )
    start = result.at_start
    print(
        f"  at start: {start.count} calls, MAE {start.mae_s:.3f} s, within 0.5 s "
        f"{start.close_share:.1%}, inside the 90 % interval {start.covered_share:.1%}"
    )
    print(f"  cost: {result.update_us:.1f} us per event, {result.query_us:.1f} us per question")
