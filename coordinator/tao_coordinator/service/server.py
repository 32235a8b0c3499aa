"""One coordinator process: socket, signals, start, shutdown.

The first SIGTERM or SIGINT answers held turns with 503 and lets running answers finish; the second
ends the process at once; and whatever hangs, a watchdog ends it within `EXIT_S_MAX`.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from types import FrameType
from typing import Final

import httpx2
import uvicorn
from prometheus_client import disable_created_metrics
from starlette.types import ASGIApp

from tao_coordinator.config import CoordinatorConfig
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.app import build_app
from tao_coordinator.service.backend_sources import start_sources
from tao_coordinator.service.backends_file import BackendsFile
from tao_coordinator.service.history_file import HistoryFile
from tao_coordinator.service.http_protocol import BoundedHttpProtocol
from tao_coordinator.service.journal.journal import Journal, JournalCollector
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.plan_worker import PlanWorker
from tao_coordinator.service.relay.routes import Relay
from tao_coordinator.service.roster import Roster
from tao_coordinator.service.runtime import DecisionEngine, Runtime
from tao_coordinator.service.view_routes import installed_version

_log = logging.getLogger(__name__)

EXIT_S_MAX: Final = 9.0
"""After the first signal the process is gone within this, whatever happens."""
GRACE_S: Final = 7
"""Answers under way may take this long after the first signal."""
FIRST_POLLS_S_MAX: Final = 1.0
"""Serving starts once every backend was asked, or after this."""
KEEP_ALIVE_S: Final = 75
"""Longer than clients keep idle connections, so that they close first and never race."""
BACKLOG: Final = 2048
KEPT_CONNECTIONS_MAX: Final = 1_024
"""Idle connections to backends that are kept for the next poll."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket's address, taken before anything else starts.

    Raises:
        ConfigurationError: The address is taken, not allowed or not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Listening now makes a second coordinator fail here and not later.
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(f"cannot listen on {host}:{port}: {reason}") from error
    listener.setblocking(False)
    return listener


def serve(
    config: CoordinatorConfig,
    engine: DecisionEngine,
    on_listening: Callable[[str], None],
) -> int:
    """Serve until a signal comes.

    Args:
        config: The process's configuration.
        engine: The decision engine, without backends yet.
        on_listening: Called with the URL once connections are accepted.

    Returns:
        The exit status: 0 after SIGTERM, 130 after SIGINT.

    Raises:
        ConfigurationError: The address cannot be listened on.
    """
    _raise_file_limit()
    _collect_seldom()
    # One extra series per counter that nobody reads.
    disable_created_metrics()
    listener = bind(config.host, config.port)
    metrics = ServiceMetrics()
    with listener, _journal(config, engine, metrics) as journal:
        history = None if config.state_dir is None else HistoryFile(Path(config.state_dir))
        if history is not None and history.load(engine.recall):
            _log.info("durations learned earlier were read from %s", history.path)
        runtime = Runtime(engine, metrics, journal=journal)
        roster = Roster(runtime.dispatch)
        file = None if config.backends_file is None else BackendsFile(Path(config.backends_file))
        relay = Relay(runtime, roster.configs, config, metrics)
        server = _Server(
            _uvicorn_config(build_app(runtime, metrics, config.api_key, relay, roster)),
            runtime,
            lambda: on_listening(_url(config.host, listener)),
        )
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            keep = None if history is None else lambda: history.keep(engine.learned)
            try:
                runner.run(_serve(config, runtime, roster, file, server, listener, keep))
            finally:
                runner.run(relay.close())
        if history is not None:
            history.save(engine.learned())
    return 130 if server.exit_signal == signal.SIGINT else 0


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
    )


@contextlib.contextmanager
def _journal(
    config: CoordinatorConfig, engine: DecisionEngine, metrics: ServiceMetrics
) -> Generator[Journal | None, None, None]:
    if config.journal_dir is None:
        yield None
        return
    journal = Journal(
        Path(config.journal_dir),
        config.journal_bytes_max,
        engine.has_lease,
        facts={"written_by": f"tao coordinator {installed_version()}", "policy": config.policy},
        time_scale=config.time_scale,
    )
    metrics.registry.register(JournalCollector(journal.state))
    try:
        yield journal
    finally:
        journal.close()


async def _serve(
    config: CoordinatorConfig,
    runtime: Runtime,
    roster: Roster,
    file: BackendsFile | None,
    server: "_Server",
    listener: socket.socket,
    keep: Callable[[], Coroutine[None, None, None]] | None,
) -> None:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS_MAX)
    timeout = httpx2.Timeout(2.0)
    async with (
        httpx2.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as client,
        asyncio.TaskGroup() as group,
    ):
        roster.open(client, group)
        background = await start_sources(config, roster, file, group)
        planner = PlanWorker(runtime.dispatch)
        runtime.make_plans_with(planner.order)
        background.append(group.create_task(planner.run(), name="make plans"))
        if keep is not None:
            background.append(group.create_task(keep(), name="keep durations"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(roster.settle(), FIRST_POLLS_S_MAX)
        try:
            await server.serve(sockets=[listener])
        finally:
            runtime.close()
            roster.close()
            for task in background:
                task.cancel()


class _Server(uvicorn.Server):
    """uvicorn with this process's own signals and start message."""

    def __init__(
        self, config: uvicorn.Config, runtime: Runtime, on_listening: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._runtime = runtime
        self._on_listening = on_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self.exit_signal: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        self._on_listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn's own version raises the signal again at the end, which turns a clean shutdown
        # into death by signal.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.exit_signal is not None:
            os._exit(128 + sig)
        self.exit_signal = sig
        self.should_exit = True
        watchdog = threading.Timer(EXIT_S_MAX, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._runtime.begin_shutdown)


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _collect_seldom() -> None:
    """Keep the garbage collector from walking everything alive: 60-140 ms at 1,000 sessions.

    Sessions, calls and ids are freed by reference counting; the few cycles (failed requests) can
    wait. What was imported by now stays for good and is never looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _raise_file_limit() -> None:
    """Every held turn is an open connection; the usual soft limit is 1,024 files."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(65_536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
