"""OTLP/HTTP, case by case, against a coordinator process over real sockets.

The cases are those of the specification 1.11 that a receiver must get right; each is one test.
"""

import gzip
import http.client
import json
import signal
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from coordinator_process import (
    CoordinatorProcess,
    Reply,
    coordinator,
    read_reply,
    stub_backends,
)
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_bodies import (
    Record,
    SpanSpec,
    json_body,
    json_spans_body,
    protobuf_body,
    protobuf_spans_body,
)

from tao_client import semconv

PROTOBUF, JSON = "application/x-protobuf", "application/json"
SIGNALS = ("/v1/logs", "/v1/traces", "/v1/metrics")
EMPTY = {PROTOBUF: b"", JSON: b"{}"}
BUILD = {PROTOBUF: protobuf_body, JSON: json_body}
BUILD_SPANS = {PROTOBUF: protobuf_spans_body, JSON: json_spans_body}

each_signal = pytest.mark.parametrize("path", SIGNALS)
each_type = pytest.mark.parametrize("content_type", [PROTOBUF, JSON], ids=["protobuf", "json"])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    log: Path = tmp_path_factory.mktemp("coordinator") / "log"
    with (
        stub_backends(1) as (stub,),
        coordinator(log, "--backend", stub.url, "--capacity=1000000") as process,
    ):
        yield process


@pytest.fixture
def session_id(request: pytest.FixtureRequest) -> str:
    """One session per test, so that they can run in any order against one process."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[-100:]


def start(session_id: str, call_id: str = "c") -> Record:
    attributes = {
        semconv.CONVERSATION_ID: session_id,
        semconv.TOOL_CALL_ID: call_id,
        semconv.TOOL_NAME: "bash",
    }
    return semconv.TOOL_START, attributes


def end(session_id: str, call_id: str = "c") -> Record:
    return semconv.TOOL_END, start(session_id, call_id)[1]


def post(
    service: CoordinatorProcess,
    body: bytes,
    content_type: str,
    path: str = "/v1/logs",
    **headers: str,
) -> Reply:
    others = {name.replace("_", "-"): value for name, value in headers.items()}
    return service.call("POST", path, body, {"content-type": content_type, **others})


def message_of(reply: Reply) -> str:
    """The message of an error, which must be a `google.rpc.Status` in the reply's encoding."""
    if reply.headers["content-type"] == PROTOBUF:
        return Status.FromString(reply.body).message
    fields = reply.json()
    assert set(fields) == {"code", "message"}
    return fields["message"]


def open_calls(service: CoordinatorProcess, session_id: str) -> list[str]:
    return [
        call_id
        for session in service.state()["sessions"]
        if session["session_id"] == session_id
        for call_id in session["open_tool_calls"]
    ]


@each_type
def test_01_success_is_200_and_empty_in_the_encoding_of_the_request(
    service: CoordinatorProcess, session_id: str, content_type: str
) -> None:
    reply = post(service, BUILD[content_type]([start(session_id)]), content_type)
    assert (reply.status, reply.headers["content-type"]) == (200, content_type)
    assert reply.body == EMPTY[content_type]
    assert open_calls(service, session_id) == ["c"]


@each_signal
@each_type
def test_02_empty_request_succeeds(
    service: CoordinatorProcess, content_type: str, path: str
) -> None:
    reply = post(service, EMPTY[content_type], content_type, path)
    assert (reply.status, reply.body) == (200, EMPTY[content_type])


@each_type
def test_03_gzip(service: CoordinatorProcess, session_id: str, content_type: str) -> None:
    body = gzip.compress(BUILD[content_type]([start(session_id)]))
    assert post(service, body, content_type, content_encoding="gzip").status == 200
    assert open_calls(service, session_id) == ["c"]


@each_type
def test_04_deflate(service: CoordinatorProcess, session_id: str, content_type: str) -> None:
    body = zlib.compress(BUILD[content_type]([start(session_id)]))
    assert post(service, body, content_type, content_encoding="deflate").status == 200
    assert open_calls(service, session_id) == ["c"]


