"""`tao doctor`: is the fleet set up so that scheduling can work, seen from this machine?"""

import argparse
import asyncio
import dataclasses
import json
from typing import TYPE_CHECKING, cast

from tao_coordinator.cli.coordinator_api import CallError, CoordinatorApi, add_flags

if TYPE_CHECKING:
    from tao_coordinator.config import BackendConfig
    from tao_coordinator.service.doctor import Examination

EXIT_FINDINGS = 1
EXAMINED_AT_ONCE = 16


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="check coordinator and backends, with the fix for each finding",
        description=(
            "Check that the coordinator answers and that every backend can be reached from this"
            " machine, is of a known kind, reports its KV capacity, caches prefixes and tells"
            " cached tokens. Exit status 1 when there is something to mend."
        ),
    )
    parser.add_argument(
        "--backend",
        action="append",
        metavar="URL",
        help="check this engine instead of the coordinator's; repeatable",
    )
    parser.add_argument(
        "--no-calls",
        action="store_true",
        help="look only; without it each backend gets two chat calls of one token",
    )
    parser.add_argument("--json", action="store_true", help="findings as one JSON object")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine everything; returns the exit status."""
    backends, coordinator = _backends(arguments)
    examined = asyncio.run(_examine(backends, calls_model=not arguments.no_calls))
    num_findings = sum(len(one.findings) for one in examined) + len(coordinator["findings"])
    if arguments.json:
        document = {
            "coordinator": coordinator if arguments.backend is None else None,
            "backends": [dataclasses.asdict(one) for one in examined],
        }
        print(json.dumps(document))
    else:
        _print(arguments, coordinator, examined)
    return EXIT_FINDINGS if num_findings else 0


def _backends(
    arguments: argparse.Namespace,
) -> "tuple[list[BackendConfig], dict[str, list[str]]]":
    """Whom to examine, and what is wrong with the coordinator itself."""
    from tao_coordinator.service.backend_settings import backends_of

    if arguments.backend is not None:
        urls: list[str] = arguments.backend
        return [b for url in urls for b in backends_of({"base_url": url})], {"findings": []}
    api = CoordinatorApi(arguments)
    found: list[str] = []
    try:
        listed = cast("list[dict[str, object]]", api.call("GET", "/tao/v1/backends")["backends"])
    except CallError as error:
        return [], {"findings": [str(error)]}
    backends: list[BackendConfig] = []
    for shown in listed:
        settings = dict(cast("dict[str, object]", shown["settings"]))
        if settings.pop("has_api_key", False) and not arguments.no_calls:
            found.append(
                f"{shown['backend_id']} asks for a credential that only the coordinator has:"
                " agents reach it through the relay only; try --no-calls"
            )
        table = {"backend_id": shown["backend_id"], "base_url": shown["base_url"], **settings}
        backends += backends_of(table)
    if not backends:
        found.append("the coordinator has no backend: add one with --backend or the admin API")
    return backends, {"findings": found}


async def _examine(backends: "list[BackendConfig]", *, calls_model: bool) -> "list[Examination]":
    import httpx2

    from tao_coordinator.service.doctor import examine

    gate = asyncio.Semaphore(EXAMINED_AT_ONCE)
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(5.0), trust_env=False) as client:

        async def one(backend: "BackendConfig") -> "Examination":
            async with gate:
                return await examine(backend, client, calls_model=calls_model)

        return await asyncio.gather(*(one(backend) for backend in backends))


def _print(
    arguments: argparse.Namespace,
    coordinator: dict[str, list[str]],
    examined: "list[Examination]",
) -> None:
    if arguments.backend is None:
        endpoint = CoordinatorApi(arguments).endpoint
        print(f"coordinator {endpoint}: {'see below' if coordinator['findings'] else 'good'}")
        for finding in coordinator["findings"]:
            print(f"  ! {finding}")
    for one in examined:
        kind = one.engine_kind or "no answer"
        size = "capacity unknown"
        if one.capacity_tokens is not None:
            size = f"{one.capacity_tokens:,} tokens"
        models = ", ".join(one.models[:3]) or "models unknown"
        verdict = "see below" if one.findings else "good"
        print(f"{one.backend_id} {one.base_url}: {kind}, {size}, {models}: {verdict}")
        for finding in one.findings:
            print(f"  ! {finding.message}\n    {finding.fix} [{finding.code}]")
