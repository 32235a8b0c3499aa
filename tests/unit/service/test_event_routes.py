"""OTLP and hooks over a scripted engine, and the metrics page that counts what came in."""

import asyncio
import logging
import time
from collections.abc import Mapping

import pytest
from google.rpc.status_pb2 import Status
from otlp_bodies import Record, SpanSpec, json_body, protobuf_body, protobuf_spans_body
from prometheus_client.parser import text_string_to_metric_families
from service_fakes import FakeEngine, Reply, Service, backend_view, call
from starlette.types import Message

from tao_client import semconv
from tao_coordinator.core.events import ToolEnded, ToolStarted
from tao_coordinator.service import event_routes

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
        assert len(service.engine.step_times_s) == 5, "steps of at most 128"

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


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/traces", "/v1/metrics"])
def test_shutdown_asks_emitters_to_come_again(path: str) -> None:
    async def body() -> Reply:
        service = Service()
        service.runtime.begin_shutdown()
        return await service.call("POST", path, b"{}", {"content-type": "application/json"})

    reply = asyncio.run(body())
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert reply.json() == {"code": 14, "message": "the coordinator is shutting down"}


def test_emitters_beyond_the_memory_are_asked_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_routes, "BYTES_MAX", 100)

    async def body() -> None:
        service = Service()
        headers = {"content-type": "application/json", "content-length": "60"}
        first = service.peer("POST", "/v1/logs", b"{}" + b" " * 58, headers, chunk_bytes=30)
        # The first has its room while its body is on its way.
        slow = asyncio.Event()
        receive = first._receive

        async def receive_slowly() -> Message:
            await slow.wait()
            return await receive()

        monkeypatch.setattr(first, "_receive", receive_slowly)
        task = asyncio.create_task(first.exchange())
        await asyncio.sleep(0)
        second = await service.call("POST", "/v1/logs", b"{}" + b" " * 58, headers)
        assert (second.status, second.headers["retry-after"]) == (429, "1")
        assert second.json()["code"] == 8
        slow.set()
        reply = await task
        assert reply is not None
        assert reply.status == 200
        third = await service.call("POST", "/v1/logs", b"{}" + b" " * 58, headers)
        assert third.status == 200

    asyncio.run(body())


def test_tool_span_reaches_the_engine() -> None:
    engine = FakeEngine()
    attributes = {semconv.CONVERSATION_ID: "s", semconv.TOOL_CALL_ID: "c"}
    spans = protobuf_spans_body([SpanSpec(attributes=attributes), SpanSpec(name="chat m")])
    reply = call("POST", "/v1/traces", spans, PROTOBUF_HEADERS, engine)
    assert (reply.status, reply.body) == (200, b"")
    assert engine.events == [ToolEnded(session_id="s", call_id="c", name="bash", duration_s=2.5)]


def test_metrics_are_taken_and_dropped() -> None:
    engine = FakeEngine()
    for content_type, empty in (("application/json", b"{}"), ("application/x-protobuf", b"")):
        reply = call("POST", "/v1/metrics", b"anything", {"content-type": content_type}, engine)
        assert (reply.status, reply.body) == (200, empty)
    assert call("POST", "/v1/metrics", b"", {"content-type": "text/plain"}, engine).status == 415
    assert not engine.events


@pytest.mark.parametrize("path", event_routes.HOOK_PATHS)
def test_hook_reaches_the_engine(path: str) -> None:
    engine = FakeEngine()
    hook = {
        "session_id": "s",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_use_id": "t",
        "tool_input": {"command": "make"},
    }
    reply = call("POST", path, hook, {"content-type": "application/json"}, engine)
    assert (reply.status, reply.json()) == (200, {})
    assert engine.events == [
        ToolStarted(session_id="s", call_id="t", name="Bash", key="make", timeout_s=120.0)
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"session_id": "a b"}'])
def test_broken_hook_is_one_clear_error(body: bytes) -> None:
    reply = call("POST", "/hooks/claude-code", body)
    assert (reply.status, reply.error_type) == (400, "malformed_request")


def test_hook_that_a_web_page_could_send_is_refused() -> None:
    engine = FakeEngine()
    hook = {"session_id": "s", "hook_event_name": "SessionEnd"}
    reply = call("POST", "/hooks/claude-code", hook, {"content-type": "text/plain"}, engine)
    assert reply.status == 415
    assert not engine.events


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
        foreign: Record = ("of.somebody.else", {})
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
    assert samples["tao_coordinator_events_total", "_OTHER", "event", "ignored"] == 1
    assert samples["gen_ai_execute_tool_duration_seconds_sum", "", "bash"] == 1.5
    assert samples["tao_turn_hold_seconds_count", "resident"] == 1
    assert samples["tao_backend_capacity_tokens", "gpu-0"] == 96_000
    assert samples["tao_lease_granted_total", "resident"] == 2
    requests = "http_server_request_duration_seconds_count"
    assert samples[requests, "/tao/v1/leases", "200", "POST"] == 1
    assert samples[requests, "404", "GET", "_OTHER"] == 1
    assert "secret-session" not in page
    assert not caplog.records
