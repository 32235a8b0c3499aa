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
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
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
