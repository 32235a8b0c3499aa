"""`tao top`: the coordinator at a glance, in a terminal."""

import argparse
import contextlib
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tao_coordinator.cli.coordinator_api import CallError, CoordinatorApi, add_flags

_CLEAR: Final = "\x1b[H\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

Document = Mapping[str, Any]


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "top",
        help="show backends, the waiting pool and sessions, live",
        description=(
            "Show backends, the waiting pool and the busiest sessions of a running coordinator,"
            " again and again until Ctrl-C; once where the output is no terminal. The same in a"
            " browser: the coordinator's address."
        ),
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="default %(default)s"
    )
    parser.add_argument("--once", action="store_true", help="show it once and exit")
    parser.add_argument("--json", action="store_true", help="print the document once, as JSON")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show it."""
    if not arguments.interval > 0:
        raise ValueError("--interval must be above 0")
    api = CoordinatorApi(arguments)
    if arguments.json:
        print(json.dumps(api.call("GET", "/tao/v1/overview"), indent=2))
    elif arguments.once or not sys.stdout.isatty():
        size = shutil.get_terminal_size((120, 60))
        print("\n".join(lines(api.call("GET", "/tao/v1/overview"), size.columns, 1_000)))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _show_for_ever(api, arguments.interval)
    return 0


def _show_for_ever(api: CoordinatorApi, interval_s: float) -> None:
    sys.stdout.write(_HIDE_CURSOR)
    try:
        while True:
            columns, rows = shutil.get_terminal_size()
            try:
                shown = lines(api.call("GET", "/tao/v1/overview"), columns, rows - 1)
            except CallError as error:
                if error.status in (401, 404):
                    raise
                shown = [f"{api.endpoint}: {error}"[:columns], "trying again; Ctrl-C to leave"]
            sys.stdout.write(_CLEAR + "\n".join(shown))
            sys.stdout.flush()
            time.sleep(interval_s)
    finally:
        sys.stdout.write(_SHOW_CURSOR + "\n")


def lines(shown: Document, columns: int, rows: int) -> list[str]:
    """The picture as text.

    Args:
        shown: The document of `GET /tao/v1/overview`.
        columns: Longer lines are cut.
        rows: At most as many lines; sessions give way first, then the waiting pool.
    """
    phases = shown["phases"]
    text = [
        f"tao {shown['version']} · policy {shown['policy']} · up {seconds(shown['uptime_s'])}",
        f"{shown['num_held']} waiting ({shown['num_overdue']} overdue,"
        f" longest {seconds(shown['longest_hold_s'])})"
        f" · {shown['num_sessions']} sessions: {phases['inference']} in a model call,"
        f" {phases['tool']} in a tool, {phases['wait']} waiting for a person,"
        f" {phases['idle']} idle",
        "",
    ]
    text += table(
        ("BACKEND", "HEALTH", "USED", "OF BUDGET", "LEASES", "SEATS", "RUNS/QUEUES", "CORRECTION"),
        [_backend(backend) for backend in shown["backends"]],
    ) or ["no backend"]
    held = table(
        ("#", "WAITING", "KIND", "WAITED", "PROMPT", "WHY"),
        [_held(number, turn) for number, turn in enumerate(shown["held"], start=1)],
    )
    sessions = table(
        ("SESSION", "DOES", "TOOLS", "HOME", "CONTEXT", "TURNS", "BACK IN"),
        [_session(session) for session in shown["sessions"]],
    )
    journal = shown.get("journal")
    if journal and journal["rows_dropped"]:
        why = f": {journal['error']}" if journal["error"] else ", it is written again"
        text.insert(2, f"journal: {journal['rows_dropped']:,} rows lost{why}")
    # Half of what is left for the waiting pool, if there are sessions to show below it.
    left = max(0, rows - len(text) - 2)
    text += ["", *held[: left // 2 if sessions else left]] if held else ["", "nobody waits"]
    text += ["", *sessions]
    return [line[:columns].rstrip() for line in text[:rows]]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need; nothing where there is no row."""
    if not rows:
        return []
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (head, *rows)
    ]


def seconds(value: float | None) -> str:
    """A duration for people."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def _backend(backend: Document) -> tuple[str, ...]:
    budget, used = backend["budget_tokens"], backend["committed_tokens"]
    health = "draining" if backend["draining"] else "healthy"
    running, waiting = backend["running"], backend["waiting"]
    return (
        _name(backend["backend_id"]),
        health if backend["healthy"] else "SILENT",
        f"{used:,}",
        f"{budget:,} ({used / budget:.0%})" if budget else "unknown",
        str(backend["num_in_flight"]),
        str(backend["num_seats"]),
        "-" if running is None else f"{running}/{waiting}",
        f"x{backend['capacity_factor']:.2f}",
    )


def _held(number: int, turn: Document) -> tuple[str, ...]:
    kind = "OVERDUE" if turn["overdue"] else "started" if turn["started"] else "new"
    return (
        str(number),
        _name(turn["session_id"]),
        kind,
        seconds(turn["hold_s"]),
        f"{turn['input_tokens']:,}",
        turn["because"].replace("_", " "),
    )


def _session(session: Document) -> tuple[str, ...]:
    tools = ", ".join(f"{tool['name']} {seconds(tool['age_s'])}" for tool in session["open_tools"])
    back = session["expected_return"]
    return (
        _name(session["session_id"]),
        session["phase"],
        _name(tools) or "-",
        (session["seat_backend_id"] or "-") + (" (released)" if session["seat_released"] else ""),
        f"{session['context_tokens']:,}",
        str(session["turns"]),
        "-" if back is None else f"{seconds(back['median_s'])} ({back['source']})",
    )


def _name(text: str) -> str:
    """Names come from outside: nothing in them may steer a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:40])
