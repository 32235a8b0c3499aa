"""Where backends come from when the process starts, and the tasks that watch for changes."""

import asyncio
import contextlib
from functools import partial
from typing import Final

from tao_coordinator.config import CoordinatorConfig
from tao_coordinator.service.backends_file import BackendsFile
from tao_coordinator.service.dns_backends import DnsBackends
from tao_coordinator.service.roster import Roster

FLAGS: Final = "flags"
FIRST_ANSWERS_S_MAX: Final = 2.0
"""Serving does not wait longer than this for name servers."""


async def start_sources(
    config: CoordinatorConfig,
    roster: Roster,
    file: BackendsFile | None,
    group: asyncio.TaskGroup,
) -> list[asyncio.Task[None]]:
    """Fill the roster and start watching.

    Returns:
        The tasks that watch, to be cancelled at the end.
    """
    roster.sync(FLAGS, config.backends)
    tasks: list[asyncio.Task[None]] = []
    if file is not None:
        roster.sync(file.source, file.first)
        follow = partial(roster.sync, file.source)
        tasks.append(group.create_task(file.watch(follow), name=f"watch {file.path}"))
    names = [DnsBackends(dns) for dns in config.dns_backends]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FIRST_ANSWERS_S_MAX):
            await asyncio.gather(*(_first_answer(roster, name) for name in names))
    tasks += [
        group.create_task(
            name.watch(partial(roster.sync, name.source)), name=f"watch {name.source}"
        )
        for name in names
    ]
    return tasks


async def _first_answer(roster: Roster, name: DnsBackends) -> None:
    backends = await name.resolve()
    if backends is not None:
        roster.sync(name.source, backends)
