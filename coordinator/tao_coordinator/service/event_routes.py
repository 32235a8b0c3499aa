"""`POST /v1/logs`: lifecycle events as OTLP."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tao_client import semconv
from tao_coordinator.adapters import otlp
from tao_coordinator.service.bodies import read_body
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.replies import otlp_response
from tao_coordinator.service.runtime import Runtime

THREAD_BYTES_MIN: Final = 64 * 1024
"""Larger bodies are decoded in a thread: 64 kB hold the loop for about 2 ms, and leases with it."""
STEP_EVENTS_MAX: Final = 256
"""Events of one step; between steps other requests get their turn."""


class EventRoutes:
    """Receives events; answers as OTLP asks, errors included."""

    def __init__(
        self,
        runtime: Runtime,
        metrics: ServiceMetrics,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._runtime = runtime
        self._metrics = metrics
        self._wall_clock = wall_clock
        self._recent = otlp.RecentUids()

    def routes(self) -> list[Route]:
        """One path."""
        return [Route(semconv.LOGS_PATH, self.ingest, methods=["POST"])]

    async def ingest(self, request: Request) -> Response:
        """Decode, drop duplicates, hand on; answered once the engine has seen the events."""
        body = await read_body(request, otlp.BODY_BYTES_MAX)
        content_type = request.headers.get("content-type", "")
        logs = await self._decode(body, content_type, request.headers.get("content-encoding", ""))
        records = [record for record in logs.records if self._recent.is_new(record.uid)]
        self._metrics.observe_logs(logs, len(logs.records) - len(records))
        for first in range(0, len(records), STEP_EVENTS_MAX):
            if first:
                await asyncio.sleep(0)
            batch = records[first : first + STEP_EVENTS_MAX]
            for record in batch:
                self._metrics.observe_record(record)
            self._runtime.dispatch([record.event for record in batch])
        return otlp_response(logs.reply)

    async def _decode(
        self, body: bytes, content_type: str, content_encoding: str
    ) -> otlp.DecodedLogs:
        def decode() -> otlp.DecodedLogs:
            return otlp.decode_logs(
                body,
                content_type=content_type,
                content_encoding=content_encoding,
                now_unix_s=self._wall_clock(),
            )

        # A small compressed body may hold a lot.
        if len(body) >= THREAD_BYTES_MIN or (content_encoding and len(body) > 4096):
            return await asyncio.to_thread(decode)
        return decode()