@pytest.mark.parametrize("path", SIGNALS[:2])
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (PROTOBUF, b"\xff\xff\xff"),
        (PROTOBUF, b"\x0a\xff\xff\xff\xff\x0f"),
        (JSON, b"not json"),
        (JSON, b"[]"),
        (JSON, b'{"resourceLogs": 5, "resourceSpans": 5}'),
        (JSON, b'{"resourceLogs":' + b"[" * 100_000),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_05_undecodable_is_400_with_a_status(
    service: CoordinatorProcess, content_type: str, body: bytes, path: str
) -> None:
    reply = post(service, body, content_type, path)
    assert (reply.status, reply.headers["content-type"]) == (400, content_type)
    assert message_of(reply)


@each_signal
@each_type
def test_06_broken_compression_is_400(
    service: CoordinatorProcess, content_type: str, path: str
) -> None:
    reply = post(service, b"no gzip", content_type, path, content_encoding="gzip")
    assert reply.status == 400
    assert "gzip" in message_of(reply)


@each_signal
def test_07_zip_bomb_is_413_and_costs_little(service: CoordinatorProcess, path: str) -> None:
    bomb = gzip.compress(bytes(100_000_000), 9)
    reply = post(service, bomb, JSON, path, content_encoding="gzip")
    assert reply.status == 413
    assert message_of(reply)


