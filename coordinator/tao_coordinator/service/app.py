"""The HTTP application: routes, error shapes, the door."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, ExceptionHandler

from tao_coordinator.errors import EngineError, RequestError
from tao_coordinator.service.backend_routes import BackendRoutes
from tao_coordinator.service.door import Door
from tao_coordinator.service.event_routes import EventRoutes
from tao_coordinator.service.lease_routes import LeaseRoutes
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.relay.routes import Relay
from tao_coordinator.service.replies import error_response
from tao_coordinator.service.roster import Roster
from tao_coordinator.service.runtime import Runtime
from tao_coordinator.service.view_routes import ViewRoutes

_ROUTER_ERRORS = {404: "not_found", 405: "method_not_allowed"}


def build_app(
    runtime: Runtime,
    metrics: ServiceMetrics,
    api_key: str | None = None,
    relay: Relay | None = None,
    roster: Roster | None = None,
) -> ASGIApp:
    """Put the service together.

    Args:
        runtime: The engine's host; started and closed by the caller.
        metrics: The registry that `/metrics` shows.
        api_key: Required from every client when given.
        relay: Serves model calls on the same port; closed by the caller.
        roster: The backends; without one there are none.
    """
    if roster is None:
        roster = Roster(runtime.dispatch)
    routes = [
        *LeaseRoutes(runtime).routes(),
        *(() if relay is None else relay.routes()),
        *EventRoutes(runtime, metrics).routes(),
        *ViewRoutes(runtime, metrics).routes(),
        *BackendRoutes(runtime, roster).routes(),
    ]
    # Not Starlette's application class: its outermost layer answers failures in plain text before
    # the door can give them their shape.
    handlers: dict[Any, ExceptionHandler] = {
        RequestError: _request_error,
        EngineError: _engine_error,
        HTTPException: _router_error,
    }
    app = ExceptionMiddleware(Router(routes, redirect_slashes=False), handlers=handlers)
    return Door(app, metrics, api_key, {} if relay is None else relay.calls())


async def _request_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestError):
        raise error
    return error_response(request.scope, error)


async def _engine_error(request: Request, error: Exception) -> Response:
    # Logged with its traceback where it happened.
    return error_response(request.scope, RequestError(500, "internal_error", str(error)))


async def _router_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    type_ = _ROUTER_ERRORS.get(error.status_code, "http_error")
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    response = error_response(request.scope, RequestError(error.status_code, type_, message))
    response.headers.update(error.headers or {})
    return response
