"""What people and their monitoring look at: state, metrics, health."""

import time
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tao_client import semconv
from tao_coordinator.errors import RequestError
from tao_coordinator.service.metrics import EngineCollector, ServiceMetrics
from tao_coordinator.service.relay import dialects
from tao_coordinator.service.replies import json_response
from tao_coordinator.service.runtime import Runtime

READY_AGE_S_MAX: Final = 0.5
"""Readiness probes share one look at the engine for this long."""

ENDPOINTS = (
    "POST /tao/v1/leases",
    "DELETE /tao/v1/leases/{request_id}",
    "POST /tao/v1/leases/{lease_id}/renew",
    "POST /tao/v1/leases/{lease_id}/release",
    "POST /tao/v1/sessions/{session_id}/end",
    *(f"POST {endpoint.path}" for endpoint in dialects.ENDPOINTS),
    f"GET {dialects.MODELS_PATH}",
    "POST /v1/logs",
    "POST /v1/traces",
    "POST /hooks/claude-code",
    "GET /tao/v1/state",
    "GET /tao/v1/overview",
    "GET /tao/v1/plans/{plan_id}",
    "GET /tao/v1/backends",
    "GET /tao/v1/backends/{backend_id}",
    "POST /tao/v1/backends",
    "DELETE /tao/v1/backends/{backend_id}",
    "GET /metrics",
    "GET /healthz",
    "GET /readyz",
)


def installed_version() -> str:
    """Version of the distribution; `unknown` in a bare checkout."""
    try:
        return version("tao-client")
    except PackageNotFoundError:
        return "unknown"


class ViewRoutes:
    """Read-only endpoints."""

    def __init__(self, runtime: Runtime, metrics: ServiceMetrics) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._version = installed_version()
        self._ready_at_s = -READY_AGE_S_MAX
        self._is_ready = False
        metrics.registry.register(
            EngineCollector(runtime.observe, runtime.honesty, self._version, metrics.tool_label)
        )

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/tao/v1/state", self.state, methods=["GET"]),
            Route("/tao/v1/plans/{plan_id}", self.plan, methods=["GET"]),
            Route("/metrics", self.metrics_page, methods=["GET"]),
            Route("/healthz", self.health, methods=["GET"]),
            Route("/readyz", self.ready, methods=["GET"]),
        ]

    async def state(self, request: Request) -> Response:
        """`GET /tao/v1/state`: the engine's observation, with versions."""
        observation = self._runtime.observe()
        return json_response(
            {
                "version": self._version,
                "protocol": semconv.PROTOCOL_VERSION,
                "policy": observation.policy,
                "uptime_s": observation.uptime_s,
                "backends": observation.backends,
                "sessions": observation.sessions,
                "held": observation.held,
                "counters": observation.counters,
                "readiness": self._runtime.honesty(),
                "passes_through": observation.passes_through,
                "journal": self._runtime.journal_state(),
            }
        )

    async def plan(self, request: Request) -> Response:
        """`GET /tao/v1/plans/{plan_id}`: who competed, who was chosen and why the others wait."""
        text = request.path_params["plan_id"]
        # More digits than any counter reaches would only cost time to read.
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None
        found = None if number is None else self._runtime.plan(number)
        if found is None:
            raise RequestError(
                404, "unknown_plan", f"plan {text[:40]!r} is unknown, or was forgotten by now"
            )
        record, age_s = found
        terms = record.asynchrony
        return json_response(
            {
                "plan_id": record.plan_id,
                "age_s": age_s,
                "path": record.path,
                "outcome": record.outcome,
                "quality": record.quality,
                "asynchrony": terms and {**asdict(terms), "loss_max_tokens": terms.loss_max_tokens},
                "candidates": record.candidates.rows(),
            }
        )

    async def metrics_page(self, request: Request) -> Response:
        """`GET /metrics`: Prometheus text format."""
        return Response(self._metrics.page(), headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})

    async def health(self, request: Request) -> Response:
        """`GET /healthz`: the process answers."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """`GET /readyz`: at least one backend is healthy."""
        if self._runtime.is_closing:
            raise RequestError(503, "shutting_down", "the coordinator is shutting down")
        now_s = time.monotonic()
        if now_s - self._ready_at_s >= READY_AGE_S_MAX:
            self._ready_at_s = now_s
            backends = self._runtime.observe().backends
            self._is_ready = any(backend.healthy for backend in backends)
        if not self._is_ready:
            raise RequestError(503, "no_healthy_backend", "no backend is healthy yet", 1.0)
        return json_response({"status": "ready"})
