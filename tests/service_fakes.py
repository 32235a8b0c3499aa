"""A scripted engine behind the interface of the real one, and an ASGI peer that can hang up."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message

from tao_coordinator.config import BackendConfig, CoordinatorConfig
from tao_coordinator.core.effects import Effect, Grant, Hold, Receipt, Reject, RejectReason
from tao_coordinator.core.events import Event, TurnRequested
from tao_coordinator.core.observation import BackendView, Counters, Observation, ReadinessView
from tao_coordinator.core.plans import PlanLog, PlanRecord
from tao_coordinator.prediction.hazard import HazardPredictor
from tao_coordinator.prediction.remaining import Remaining
from tao_coordinator.service.app import build_app
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.relay.routes import Relay
from tao_coordinator.service.runtime import Runtime

EventType = TypeVar("EventType")


def grant(request_id: str, lease_id: str | None = None, hold_s: float = 0.0) -> Grant:
    return Grant(
        request_id=request_id,
        lease_id=lease_id or f"lease-{request_id}",
        backend_id="gpu-0",
        base_url="http://gpu-0:8000",
        start_within_s=5.0,
        strength="hard",
        receipt=Receipt(
            policy="fake", reason="resident", hold_s=hold_s, cache_credit_tokens=7, plan_id=None
        ),
    )


def hold(request_id: str) -> Hold:
    return Hold(request_id=request_id, queue_position=3, estimated_wait_s=4.5)


def reject(request_id: str, reason: RejectReason, retry_after_s: float | None = None) -> Reject:
    return Reject(
        request_id=request_id, reason=reason, message="because", retry_after_s=retry_after_s
    )


def backend_view(backend_id: str = "gpu-0", healthy: bool = True) -> BackendView:
    return BackendView(
        backend_id=backend_id,
        base_url=f"http://{backend_id}:8000",
        models=("m",),
        healthy=healthy,
        draining=False,
        capacity_tokens=96_000,
        budget_tokens=91_200,
        capacity_factor=1.0,
        committed_tokens=10,
        released_tokens=0,
        in_flight_tokens=5,
        num_in_flight=1,
        num_seats=2,
        shared_prefix_tokens=0,
        prefill_tokens_per_s=None,
        running=1,
        waiting=0,
        kv_usage_ratio=0.5,
        num_foreign=0,
        foreign_tokens=0,
        prefix_cache_queries_tokens=None,
        prefix_cache_hits_tokens=None,
        preemptions=None,
        sample_age_s=0.2,
    )


@dataclass
class FakeEngine:
    """Answers turns as told; by default grants them. Keeps every event."""

    answers: dict[str, Effect] = field(default_factory=dict[str, Effect])
    """What to answer to a turn, by request id."""
    next_effects: list[Effect] = field(default_factory=list[Effect])
    """Given out with the next step, whatever it is."""
    wake_up_s: float | None = None
    error: Exception | None = None
    """Raised by the next step."""
    events: list[Event] = field(default_factory=list[Event])
    step_times_s: list[float] = field(default_factory=list[float])
    backends: tuple[BackendView, ...] = ()
    live_leases: set[str] = field(default_factory=lambda: {"lease-r"})

    def step(self, now_s: float, events: Sequence[Event]) -> tuple[list[Effect], float | None]:
        self.step_times_s.append(now_s)
        self.events.extend(events)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        effects, self.next_effects = self.next_effects, []
        for event in events:
            if isinstance(event, TurnRequested):
                effects.append(self.answers.get(event.request_id, grant(event.request_id)))
        return effects, self.wake_up_s

    def has_lease(self, lease_id: str) -> bool:
        return lease_id in self.live_leases

    def honesty(self) -> ReadinessView:
        return ReadinessView(
            num_forecasts=10.0,
            horizon_s=1.0,
            brier=0.1,
            calibration_error=0.02,
            interval_coverage=0.9,
            detail={},
        )

    def expected_return(self, session_id: str, now_s: float) -> Remaining:
        return HazardPredictor().remaining(session_id, now_s)

    def learned(self) -> dict[str, object]:
        return {}

    def recall(self, learned: Mapping[str, object]) -> None:
        raise ValueError("a fake remembers nothing")

    def observe(self, now_s: float) -> Observation:
        return Observation(
            policy="fake",
            passes_through=False,
            uptime_s=now_s,
            backends=self.backends,
            sessions=(),
            held=(),
            counters=Counters(
                granted={"resident": 2},
                rejected={},
                released={},
                abandoned=1,
                seats_released=0,
                tool_starts=0,
                tool_ends=0,
                tools_expired=0,
                hold_s_sum=0.0,
                hold_started_s_max=0.0,
                hold_new_s_max=0.0,
                prompt_tokens=0,
                cached_tokens=0,
                served_elsewhere=0,
            ),
            plans=PlanLog().totals(),
        )

    def plan(self, plan_id: int) -> PlanRecord | None:
        return None

    def events_of(self, kind: type[EventType]) -> list[EventType]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error_type(self) -> str:
        error = self.json()["error"]
        assert set(error) <= {"type", "message", "retry_after_s"}
        return error["type"]


class Peer:
    """One HTTP request, straight into the ASGI application; `hang_up` closes its connection."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        body: bytes | Mapping[str, object] = b"",
        headers: Mapping[str, str] | None = None,
        chunk_bytes: int = 1 << 30,
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._app = app
        self._gone = asyncio.Event()
        self._chunks = [
            content[at : at + chunk_bytes] for at in range(0, len(content), chunk_bytes)
        ] or [b""]
        self._sent: list[Message] = []
        self._scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in (
                    {"content-type": "application/json"} | dict(headers or {})
                ).items()
            ],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8700),
        }

    def hang_up(self) -> None:
        self._gone.set()

    async def exchange(self) -> Reply | None:
        """Serve it; `None` when the application sent nothing."""
        await self._app(self._scope, self._receive, self._send)
        if not self._sent:
            return None
        start = self._sent[0]
        return Reply(
            start["status"],
            {name.decode(): value.decode() for name, value in start["headers"]},
            b"".join(message.get("body", b"") for message in self._sent[1:]),
        )

    async def _receive(self) -> Message:
        if self._chunks:
            chunk = self._chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._sent.append(message)


class Service:
    """The application over a fake engine, inside one event loop."""

    def __init__(self, engine: FakeEngine | None = None, api_key: str | None = None) -> None:
        self.engine = engine or FakeEngine()
        metrics = ServiceMetrics()
        self.runtime = Runtime(self.engine, metrics)
        config = CoordinatorConfig(
            backends=(BackendConfig(backend_id="gpu-0", base_url="http://gpu-0:8000"),),
            api_key=api_key,
        )
        relay = Relay(self.runtime, {}, config, metrics)
        self.app: ASGIApp = build_app(self.runtime, metrics, api_key, relay)

    def peer(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, object] = b"",
        headers: Mapping[str, str] | None = None,
        chunk_bytes: int = 1 << 30,
    ) -> Peer:
        return Peer(self.app, method, path, body, headers, chunk_bytes)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, object] = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        reply = await self.peer(method, path, body, headers).exchange()
        assert reply is not None
        return reply


def call(
    method: str,
    path: str,
    body: bytes | Mapping[str, object] = b"",
    headers: Mapping[str, str] | None = None,
    engine: FakeEngine | None = None,
    api_key: str | None = None,
) -> Reply:
    async def exchange() -> Reply:
        service = Service(engine, api_key)
        try:
            return await service.call(method, path, body, headers)
        finally:
            service.runtime.close()

    return asyncio.run(exchange())
