"""The relay's endpoints: `POST /v1/...` of the model APIs and `GET /v1/models`.

Plain ASGI, not request handlers: a call's bytes pass through nothing else.
"""

import logging
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tao_coordinator.config import BackendConfig, CoordinatorConfig
from tao_coordinator.errors import EngineError, RequestError
from tao_coordinator.service.bodies import read_json_body
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.relay.call import read_call
from tao_coordinator.service.relay.dialects import ENDPOINTS, MODELS_PATH, Endpoint
from tao_coordinator.service.relay.fleet import Fleet
from tao_coordinator.service.relay.identity import Identities
from tao_coordinator.service.relay.leasing import Leasing
from tao_coordinator.service.relay.models import ServedModels, anthropic_page
from tao_coordinator.service.relay.passage import Passage, RelayDesk
from tao_coordinator.service.relay.prompt_sizes import PromptSizes
from tao_coordinator.service.relay.upstream import Upstream
from tao_coordinator.service.relay.watch import CallStalled, CallWatch
from tao_coordinator.service.replies import json_response
from tao_coordinator.service.runtime import Runtime

_log = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of one call: a long prompt with inline images."""
BODIES_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Of all calls that are held or on their way, together."""
BODY_S_MAX: Final = 60.0


class Relay:
    """Everything behind the relay's paths."""

    def __init__(
        self,
        runtime: Runtime,
        backends: Mapping[str, BackendConfig],
        config: CoordinatorConfig,
        metrics: ServiceMetrics,
    ) -> None:
        """Put it together; nothing is opened before the first call.

        Args:
            runtime: The engine's host.
            backends: Their settings by id; looked into at each call.
            config: Aliases, limits, and whether clients show a key.
            metrics: Told of failures.
        """
        fleet = Fleet(runtime, backends, metrics)
        self._upstream = Upstream()
        self._aliases = config.model_aliases
        self._idle_s = config.relay_idle_s
        self._identities = Identities()
        self._models = ServedModels(fleet, self._upstream, self._aliases)
        self._bodies_bytes = 0
        self.desk = RelayDesk(
            leasing=Leasing(runtime),
            upstream=self._upstream,
            fleet=fleet,
            sizes=PromptSizes(),
            keep_alive_s=config.relay_keep_alive_s,
            hides_credentials=config.api_key is not None,
        )

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            *(Route(one.path, _CallEndpoint(self, one), methods=["POST"]) for one in ENDPOINTS),
            Route(MODELS_PATH, self.list_models, methods=["GET"]),
            Route(MODELS_PATH + "/{model:path}", self.show_model, methods=["GET"]),
        ]

    async def close(self) -> None:
        """Close the connections to the backends."""
        await self._upstream.close()

    async def list_models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        entries = await self._models.entries()
        if "anthropic-version" in request.headers:
            return json_response(anthropic_page(entries))
        return json_response({"object": "list", "data": list(entries.values())})

    async def show_model(self, request: Request) -> Response:
        """`GET /v1/models/{model}`."""
        entry = (await self._models.entries()).get(request.path_params["model"])
        if entry is None:
            raise RequestError(404, "model_not_served", "no backend serves this model")
        return json_response(entry)

    async def serve(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call.

        Raises:
            RequestError: It was refused before anything of it was sent on or answered.
        """
        request = Request(scope, receive)
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise RequestError(415, "unsupported_media_type", f"{encoding} bodies are not read")
        body = await read_json_body(request, BODY_BYTES_MAX, BODY_S_MAX)
        num_bytes = len(body)
        if self._bodies_bytes + num_bytes > BODIES_BYTES_MAX:
            raise RequestError(429, "relay_full", "too many bodies are on their way", 5.0)
        call, document = read_call(endpoint, body, self._aliases)
        identity = self._identities.read(
            dict(scope["headers"]), document, is_single=endpoint.is_single
        )
        # A held call keeps its bytes, and not a second time as Python objects.
        del document, body
        self._bodies_bytes += num_bytes
        try:
            watch = CallWatch(receive, self._idle_s)
            passage = Passage(self.desk, call, identity, scope, watch, send)
            try:
                async with watch:
                    return await passage.run()
            except RequestError as error:
                refusal = error
            except EngineError as error:
                refusal = RequestError(500, "internal_error", str(error))
            except CallStalled:
                message = f"no byte has moved for {self._idle_s:g} s"
                refusal = RequestError(504, "backend_stalled", message)
            await passage.refuse(refusal)
        finally:
            self._bodies_bytes -= num_bytes


class _CallEndpoint:
    """One path as an ASGI application: Starlette wraps functions, which would cost a layer."""

    def __init__(self, relay: Relay, endpoint: Endpoint) -> None:
        self._relay = relay
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        await self._relay.serve(self._endpoint, scope, receive, send)
