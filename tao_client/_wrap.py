"""`wrap`: put a client's model calls under the scheduler, without changing what it is."""

import sys
from types import ModuleType
from typing import Protocol, TypeVar, cast

from tao_client import _config
from tao_client._transport import AsyncRouting, SyncRouting
from tao_client.errors import UnsupportedClientError

T = TypeVar("T")

_LIBRARIES = ("httpx2", "httpx")


def wrap(client: T) -> T:
    """Schedule the model calls of an OpenAI or Anthropic client; returns the same object.

    Each attempt of a call asks for a lease and goes to the backend of that lease; when none is
    given, it goes to the client's own base URL, unchanged. Copies (`with_options`), raw and
    streamed responses, retries and time-outs work as before. A second `wrap` changes nothing.

    Args:
        client: `OpenAI` or `AsyncOpenAI`, 2.x or 3.x, `Anthropic` or `AsyncAnthropic`, or an httpx
            or httpx2 client that some other library is given (`http_client` makes such a one).

    Raises:
        UnsupportedClientError: there is no httpx or httpx2 client in it.
    """
    if _config.is_disabled():
        return client
    http_client: object = getattr(client, "_client", client)
    library = _library_of(http_client)
    if library is None:
        raise UnsupportedClientError(
            f"cannot wrap {type(client).__name__}: it holds no httpx or httpx2 client. Give wrap() "
            "an OpenAI, Anthropic, httpx or httpx2 client; for others use Session.turn()"
        )
    holder = cast("_TransportHolder", http_client)
    if isinstance(holder._transport, SyncRouting | AsyncRouting):
        return client
    routing = AsyncRouting if isinstance(http_client, library.AsyncClient) else SyncRouting
    holder._transport = routing(holder._transport, http_client, library)
    for pattern, mounted in holder._mounts.items():
        if mounted is not None:
            holder._mounts[pattern] = routing(mounted, http_client, library)
    return client


class _TransportHolder(Protocol):
    """An httpx or httpx2 client, as far as it is changed here."""

    _transport: object
    _mounts: dict[object, object | None]


def _library_of(http_client: object) -> ModuleType | None:
    for kind in type(http_client).__mro__:
        name = kind.__module__.partition(".")[0]
        library = sys.modules.get(name) if name in _LIBRARIES else None
        if library is not None and isinstance(http_client, library.Client | library.AsyncClient):
            return library
    return None
