"""One `tao sim-backend` process: socket, signals, start and end."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType

import uvicorn

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.sim_backend.app import build_app
from tao_coordinator.service.sim_backend.driver import BackendDriver, EngineClock
from tao_coordinator.service.sim_backend.settings import SimBackendSettings
from tao_coordinator.simulation.backend_model import BackendModel

EXIT_INTERRUPTED = 130


def serve(settings: SimBackendSettings, on_listening: Callable[[str, BackendModel], None]) -> int:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: What to serve.
        on_listening: Called once with the base URL and the engine, when requests are accepted.

    Returns:
        The exit status: 0 after SIGTERM, 130 after SIGINT.

    Raises:
        ConfigurationError: The address cannot be used.
    """
    with bind(settings.host, settings.port) as listener:
        server = SimBackendServer(settings, listener, on_listening)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets=[listener]))
    return EXIT_INTERRUPTED if server.exit_signal == signal.SIGINT else 0


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address; port 0 takes a free one.

    Raises:
        ConfigurationError: The address is taken, not allowed or not this machine's.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # create_server adds words of its own to the system's.
        number = error.errno or 0  # below 0: not a system error but a name that is not known
        reason = os.strerror(number) if number > 0 else str(error.strerror)
        raise ConfigurationError(f"cannot listen on {host}:{port}: {reason}") from error
    listener.setblocking(False)
    return listener


class SimBackendServer(uvicorn.Server):
    """uvicorn around one modelled backend, with its own signals and start message."""

    def __init__(
        self,
        settings: SimBackendSettings,
        listener: socket.socket,
        on_listening: Callable[[str, BackendModel], None],
    ) -> None:
        model = BackendModel(
            settings.constants,
            block_size=settings.block_size,
            capacity_tokens=settings.capacity_tokens,
        )
        self.driver = BackendDriver(model, EngineClock(settings.time_scale))
        port = listener.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{port}"
        self.exit_signal: int | None = None
        self._on_listening = on_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(
            uvicorn.Config(
                build_app(settings, self.driver),
                loop="uvloop" if sys.platform != "win32" else "asyncio",
                http="httptools",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)
        self._on_listening(self.url, self.driver.model)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Take SIGTERM and SIGINT; unlike uvicorn, do not raise them again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End: replies under way are cut, then the process goes."""
        self.exit_signal = sig
        self.request_exit()

    def request_exit(self) -> None:
        """End as after a signal; may be called from any thread."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.driver.stop)
