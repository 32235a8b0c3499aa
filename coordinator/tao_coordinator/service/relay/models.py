"""`GET /v1/models`: what the backends serve, put together, in the asking client's own form."""

import asyncio
import contextlib
import time
from typing import Final, cast

import aiohttp
import orjson

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import RequestError
from tao_coordinator.service.relay.call import Aliases
from tao_coordinator.service.relay.fleet import Fleet
from tao_coordinator.service.relay.upstream import BackendFailed, Upstream

ASK_S_MAX: Final = 2.0
FRESH_S: Final = 5.0
"""One round of questions answers everybody for this long."""
REPLY_BYTES_MAX: Final = 1024 * 1024

Entry = dict[str, object]


class ServedModels:
    """Asks all backends; those that do not answer in time are left out."""

    def __init__(self, fleet: Fleet, upstream: Upstream, aliases: Aliases) -> None:
        self._fleet = fleet
        self._upstream = upstream
        self._aliases = aliases
        self._entries: dict[str, Entry] = {}
        self._asked_s = -FRESH_S
        self._lock = asyncio.Lock()

    async def entries(self) -> dict[str, Entry]:
        """OpenAI's model objects by id, aliases without pattern included.

        Raises:
            RequestError: 503, no backend answered.
        """
        async with self._lock:
            if time.monotonic() - self._asked_s >= FRESH_S:
                self._entries = await self._ask_all()
                self._asked_s = time.monotonic()
        if not self._entries:
            raise RequestError(503, "no_healthy_backend", "no backend tells its models", 1.0)
        return self._entries

    async def _ask_all(self) -> dict[str, Entry]:
        replies = await asyncio.gather(*(self._ask(one) for one in self._fleet.all()))
        entries: dict[str, Entry] = {}
        for reply in replies:
            for entry in reply:
                entries.setdefault(str(entry["id"]), entry)
        for name, model in self._aliases:
            if model in entries and not set(name) & set("*?["):
                entries.setdefault(name, {**entries[model], "id": name})
        return entries

    async def _ask(self, backend: BackendConfig) -> list[Entry]:
        headers = {"accept-encoding": "identity"}
        if backend.api_key is not None:
            headers["authorization"] = f"Bearer {backend.api_key}"
        body = b""
        with contextlib.suppress(TimeoutError, BackendFailed, aiohttp.ClientError, OSError):
            async with asyncio.timeout(ASK_S_MAX):
                url = f"{backend.base_url}/v1/models"
                response = await self._upstream.send("GET", url, headers, None)
                try:
                    body = await _read(response)
                finally:
                    response.close()
        return _entries_in(body)


def anthropic_page(entries: dict[str, Entry]) -> dict[str, object]:
    """The list as Anthropic's clients read it."""
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
        }
        for name in entries
    ]
    ids = list(entries)
    return {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    while response.status == 200 and (chunk := await response.content.readany()):
        body += chunk
        if len(body) > REPLY_BYTES_MAX:
            return b""
    return body


def _entries_in(body: bytes) -> list[Entry]:
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return []
    data = cast("Entry", document).get("data") if isinstance(document, dict) else None
    if not isinstance(data, list):
        return []
    objects = [cast("Entry", x) for x in cast("list[object]", data) if isinstance(x, dict)]
    return [entry for entry in objects if isinstance(entry.get("id"), str)]
