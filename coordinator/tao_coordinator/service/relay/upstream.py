"""The other side of the relay: one pooled HTTP client to all backends, and the headers that pass.

aiohttp rather than httpx: a fifth of its CPU time per call (measured by `tao bench relay`). Replies
are not decompressed, redirects not followed, cookies not kept, environment proxies not used.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import aiohttp
from yarl import URL

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import CoordinatorError, RequestError

CONNECT_S_MAX: Final = 5.0
IDLE_CONNECTION_S: Final = 4.0
"""Below the keep-alive time of the engines' servers (uvicorn: 5 s): they must not close first."""
CHUNK_BYTES: Final = 64 * 1024
"""A reply is read at most this far ahead of its client, twice."""

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_SENT = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"content-type",
    # Usage is read in passing, so the reply must come as it is.
    b"accept-encoding",
    b"expect",
    b"cookie",
    b"x-request-id",
}
_CREDENTIALS = frozenset({b"authorization", b"x-api-key"})
_NOT_PASSED = _HOP_BY_HOP | {b"x-tao-receipt"}
_NOT_ALLOWED = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""In the value of a header. The client library lets it in, the server refuses to send it."""
_NO_AUTOMATIC = ("accept", "accept-encoding", "user-agent", "content-type")

RawHeaders = Iterable[tuple[bytes, bytes]]


class BackendFailed(CoordinatorError):
    """A backend could not be reached, or broke off.

    Attributes:
        was_reached: The call may have got there: it may be what the backend died of.
    """

    def __init__(self, reason: str, *, was_reached: bool) -> None:
        super().__init__(reason)
        self.was_reached = was_reached


class Upstream:
    """Sends calls to backends. The client is made on the running loop at its first use."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> aiohttp.ClientResponse:
        """Send one request; returns with the head of the reply.

        The caller closes the response, which ends the exchange wherever it is.

        Raises:
            BackendFailed: No head of a reply came.
            RequestError: 400, a header that HTTP does not allow.
        """
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_NO_AUTOMATIC,
                read_bufsize=CHUNK_BYTES,
            )
        try:
            # The URL as it came: what the client has escaped stays escaped.
            return await self._session.request(
                method, URL(url, encoded=True), headers=headers, data=content, allow_redirects=False
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise BackendFailed(reason_of(error), was_reached=False) from error
        except (aiohttp.ClientError, OSError) as error:
            raise BackendFailed(reason_of(error), was_reached=True) from error
        except ValueError as error:
            # The client library refuses to send it: no backend has failed.
            raise RequestError(400, "malformed_request", f"header: {reason_of(error)}") from error

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def reason_of(error: Exception) -> str:
    """One line for logs and clients."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror
    elif isinstance(error, aiohttp.ClientResponseError):
        # Its text shows the bytes and the URL, over several lines.
        text = f"its reply is no HTTP: {error.message}"
    return text.splitlines()[0][:200]


def sent_headers(
    raw: RawHeaders,
    backend: BackendConfig | None,
    affinity: Mapping[str, str],
    request_id: str,
    *,
    hides_credentials: bool,
) -> dict[str, str]:
    """What goes along to a backend.

    Args:
        raw: The client's headers, names in lower case.
        backend: Whose credential is shown; `None`: a backend without one.
        affinity: Added, or put in place of the client's.
        request_id: Where the client gave none.
        hides_credentials: The client's are the coordinator's own and stay here.
    """
    key = None if backend is None else backend.api_key
    dropped = _NOT_SENT
    if hides_credentials or key is not None:
        dropped = _NOT_SENT | _CREDENTIALS
    headers: dict[str, str] = {}
    listed: frozenset[bytes] = frozenset()
    given_id = b""
    for name, value in raw:
        if name == b"connection":
            listed = listed | _listed_in(value)
        elif name == b"x-request-id":
            given_id = value
        if name in dropped or name.startswith(b"x-tao-"):
            continue
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError:
            continue  # the client library writes UTF-8: it would come out as something else
        key_text = name.decode("ascii")
        # Lists may come as several lines; tracestate and anthropic-beta are lists.
        headers[key_text] = f"{headers[key_text]}, {text}" if key_text in headers else text
    for name in listed:
        headers.pop(name.decode("ascii", "ignore"), None)
    headers["content-type"] = "application/json"
    headers["accept-encoding"] = "identity"
    headers["x-request-id"] = given_id.decode("ascii", "ignore") or request_id
    for name, value in affinity.items():
        headers[name.lower()] = value
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    return headers


def passed_headers(raw: RawHeaders, *, keeps_length: bool) -> list[tuple[bytes, bytes]]:
    """What the client gets to see of a reply's headers."""
    passed: list[tuple[bytes, bytes]] = []
    listed: frozenset[bytes] = frozenset()
    for name, value in raw:
        name = name.lower()
        if name == b"connection":
            listed = listed | _listed_in(value)
        if name in _NOT_PASSED or (name == b"content-length" and not keeps_length):
            continue
        if _NOT_ALLOWED.search(value) is not None:
            continue
        passed.append((name, value))
    return [pair for pair in passed if pair[0] not in listed] if listed else passed


def _listed_in(value: bytes) -> frozenset[bytes]:
    return frozenset(name.strip().lower() for name in value.split(b","))
