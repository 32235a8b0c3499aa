"""`POST /v1/logs` over a scripted engine, and the metrics page that counts what came in."""

import asyncio
import logging
import time
from collections.abc import Mapping

import pytest
from google.rpc.status_pb2 import Status
from otlp_bodies import Record, json_body, protobuf_body
from prometheus_client.parser import text_string_to_metric_families
from service_fakes import FakeEngine, Service, backend_view, call

from tao_client import semconv
from tao_coordinator.core.events import ToolEnded

ASK = {"request_id": "r", "session_id": "s"}
PROTOBUF_HEADERS = {"content-type": "application/x-protobuf"}

END: Record = (
    semconv.TOOL_END,
    {
        semconv.CONVERSATION_ID: "s",
        semconv.TOOL_CALL_ID: "c",
        semconv.TOOL_NAME: "bash",
        semconv.TOOL_DURATION: 1.5,
        semconv.RECORD_UID: "u1",
    },
)


def test_events_reach_the_engine_once() -> None:
    async def body() -> None:
        service = Service()
        for _ in range(2):
            reply = await service.call("POST", "/v1/logs", protobuf_body([END]), PROTOBUF_HEADERS)
            assert (reply.status, reply.body) == (200, b"")
        assert service.engine.events == [
            ToolEnded(session_id="s", call_id="c", name="bash", duration_s=1.5)
        ]

    asyncio.run(body())


def test_age_of_a_record_shortens_what_remains() -> None:
    deadline: Record = (
        semconv.SESSION_DEADLINE,
        {semconv.CONVERSATION_ID: "s", semconv.DEADLINE_REMAINING: 100.0},
    )
    engine = FakeEngine()
    stamped_ns = int((time.time() - 10.0) * 1e9)
    call("POST", "/v1/logs", protobuf_body([deadline], stamped_ns), PROTOBUF_HEADERS, engine)
    (event,) = engine.events
    # Ten seconds old, and no more than the few it took to run this test.
    assert 80.0 < getattr(event, "remaining_s", 0.0) <= 90.0


def test_large_batch_is_split_into_steps() -> None:
    async def body() -> None:
        service = Service()
        batch = [(END[0], {**END[1], semconv.RECORD_UID: f"u{n}"}) for n in range(600)]
        headers = {"content-type": "application/json"}
        reply = await service.call("POST", "/v1/logs", json_body(batch), headers)
        assert reply.json() == {}
        assert len(service.engine.events) == 600
        assert len(service.engine.step_times_s) == 3

    asyncio.run(body())


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\xff", {"content-type": "application/x-protobuf"}, 400),
        (b"{", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b" " * (4 * 1024 * 1024 + 1), {"content-type": "application/json"}, 413),
    ],
)
def test_otlp_error_is_a_status(body: bytes, headers: Mapping[str, str], status: int) -> None:
    reply = call("POST", "/v1/logs", body, headers)
    assert reply.status == status
    if "protobuf" in headers["content-type"]:
        assert Status.FromString(reply.body).message
    else:
        assert set(reply.json()) == {"code", "message"}


def test_engine_failure_is_a_status_too(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(error=RuntimeError("secret detail"))
    reply = call("POST", "/v1/logs", protobuf_body([END]), PROTOBUF_HEADERS, engine)
    assert (reply.status, reply.headers["content-type"]) == (500, "application/x-protobuf")
    assert "secret" not in Status.FromString(reply.body).message
    assert "secret detail" in caplog.text


def test_wrong_method_is_a_status_too() -> None:
    reply = call("GET", "/v1/logs", b"", {"content-type": "application/json"})
    assert (reply.status, set(reply.json())) == (405, {"code", "message"})


def test_metrics_page_parses_and_carries_no_foreign_ids(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> str:
        service = Service(FakeEngine(backends=(backend_view(),)))
        await service.call("POST", "/tao/v1/leases", ASK | {"session_id": "secret-session"})
        await service.call("POST", "/v1/logs", protobuf_body([END, END]), PROTOBUF_HEADERS)
        foreign: Record = ("codex.tool_result", {})
        broken: Record = (semconv.TOOL_START, {})
        await service.call("POST", "/v1/logs", protobuf_body([foreign, broken]), PROTOBUF_HEADERS)
        await service.call("GET", "/tao/v1/nothing-here")
        reply = await service.call("GET", "/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        return reply.body.decode()

    with caplog.at_level(logging.WARNING):
        page = asyncio.run(body())
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["tao_coordinator_events_total", "accepted", "event", semconv.TOOL_END] == 1
    assert samples["tao_coordinator_events_total", "_OTHER", "duplicate", "event"] == 1
    assert samples["tao_coordinator_events_total", "event", "rejected", semconv.TOOL_START] == 1
    assert samples["tao_coordinator_events_total", "_OTHER", "foreign", "ignored"] == 1
    assert samples["gen_ai_execute_tool_duration_seconds_sum", "", "bash"] == 1.5
    assert samples["tao_turn_hold_seconds_count", "resident"] == 1
    assert samples["tao_backend_capacity_tokens", "gpu-0"] == 96_000
    assert samples["tao_lease_granted_total", "resident"] == 2
    requests = "http_server_request_duration_seconds_count"
    assert samples[requests, "/tao/v1/leases", "200", "POST"] == 1
    assert samples[requests, "404", "GET", "_OTHER"] == 1
    assert "secret-session" not in page
    assert not caplog.records
