"""`tao drain`: take a backend out of service without breaking a turn."""

import argparse
import dataclasses
import json
import shlex
import sys
import time
from typing import cast

from tao_coordinator.cli.coordinator_api import CallError, CoordinatorApi, add_flags

EXIT_STILL_BUSY = 1
LOOK_INTERVAL_S = 1.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "drain",
        help="take a backend out of service without breaking a turn",
        description=(
            "Send no new turn to a backend and wait until the last one there has ended; its"
            " sessions go on elsewhere. After that the coordinator has forgotten it. Ctrl-C stops"
            " the waiting, not the draining."
        ),
    )
    parser.add_argument("backend_id", metavar="ID", help="as listed in GET /tao/v1/backends")
    parser.add_argument(
        "--wait",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="exit with status 1 when turns still run after this (default 600; 0: do not wait)",
    )
    parser.add_argument("--json", action="store_true", help="say how it ended as one line of JSON")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Drain one backend; 0 once it is empty."""
    api = CoordinatorApi(arguments)
    path = f"/tao/v1/backends/{arguments.backend_id}"
    started_s = time.monotonic()
    shown = api.call("DELETE", path)
    num_turns = _num_turns(shown)
    is_gone = False
    while not is_gone and time.monotonic() - started_s < arguments.wait:
        time.sleep(LOOK_INTERVAL_S)
        try:
            shown_now = api.call("GET", path)
        except CallError as error:
            if error.status != 404:
                raise
            is_gone = True
        else:
            if _num_turns(shown_now) != num_turns:
                num_turns = _num_turns(shown_now)
            print(f"{arguments.backend_id}: {num_turns} turns still run there", file=sys.stderr)
    _tell(arguments, api, shown, is_gone=is_gone, num_turns=num_turns)
    return 0 if is_gone or arguments.wait == 0 else EXIT_STILL_BUSY


def _tell(
    arguments: argparse.Namespace,
    api: CoordinatorApi,
    shown: dict[str, object],
    *,
    is_gone: bool,
    num_turns: int,
) -> None:
    backend_id: str = arguments.backend_id
    if arguments.json:
        num_left = 0 if is_gone else num_turns
        print(json.dumps({"backend_id": backend_id, "drained": is_gone, "turns_left": num_left}))
        return
    if not is_gone:
        print(f"{backend_id} drains; {num_turns} turns still run there")
        return
    print(f"{backend_id} is empty and out of service. To bring it back:")
    key = ' -H "authorization: Bearer $TAO_API_KEY"' if api.has_key else ""
    body = shlex.quote(json.dumps(_settings(shown)))
    print(
        f"  curl {api.endpoint}/tao/v1/backends{key} -H 'content-type: application/json' -d {body}"
    )


def _settings(shown: dict[str, object]) -> dict[str, object]:
    """What the backend was added with, as far as it was not left at its default."""
    from tao_coordinator.config import BackendConfig

    defaults = {field.name: field.default for field in dataclasses.fields(BackendConfig)}
    settings = cast("dict[str, object]", shown.get("settings") or {})
    told = {"backend_id": shown.get("backend_id"), "base_url": shown.get("base_url")}
    if settings.pop("has_api_key", False):
        told["api_key"] = "THE ENGINE'S KEY"
    return told | {key: value for key, value in settings.items() if value != defaults.get(key)}


def _num_turns(shown: dict[str, object]) -> int:
    state = shown.get("state")
    number = cast("dict[str, object]", state).get("num_in_flight") if state else 0
    return number if isinstance(number, int) else 0
