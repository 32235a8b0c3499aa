"""The outermost layer of the HTTP service: who may enter, and nothing leaves as a traceback.

One pure ASGI middleware instead of a stack: each further layer costs a lease about 20 microseconds.
"""

import hmac
import logging
import time
from collections.abc import Sequence
from http import HTTPMethod
from typing import Final

from prometheus_client import Histogram
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from tao_client import semconv
from tao_coordinator.errors import EngineError, RequestError
from tao_coordinator.service.metrics import OTHER, ServiceMetrics
from tao_coordinator.service.relay import dialects
from tao_coordinator.service.replies import error_response

_log = logging.getLogger(__name__)

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/"})
"""Answered without key and without version check: probes carry neither, nor does a browser that
opens the dashboard, whose page asks for the key."""

_PROTOCOL_HEADER = semconv.HEADER_PROTOCOL.encode()
_PROTOCOL_VERSION = semconv.PROTOCOL_VERSION.encode()
_METHODS = frozenset(HTTPMethod)
_ROUTER_ERRORS = {404: "not_found", 405: "method_not_allowed"}


class Door:
    """Checks key and protocol version, times each request, turns failures into the error shape."""

    def __init__(
        self, routes: Sequence[Route], metrics: ServiceMetrics, api_key: str | None
    ) -> None:
        """Stand in front of `routes`.

        Args:
            routes: Tried in order, but for a `POST` to a path without parameters: it is looked up.
            metrics: Told the duration of every request.
            api_key: Required when given.
        """
        # Not Starlette's application class: its outermost layer answers failures in plain text.
        self._router = Router(routes, redirect_slashes=False)
        self._posts = {
            route.path: route
            for route in reversed(routes)
            if "POST" in (route.methods or ()) and "{" not in route.path
        }
        self._metrics = metrics
        self._timers: dict[tuple[str, str, int], Histogram] = {}
        self._authorization = None if api_key is None else f"Bearer {api_key}".encode("ascii")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"only HTTP is served, got {scope['type']}")
        # Starlette's router raises its 404 and 405 as exceptions only inside an application.
        scope["app"] = self._router
        started_s = time.perf_counter()
        status = 0

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._refuse_strangers(scope)
            route = self._posts.get(scope["path"]) if scope["method"] == "POST" else None
            if route is None:
                await self._router(scope, receive, send_noting_status)
            else:
                scope["route"] = route
                await route.app(scope, receive, send_noting_status)
        except ClientDisconnect:
            # Nobody is there to answer; 499 is what proxies write down for it.
            status = status or 499
        except Exception as error:  # noqa: BLE001
            # The boundary of the service: the peer learns that it failed, the log learns why.
            if status != 0 or not isinstance(error, RequestError | EngineError | HTTPException):
                _log.exception("%s %s failed", scope["method"], scope["path"])
            if status == 0:
                await _response_to(error, scope)(scope, receive, send_noting_status)
        finally:
            self._time(scope, status, time.perf_counter() - started_s)

    def _refuse_strangers(self, scope: Scope) -> None:
        if scope["path"] in OPEN_PATHS:
            return
        authorization = b""
        shown_key = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value
            elif name == b"x-api-key":
                shown_key = value
            elif name == _PROTOCOL_HEADER and value != _PROTOCOL_VERSION:
                raise RequestError(
                    400,
                    "incompatible_client",
                    f"this coordinator speaks protocol {semconv.PROTOCOL_VERSION} only",
                )
        expected = self._authorization
        if not authorization and shown_key and dialects.is_relayed(scope["path"]):
            # Where Anthropic's clients put their key.
            authorization = b"Bearer " + shown_key
        if expected is not None and not hmac.compare_digest(authorization, expected):
            raise RequestError(401, "unauthorized", "the right API key is required")

    def _time(self, scope: Scope, status: int, elapsed_s: float) -> None:
        path = getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in _METHODS else OTHER
        # Routes, methods and statuses are few; looking labels up costs more than observing.
        key = (path, method, status)
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = self._metrics.http_s.labels(*key)
        timer.observe(elapsed_s)


def _response_to(error: Exception, scope: Scope) -> Response:
    """A failure as an answer, in the shape of its path."""
    if isinstance(error, RequestError):
        return error_response(scope, error)
    if isinstance(error, HTTPException):
        kind = _ROUTER_ERRORS.get(error.status_code, "http_error")
        message = f"{scope['method']} {scope['path'][:200]}: {error.detail}"
        response = error_response(scope, RequestError(error.status_code, kind, message))
        response.headers.update(error.headers or {})
        return response
    # An engine's failure is logged with its traceback where it happened.
    is_told = isinstance(error, EngineError)
    message = str(error) if is_told else "internal error; see the log"
    return error_response(scope, RequestError(500, "internal_error", message))