@each_signal
@each_type
def test_08_body_beyond_the_limit_is_413(
    service: CoordinatorProcess, content_type: str, path: str
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\n"
        "content-length: 999999999\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(head.encode())
        reply = read_reply(connection)  # answered without waiting for the body
    assert reply.status == 413
    assert message_of(reply)


@each_signal
@pytest.mark.parametrize(
    ("content_type", "encoding"), [("text/plain", ""), ("application/grpc", ""), (JSON, "br")]
)
def test_09_unknown_content_is_415(
    service: CoordinatorProcess, path: str, content_type: str, encoding: str
) -> None:
    reply = post(service, b"{}", content_type, path, content_encoding=encoding)
    assert reply.status == 415
    assert message_of(reply)


@each_signal
def test_10_other_method_is_405(service: CoordinatorProcess, path: str) -> None:
    reply = service.call("GET", path)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert message_of(reply)


@each_type
def test_11_invalid_records_are_a_partial_success(
    service: CoordinatorProcess, session_id: str, content_type: str
) -> None:
    nameless: Record = (semconv.TOOL_START, {semconv.CONVERSATION_ID: session_id})
    body = BUILD[content_type]([nameless, start(session_id), nameless])
    reply = post(service, body, content_type)
    assert reply.status == 200
    if content_type == PROTOBUF:
        partial = ExportLogsServiceResponse.FromString(reply.body).partial_success
        rejected, message = partial.rejected_log_records, partial.error_message
    else:
        fields = reply.json()["partialSuccess"]
        rejected, message = int(fields["rejectedLogRecords"]), fields["errorMessage"]
    assert rejected == 2
    assert semconv.TOOL_CALL_ID in message
    assert open_calls(service, session_id) == ["c"], "the valid one counts"


@each_type
def test_12_too_many_spans_are_a_partial_success(
    service: CoordinatorProcess, content_type: str
) -> None:
    body = BUILD_SPANS[content_type]([])
    if content_type == PROTOBUF:
        body = protobuf_spans_body([SpanSpec(name="chat")] * 20_003)
    else:
        body = body.replace(b"[]", b"[" + b",".join([b"{}"] * 20_003) + b"]")
    reply = post(service, gzip.compress(body), content_type, "/v1/traces", content_encoding="gzip")
    assert reply.status == 200
    if content_type == PROTOBUF:
        response = ExportTraceServiceResponse.FromString(reply.body)
        assert response.partial_success.rejected_spans == 3
    else:
        assert reply.json()["partialSuccess"]["rejectedSpans"] == "3"


@each_type
def test_13_retried_request_counts_once(
    service: CoordinatorProcess, session_id: str, content_type: str
) -> None:
    before = service.state()["counters"]
    body = BUILD[content_type]([start(session_id), end(session_id)], time.time_ns())
    for _ in range(3):
        assert post(service, body, content_type).status == 200
    after = service.state()["counters"]
    assert after["tool_starts"] - before["tool_starts"] == 1
    assert after["tool_ends"] - before["tool_ends"] == 1
    assert open_calls(service, session_id) == []


@each_type
def test_14_unknown_records_fields_and_attributes_are_accepted(
    service: CoordinatorProcess, session_id: str, content_type: str
) -> None:
    name, attributes = start(session_id)
    body = BUILD[content_type]([("of.somebody.else", {"x": 1}), (name, {**attributes, "new": 2})])
    if content_type == JSON:
        fields = json.loads(body)
        fields["new"] = fields["resourceLogs"][0]["new"] = {"deep": [1]}
        fields["resourceLogs"][0]["scopeLogs"][0]["logRecords"][1]["new"] = 3
        body = json.dumps(fields).encode()
    else:
        body += b"\xf8\x7f\x01"  # field 2047, a varint
    reply = post(service, body, content_type)
    assert (reply.status, reply.body) == (200, EMPTY[content_type])
    assert open_calls(service, session_id) == ["c"]


@pytest.mark.parametrize(
    "trace_id",
    [
        "0af7651916cd43dd8448eb211c80319c",
        "1AF7651916CD43DD8448EB211C80319C",
        "KvdlGRbNQ92ESOshHIAxnA==",
    ],
    ids=["lower", "upper", "base64"],
)
def test_15_json_ids_are_read_in_every_spelling(
    service: CoordinatorProcess, session_id: str, trace_id: str
) -> None:
    """A record that names only its trace belongs to the session that named it before."""

    def with_trace(record: Record) -> bytes:
        fields = json.loads(json_body([record]))
        fields["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["traceId"] = trace_id
        return json.dumps(fields).encode()

    name, attributes = start(session_id)
    nameless = {k: v for k, v in attributes.items() if k != semconv.CONVERSATION_ID}
    said: Record = ("of.somebody.else", {"session.id": session_id})
    assert post(service, with_trace(said), JSON).body == b"{}"
    assert post(service, with_trace((name, nameless)), JSON).body == b"{}"
    assert open_calls(service, session_id) == ["c"]


@each_type
def test_16_records_in_any_order_leave_the_same_state(
    service: CoordinatorProcess, session_id: str, content_type: str
) -> None:
    now_ns = time.time_ns()
    build = BUILD[content_type]
    first = build([end(session_id)], now_ns)
    late = build([start(session_id)], now_ns - 10**9)
    newer = build([start(session_id, "d")], now_ns)
    for body in (first, late, newer):
        assert post(service, body, content_type).body == EMPTY[content_type]
    assert open_calls(service, session_id) == ["d"]


def test_17_connection_survives_refused_requests(service: CoordinatorProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    requests: list[tuple[bytes, Mapping[str, str], int]] = [
        (b"\xff", {"content-type": PROTOBUF}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"x", {"content-type": JSON, "content-encoding": "gzip"}, 400),
        (b"{}", {"content-type": JSON}, 200),
    ]
    try:
        connection.connect()
        kept = connection.sock
        for body, headers, status in requests:
            connection.request("POST", "/v1/logs", body, dict(headers))
            response = connection.getresponse()
            response.read()
            assert (response.status, connection.sock) == (status, kept)
    finally:
        connection.close()


def test_18_key_is_asked_for_in_a_status(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", stub.url, "--api-key=k") as process,
    ):
        for path in SIGNALS:
            reply = post(process, b"", PROTOBUF, path)
            assert (reply.status, message_of(reply)) == (401, "the right API key is required")
            assert post(process, b"", PROTOBUF, path, authorization="Bearer k").status == 200


def test_19_request_under_way_at_shutdown_is_finished(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", stub.url, "--capacity=1000000") as process,
        socket.create_connection(("127.0.0.1", process.port), timeout=20) as connection,
    ):
        head = (
            f"POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: {JSON}\r\n"
            "content-length: 2\r\nexpect: 100-continue\r\n\r\n"
        )
        connection.sendall(head.encode())
        # Told to go on: the request is being served. Later ones get 503 with Retry-After
        # (tests/unit/service/test_event_routes.py).
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        process.process.send_signal(signal.SIGTERM)
        connection.sendall(b"{}")
        reply = read_reply(connection)
        assert (reply.status, reply.body) == (200, b"{}")
        assert process.process.wait(15) == 0
