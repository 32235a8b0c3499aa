"""One look at one backend over HTTP: which engine it is, what it says, which models it serves.

Every wait and every size is bounded; whatever a peer does ends in a `Look` or a `ProbeError`.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Final

import httpx2

from tao_coordinator.adapters.engines import catalogue, openai_models
from tao_coordinator.adapters.engines.reading import EngineReading, Source
from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import CoordinatorError, MalformedPage

POLL_TIMEOUT_S: Final = 2.0
PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
MODELS_BYTES_MAX: Final = 1024 * 1024
MODELS_INTERVAL_S: Final = 30.0
"""Between two questions for the served models, and between two for a better page."""


class ProbeError(CoordinatorError):
    """The backend gave no usable answer; the message says why in one line.

    Attributes:
        is_refused: Nobody listens there: no need to wait for more failures to believe it.
    """

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look told."""

    kind: str
    """Engine kind; `openai` while no metrics page was found."""
    source: Source | None
    reading: EngineReading
    models: tuple[str, ...] | None
    """`None`: not asked this time; empty: the backend does not say."""
    problem: str = ""
    """What is wrong with an answer that was good enough."""


class Probe:
    """Looks at one backend again and again; remembers which page is the right one."""

    def __init__(self, backend: BackendConfig, client: httpx2.AsyncClient) -> None:
        self._backend = backend
        self._client = client
        self._metrics_root = (backend.metrics_url or backend.base_url).rstrip("/")
        # A gateway's own page counts the requests of every engine behind it.
        has_page = backend.gateway is None or backend.metrics_url is not None
        self._paths = catalogue.paths_of(backend.engine_kind) if has_page else ()
        self._source: Source | None = None
        self._searched_s: float | None = None
        self._models_at_s: float | None = None
        self._problem = ""

    async def look(self) -> Look:
        """Ask once, at most `POLL_TIMEOUT_S` long.

        Raises:
            ProbeError: No answer, an error of the server, or one beyond every bound.
        """
        try:
            async with asyncio.timeout(POLL_TIMEOUT_S):
                return await self._look()
        except TimeoutError:
            self._forget()
            raise ProbeError(f"no answer within {POLL_TIMEOUT_S:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, MalformedPage, OSError) as error:
            self._forget()
            raise ProbeError(
                _reason(error), is_refused=_has_cause(error, ConnectionRefusedError)
            ) from error
        except ProbeError:
            self._forget()
            raise

    async def _look(self) -> Look:
        source, text = await self._page()
        models = await self._models(must=text is None)
        rank = self._backend.data_parallel_rank
        reading = EngineReading() if source is None or not text else source.read(text, rank)
        if reading.is_asleep:
            raise ProbeError("the engine is asleep (POST /wake_up wakes it)")
        kind = self._backend.engine_kind
        if kind == "auto":
            kind = openai_models.KIND if source is None else source.kind
        return Look(kind=kind, source=source, reading=reading, models=models, problem=self._problem)

    async def _page(self) -> tuple[Source | None, str | None]:
        """The right page and its text; text `None`: nothing was asked that proves life."""
        if self._source is not None:
            status, text = await self._text(self._source.path)
            if status == 200:
                return self._source, text
            self._source = None
        now_s = time.monotonic()
        if self._searched_s is not None and now_s - self._searched_s < MODELS_INTERVAL_S:
            return None, None
        self._searched_s = now_s
        return await self._search()

    async def _search(self) -> tuple[Source | None, str | None]:
        """Try every page; one that only serves until a better one is there is taken last."""
        second_best: tuple[Source, str] | None = None
        alive: str | None = None
        for path in self._paths:
            status, text = await self._text(path)
            if status != 200:
                continue
            alive = ""
            source = catalogue.source_of(self._backend.engine_kind, path, text)
            if source is None:
                continue
            if not source.hint:
                self._source = source
                return source, text
            second_best = second_best or (source, text)
        if second_best is not None:
            self._source = second_best[0]
            return second_best
        return None, alive

    async def _text(self, path: str) -> tuple[int, str]:
        status, body = await self._get(self._metrics_root, path, PAGE_BYTES_MAX)
        if status >= 500:
            raise ProbeError(f"HTTP {status} on {path.partition('?')[0]}")
        return status, body.decode("utf-8", errors="replace")

    async def _models(self, *, must: bool) -> tuple[str, ...] | None:
        """Served names when it is time to ask, or when nothing else shows that it lives."""
        now_s = time.monotonic()
        is_due = self._models_at_s is None or now_s - self._models_at_s >= MODELS_INTERVAL_S
        if not (is_due or must):
            return None
        root = self._backend.base_url.rstrip("/")
        status, body = await self._get(root, openai_models.PATH, MODELS_BYTES_MAX)
        if status >= 500:
            raise ProbeError(f"HTTP {status} on {openai_models.PATH}")
        if not is_due:
            return None
        self._models_at_s = now_s
        self._problem = ""
        if status != 200:
            return ()
        try:
            return openai_models.models_from_reply(body)
        except MalformedPage as error:
            self._problem = f"{error}; taken to serve every model"
            return ()

    async def _get(self, root: str, path: str, limit_bytes: int) -> tuple[int, bytes]:
        body = bytearray()
        # Never compressed: a small answer could unpack to any size.
        headers = {"accept-encoding": "identity"}
        if self._backend.api_key is not None:
            headers["authorization"] = f"Bearer {self._backend.api_key}"
        async with self._client.stream("GET", root + path, headers=headers) as response:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise MalformedPage(f"{path} comes as {encoding}, which nobody asked for")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > limit_bytes:
                    raise MalformedPage(f"{path} is larger than {limit_bytes} bytes")
            return response.status_code, bytes(body)

    def _forget(self) -> None:
        """Whoever comes back may be another engine with other models."""
        self._source = None
        self._searched_s = None
        self._models_at_s = None


def _reason(error: Exception) -> str:
    """One line: the operating system's own words where they are at the bottom of the chain."""
    text = str(error) or type(error).__name__
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            # Not its own text: asyncio puts addresses in there.
            text = os.strerror(cause.errno)
    return text.splitlines()[0][:200]


def _has_cause(error: Exception, kind: type[BaseException]) -> bool:
    return any(isinstance(cause, kind) for cause in _chain(error))


def _chain(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and len(chain) < 10:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
