"""Asks one backend for its metrics every second and tells the engine what came of it.

A backend that answers anything below 500 is alive, even without metrics; what that means is for the
engine to judge and to warn of. Every wait and every size is bounded.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import httpx2

from tao_coordinator.adapters import vllm
from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendSampled, BackendUnreachable, Event
from tao_coordinator.errors import EngineError, MalformedPage

_log = logging.getLogger(__name__)

POLL_INTERVAL_S: Final = 1.0
POLL_TIMEOUT_S: Final = 2.0
MODELS_INTERVAL_S: Final = 30.0


class BackendPoller:
    """Polls one backend for ever. `dispatch` takes the events, on the same loop."""

    def __init__(
        self,
        backend: BackendConfig,
        client: httpx2.AsyncClient,
        dispatch: Callable[[Sequence[Event]], object],
    ) -> None:
        self._backend = backend
        self._client = client
        self._dispatch = dispatch
        self._name = f"backend {backend.backend_id} ({backend.base_url})"
        self._models_at_s: float | None = None

    async def run(self, first_poll_done: Callable[[], None]) -> None:
        """Poll until cancelled; the first time at once."""
        while True:
            started_s = time.monotonic()
            try:
                event = await self.poll()
            except Exception:  # noqa: BLE001
                # The boundary of this task: a bug met on one page must not end the process.
                _log.exception("%s: the poll failed", self._name)
                event = self._unreachable("the poll failed; see the log")
            try:
                self._dispatch((event,))
            except EngineError:
                # Logged where it happened; this backend's next poll must come all the same.
                _log.debug("%s: sample lost in a failed step", self._name)
            first_poll_done()
            elapsed_s = time.monotonic() - started_s
            await asyncio.sleep(max(0.05, POLL_INTERVAL_S - elapsed_s))

    async def poll(self) -> BackendSampled | BackendUnreachable:
        """One poll, at most `POLL_TIMEOUT_S` long. Never raises for what a peer can do."""
        backend_id = self._backend.backend_id
        try:
            async with asyncio.timeout(POLL_TIMEOUT_S):
                status, page = await self._get("/metrics", vllm.PAGE_BYTES_MAX)
                if status >= 500:
                    return self._unreachable(f"HTTP {status} on /metrics")
                models = await self._models()
        except TimeoutError:
            return self._unreachable(f"no answer within {POLL_TIMEOUT_S:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL, MalformedPage, OSError) as error:
            return self._unreachable(_reason(error))
        text = page.decode("utf-8", errors="replace") if status == 200 else ""
        return vllm.sample_from_page(backend_id, text, models)

    async def _models(self) -> tuple[str, ...] | None:
        """Served names when it is time to ask, else `None`."""
        now_s = time.monotonic()
        if self._models_at_s is not None and now_s - self._models_at_s < MODELS_INTERVAL_S:
            return None
        status, body = await self._get("/v1/models", vllm.MODELS_BYTES_MAX)
        self._models_at_s = now_s
        if status != 200:
            return ()
        try:
            return vllm.models_from_reply(body)
        except MalformedPage as error:
            _log.warning("%s: %s; taken to serve every model", self._name, error)
            return ()

    async def _get(self, path: str, limit_bytes: int) -> tuple[int, bytes]:
        body = bytearray()
        key = self._backend.api_key
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        url = self._backend.base_url + path
        async with self._client.stream("GET", url, headers=headers) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit_bytes:
                    raise MalformedPage(f"{path} is larger than {limit_bytes} bytes")
            return response.status_code, bytes(body)

    def _unreachable(self, reason: str) -> BackendUnreachable:
        _log.debug("%s: %s", self._name, reason)
        # Whoever comes back may serve other models.
        self._models_at_s = None
        return BackendUnreachable(backend_id=self._backend.backend_id, reason=reason)


def _reason(error: Exception) -> str:
    """One line: the operating system's own words where they are at the bottom of the chain."""
    text = str(error) or type(error).__name__
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            break
        if isinstance(cause, OSError) and cause.strerror:
            text = cause.strerror
        cause = cause.__cause__ or cause.__context__
    return text.splitlines()[0][:200]
