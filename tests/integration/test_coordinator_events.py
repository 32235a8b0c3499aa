"""OTLP events into a real coordinator process, with the exporter that users have."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordinator_process import CoordinatorProcess, coordinator, stub_backends, wait_until
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from otlp_bodies import Record, json_body, protobuf_body
from prometheus_client.parser import text_string_to_metric_families

from tao_client import semconv

CALL = {
    semconv.CONVERSATION_ID: "s1",
    semconv.TOOL_CALL_ID: "c1",
    semconv.TOOL_NAME: "bash",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    log: Path = tmp_path_factory.mktemp("coordinator") / "log"
    with (
        stub_backends(1) as (stub,),
        coordinator(log, "--backend", stub.url, "--capacity=1000000") as process,
    ):
        yield process


def open_calls(service: CoordinatorProcess, session_id: str) -> list[str]:
    """Open tool calls of a session; a turn makes it visible first."""
    sessions = service.state()["sessions"]
    return [
        call_id
        for session in sessions
        if session["session_id"] == session_id
        for call_id in session["open_tool_calls"]
    ]


@pytest.mark.parametrize("compression", list(Compression))
def test_coordinator_takes_the_opentelemetry_exporter(
    service: CoordinatorProcess, compression: Compression
) -> None:
    session_id = f"otel-{compression.value}"
    attributes = CALL | {semconv.CONVERSATION_ID: session_id}
    lease = service.ask(f"r-{session_id}", session_id, tokens=10).json()
    path = f"/tao/v1/leases/{lease['lease_id']}/release"
    service.call("POST", path, {"outcome": "completed", "input_tokens": 10})
    exporter = OTLPLogExporter(
        endpoint=f"{service.url}/v1/logs", compression=compression, timeout=5
    )
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    try:
        logger = provider.get_logger(semconv.SCOPE_NAME)

        def emit(name: str) -> None:
            logger.emit(event_name=name, attributes=attributes, severity_number=SeverityNumber.INFO)

        emit(semconv.TOOL_START)
        assert open_calls(service, session_id) == ["c1"]
        emit(semconv.TOOL_END)
        wait_until(lambda: open_calls(service, session_id) == [])
    finally:
        provider.shutdown()


def test_coordinator_takes_the_opentelemetry_span_exporter(service: CoordinatorProcess) -> None:
    before = service.state()["counters"]["tool_ends"]
    attributes = CALL | {semconv.CONVERSATION_ID: "otel-spans"}
    headers = {"content-type": "application/x-protobuf"}
    service.call("POST", "/v1/logs", protobuf_body([(semconv.TOOL_START, attributes)]), headers)
    exporter = OTLPSpanExporter(endpoint=f"{service.url}/v1/traces", timeout=5)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        tracer = provider.get_tracer("a framework")
        # Only the agent's span names the conversation, and it ends after the tool's.
        with tracer.start_as_current_span("invoke_agent coder") as agent:
            agent.set_attribute(semconv.CONVERSATION_ID, "otel-spans")
            with tracer.start_as_current_span("execute_tool bash") as tool:
                tool.set_attribute(semconv.TOOL_CALL_ID, "c1")
        provider.force_flush()
    finally:
        provider.shutdown()
    assert service.state()["counters"]["tool_ends"] == before + 1
    assert open_calls(service, "otel-spans") == []


def test_claude_code_hooks_open_and_close_calls(service: CoordinatorProcess) -> None:
    call = {
        "session_id": "claude-hooks",
        "tool_name": "Bash",
        "tool_use_id": "toolu_1",
        "tool_input": {"command": "make test", "run_in_background": True},
    }

    def hook(name: str, **fields: object) -> None:
        body = {"hook_event_name": name, **call, **fields}
        reply = service.call("POST", "/hooks/claude-code", body)
        assert (reply.status, reply.json()) == (200, {})

    hook("PreToolUse")
    assert open_calls(service, "claude-hooks") == ["toolu_1"]
    hook("PostToolUse", tool_response={"backgroundTaskId": "b7"}, duration_ms=12)
    assert open_calls(service, "claude-hooks") == ["b7"]
    prompt = "<task-notification><task-id>b7</task-id><status>completed</status>"
    hook("UserPromptSubmit", prompt=prompt)
    assert open_calls(service, "claude-hooks") == []
    # The log records of the same call come seconds later, in a batch.
    attributes = {"session.id": "claude-hooks", "tool_use_id": "toolu_1", "tool_name": "Bash"}
    late: Record = ("claude_code.tool_decision", attributes | {"decision": "accept"})
    headers = {"content-type": "application/json"}
    assert service.call("POST", "/v1/logs", json_body([late]), headers).body == b"{}"
    assert open_calls(service, "claude-hooks") == []
    hook("SessionEnd")
    assert all(s["session_id"] != "claude-hooks" for s in service.state()["sessions"])


@pytest.mark.parametrize("compress", [None, gzip.compress, zlib.compress])
@pytest.mark.parametrize("content_type", ["application/x-protobuf", "application/json"])
def test_coordinator_takes_both_encodings(
    service: CoordinatorProcess,
    content_type: str,
    compress: Callable[[bytes], bytes] | None,
) -> None:
    before = service.state()["counters"]["tool_starts"]
    session_id = f"{content_type[12:]}-{getattr(compress, '__module__', 'plain')}"
    start: Record = (semconv.TOOL_START, CALL | {semconv.CONVERSATION_ID: session_id})
    build = json_body if content_type.endswith("json") else protobuf_body
    body = build([start])
    headers = {"content-type": content_type}
    if compress is not None:
        body = compress(body)
        headers["content-encoding"] = "gzip" if compress is gzip.compress else "deflate"
    reply = service.call("POST", "/v1/logs", body, headers)
    assert (reply.status, reply.headers["content-type"]) == (200, content_type)
    assert service.state()["counters"]["tool_starts"] == before + 1


def test_coordinator_counts_a_retried_record_once(service: CoordinatorProcess) -> None:
    wait: Record = (
        semconv.SESSION_WAIT,
        {semconv.CONVERSATION_ID: "s1", semconv.RECORD_UID: "retry-1"},
    )
    headers = {"content-type": "application/x-protobuf"}
    for _ in range(3):
        assert service.call("POST", "/v1/logs", protobuf_body([wait]), headers).status == 200
    outcomes = {
        sample.labels["tao_event_outcome"]: sample.value
        for family in text_string_to_metric_families(service.call("GET", "/metrics").body.decode())
        for sample in family.samples
        if sample.name == "tao_coordinator_events_total"
        and (
            sample.labels["tao_event_name"] == semconv.SESSION_WAIT
            or sample.labels["tao_event_outcome"] == "duplicate"
        )
    }
    assert outcomes == {"accepted": 1, "duplicate": 2}


def test_coordinator_refuses_a_zip_bomb_cheaply(service: CoordinatorProcess) -> None:
    bomb = gzip.compress(bytes(100_000_000), 9)
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    reply = service.call("POST", "/v1/logs", bomb, headers)
    assert (reply.status, set(reply.json())) == (413, {"code", "message"})
    assert service.call("GET", "/healthz").status == 200
