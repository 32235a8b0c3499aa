"""A modelled backend on a free port, in a thread of the test process."""

import asyncio
import contextlib
import threading
from collections.abc import Generator
from fractions import Fraction

from tao_coordinator.service.sim_backend.scripts import ScriptLibrary
from tao_coordinator.service.sim_backend.server import SimBackendServer, bind
from tao_coordinator.service.sim_backend.settings import BODY_BYTES_MAX, SimBackendSettings
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS


def sim_settings(
    *,
    capacity_tokens: int = 307_000,
    context_tokens_max: int = 131_072,
    chars_per_token: str = "4",
    time_scale: float = 20.0,
    scripts: ScriptLibrary | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> SimBackendSettings:
    return SimBackendSettings(
        constants=PRESETS[DEFAULT_PRESET],
        capacity_tokens=capacity_tokens,
        chars_per_token=Fraction(chars_per_token),
        time_scale=time_scale,
        model="sim/test",
        context_tokens_max=min(context_tokens_max, capacity_tokens),
        scripts=scripts or ScriptLibrary(),
        body_bytes_max=body_bytes_max,
    )


@contextlib.contextmanager
def running_sim_backend(settings: SimBackendSettings) -> Generator[SimBackendServer]:
    listening = threading.Event()
    with bind(settings.host, settings.port) as listener:
        server = SimBackendServer(settings, listener, lambda _url, _model: listening.set())

        def serve() -> None:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(server.serve(sockets=[listener]))

        thread = threading.Thread(target=serve, name="sim-backend")
        thread.start()
        try:
            assert listening.wait(20), "the server did not start"
            yield server
        finally:
            server.request_exit()
            thread.join(20)
            assert not thread.is_alive(), "the server did not end"
