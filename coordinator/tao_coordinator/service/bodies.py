"""Reading request bodies: bounded in size and in time."""

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from tao_coordinator.errors import RequestError

BODY_BYTES_MAX: Final = 1024 * 1024
"""Of the JSON endpoints."""
BODY_S_MAX: Final = 10.0
"""A peer that takes longer to send its body is cut off."""


async def read_body(request: Request, limit_bytes: int, limit_s: float = BODY_S_MAX) -> bytes:
    """The whole body.

    Raises:
        RequestError: 413 beyond `limit_bytes`, 408 when it does not arrive in time.
        ClientDisconnect: The peer went away before it was complete.
    """
    return await read_raw_body(request.scope, request.receive, limit_bytes, limit_s)


async def read_raw_body(
    scope: Scope, receive: Receive, limit_bytes: int, limit_s: float = BODY_S_MAX
) -> bytes:
    """The same for an endpoint that makes no `Request`."""
    declared = declared_length(scope)
    if declared is not None and declared > limit_bytes:
        raise _too_large(limit_bytes)
    try:
        async with asyncio.timeout(limit_s):
            return await _receive_all(receive, limit_bytes)
    except TimeoutError:
        message = f"the body did not arrive within {limit_s:g} s"
        raise RequestError(408, "request_timeout", message) from None


def declared_length(scope: Scope) -> int | None:
    """What the request says its body's length is; `None`: nothing usable."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() and len(value) <= 19 else None
    return None


async def read_json_body(
    request: Request, limit_bytes: int = BODY_BYTES_MAX, limit_s: float = BODY_S_MAX
) -> bytes:
    """The body of a JSON endpoint.

    Another content type, or none, is refused: a page of another site can have a browser send those
    without asking first, and so add a backend of its own to a coordinator without a key.

    Raises:
        RequestError: 413, 408, or 415 for a content type that is not JSON's.
        ClientDisconnect: The peer went away before it was complete.
    """
    content_type = request.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RequestError(415, "unsupported_media_type", "content type must be application/json")
    return await read_body(request, limit_bytes, limit_s)


async def wait_for_disconnect(request: Request) -> None:
    """Return once the peer is gone. Only after the body was read."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


async def _receive_all(receive: Receive, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        num_bytes += len(chunk)
        if num_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            # Almost every body is one chunk, which is then not copied.
            return b"".join(chunks)


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(413, "body_too_large", f"body is larger than {limit_bytes} bytes")
