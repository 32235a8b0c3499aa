"""The outermost layer of the HTTP service: who may enter, and nothing leaves as a traceback.

One pure ASGI middleware instead of a stack: each further layer costs a lease about 20 microseconds.
"""

import hmac
import logging
import time
from collections.abc import Mapping
from http import HTTPMethod
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tao_client import semconv
from tao_coordinator.errors import RequestError
from tao_coordinator.service.metrics import OTHER, ServiceMetrics
from tao_coordinator.service.relay import dialects
from tao_coordinator.service.replies import error_response

_log = logging.getLogger(__name__)

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Answered without key and without version check: probes carry neither."""

_PROTOCOL_HEADER = semconv.HEADER_PROTOCOL.encode()
_PROTOCOL_VERSION = semconv.PROTOCOL_VERSION.encode()
_METHODS = frozenset(HTTPMethod)


class Door:
    """Checks key and protocol version, times each request, turns failures into the error shape."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServiceMetrics,
        api_key: str | None,
        posts: Mapping[str, ASGIApp],
    ) -> None:
        """Stand in front of `app`; a `POST` to a path in `posts` passes it by."""
        self._app = app
        self._posts = posts
        self._metrics = metrics
        self._authorization = None if api_key is None else f"Bearer {api_key}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, got {scope['type']}")
        # Starlette's router raises its 404 and 405 as exceptions only inside an application.
        scope["app"] = self._app
        started_s = time.perf_counter()
        status = 0

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await error_response(scope, refusal)(scope, receive, send_noting_status)
            else:
                app = self._posts.get(scope["path"]) if scope["method"] == "POST" else None
                await (app or self._app)(scope, receive, send_noting_status)
        except RequestError as error:
            await error_response(scope, error)(scope, receive, send_noting_status)
        except ClientDisconnect:
            # Nobody is there to answer; 499 is what proxies write down for it.
            status = status or 499
        except Exception:  # noqa: BLE001
            # The boundary of the service: the peer learns that it failed, the log learns why.
            _log.exception("%s %s failed", scope["method"], scope["path"])
            if status == 0:
                error = RequestError(500, "internal_error", "internal error; see the log")
                await error_response(scope, error)(scope, receive, send_noting_status)
        finally:
            self._time(scope, status, time.perf_counter() - started_s)

    def _refusal(self, scope: Scope) -> RequestError | None:
        if scope["path"] in OPEN_PATHS:
            return None
        authorization = b""
        shown_key = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"x-api-key":
                shown_key = value
            elif name == _PROTOCOL_HEADER and value != _PROTOCOL_VERSION:
                return RequestError(
                    400,
                    "incompatible_client",
                    f"this coordinator speaks protocol {semconv.PROTOCOL_VERSION} only",
                )
        expected = self._authorization
        if not authorization and shown_key and dialects.is_relayed(scope["path"]):
            # Where Anthropic's clients put their key.
            authorization = b"Bearer " + shown_key
        if expected is not None and not hmac.compare_digest(authorization, expected):
            return RequestError(401, "unauthorized", "the right API key is required")
        return None

    def _time(self, scope: Scope, status: int, elapsed_s: float) -> None:
        route = scope.get("route")
        method = scope["method"]
        self._metrics.http_s.labels(
            getattr(route, "path", OTHER), method if method in _METHODS else OTHER, status
        ).observe(elapsed_s)
