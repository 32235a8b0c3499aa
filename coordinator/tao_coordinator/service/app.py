"""The HTTP application: every route behind the door."""

from starlette.types import ASGIApp

from tao_coordinator.service.backend_routes import BackendRoutes
from tao_coordinator.service.dashboard.routes import DashboardRoutes
from tao_coordinator.service.door import Door
from tao_coordinator.service.event_routes import EventRoutes
from tao_coordinator.service.lease_routes import LeaseRoutes
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.relay.routes import Relay
from tao_coordinator.service.roster import Roster
from tao_coordinator.service.runtime import Runtime
from tao_coordinator.service.view_routes import ViewRoutes


def build_app(
    runtime: Runtime,
    metrics: ServiceMetrics,
    api_key: str | None,
    relay: Relay,
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
        *relay.routes(),
        *EventRoutes(runtime, metrics).routes(),
        *ViewRoutes(runtime, metrics).routes(),
        *DashboardRoutes(runtime).routes(),
        *BackendRoutes(runtime, roster).routes(),
    ]
    return Door(routes, metrics, api_key)
