"""Look at the backends, add one, take one out of service, while turns run."""

import dataclasses
import logging
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tao_coordinator.core.observation import BackendView
from tao_coordinator.errors import ConfigurationError, MalformedRequest, RequestError
from tao_coordinator.service.backend_settings import backends_of
from tao_coordinator.service.bodies import read_json_body
from tao_coordinator.service.replies import json_response
from tao_coordinator.service.roster import ADMIN, Entry, Roster
from tao_coordinator.service.runtime import Runtime
from tao_coordinator.service.schemas import path_id

_log = logging.getLogger(__name__)


class BackendRoutes:
    """`/tao/v1/backends`."""

    def __init__(self, runtime: Runtime, roster: Roster) -> None:
        self._runtime = runtime
        self._roster = roster

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/tao/v1/backends", self.list, methods=["GET"]),
            Route("/tao/v1/backends", self.add, methods=["POST"]),
            Route("/tao/v1/backends/{backend_id}", self.show, methods=["GET"]),
            Route("/tao/v1/backends/{backend_id}", self.drain, methods=["DELETE"]),
        ]

    async def list(self, request: Request) -> Response:
        """`GET /tao/v1/backends`: all of them, as the engine and the pollers see them."""
        views = {view.backend_id: view for view in self._runtime.observe().backends}
        entries = self._roster.entries.values()
        return json_response(
            {"backends": [_shown(entry, views.get(entry.config.backend_id)) for entry in entries]}
        )

    async def show(self, request: Request) -> Response:
        """`GET /tao/v1/backends/{backend_id}`."""
        return json_response(self._one(path_id("backend_id", request.path_params["backend_id"])))

    async def add(self, request: Request) -> Response:
        """`POST /tao/v1/backends`: take one in, or change it; ends its draining."""
        body = await read_json_body(request)
        try:
            table: object = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise MalformedRequest("body must be JSON") from error
        if not isinstance(table, dict):
            raise MalformedRequest("body must be a JSON object")
        try:
            backends = backends_of(cast("dict[str, object]", table))
            for backend in backends:
                self._roster.add(backend, ADMIN)
        except ConfigurationError as error:
            raise MalformedRequest(str(error)) from error
        return json_response({"backends": [self._one(b.backend_id) for b in backends]}, 201)

    async def drain(self, request: Request) -> Response:
        """`DELETE /tao/v1/backends/{backend_id}`: drain; 202, gone once nothing runs there."""
        backend_id = path_id("backend_id", request.path_params["backend_id"])
        if not self._roster.drain(backend_id, ADMIN):
            raise _unknown(backend_id)
        return json_response(self._one(backend_id), 202)

    def _one(self, backend_id: str) -> dict[str, object]:
        entry = self._roster.entries.get(backend_id)
        if entry is None:
            raise _unknown(backend_id)
        views = [v for v in self._runtime.observe().backends if v.backend_id == backend_id]
        return _shown(entry, views[0] if views else None)


def _shown(entry: Entry, view: BackendView | None) -> dict[str, object]:
    """Never the credential."""
    settings = dataclasses.asdict(entry.config)
    has_key = settings.pop("api_key") is not None
    del settings["backend_id"], settings["base_url"]
    return {
        "backend_id": entry.config.backend_id,
        "base_url": entry.config.base_url,
        "engine_kind": entry.poller.engine_kind or None,
        "source": entry.source,
        "error": entry.poller.error or None,
        "findings": [dataclasses.asdict(finding) for finding in entry.poller.findings],
        "settings": {**settings, "has_api_key": has_key},
        "state": view,
    }


def _unknown(backend_id: str) -> RequestError:
    return RequestError(404, "unknown_backend", f"no backend is called {backend_id!r}")
