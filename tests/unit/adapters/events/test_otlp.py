"""The OTLP envelope: content types, encodings, bounds, and answers in the request's encoding."""

import gzip
import json
import zlib
from collections.abc import Callable

import pytest
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tao_coordinator.adapters.events import otlp
from tao_coordinator.adapters.events.otlp import JSON, PROTOBUF, Signal
from tao_coordinator.errors import RequestError


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_media_type_ignores_parameters_and_case(media_type: str) -> None:
    assert otlp.media_type_of(f" {media_type.upper()} ; charset=utf-8") == media_type


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/grpc", "application/jsonl"]
)
def test_other_media_type_is_refused(content_type: str) -> None:
    with pytest.raises(RequestError) as caught:
        otlp.media_type_of(content_type)
    assert caught.value.status == 415


def in_two_members(body: bytes) -> bytes:
    return gzip.compress(body[:4]) + gzip.compress(body[4:])


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("", bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        (" GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("gzip", in_two_members),
    ],
)
def test_body_is_unpacked(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert otlp.unpack(compress(b"some bytes"), encoding) == b"some bytes"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"no gzip at all", "gzip", 400),
        (b"", "gzip", 400),
        (gzip.compress(b"{}")[:-4], "gzip", 400),
        (gzip.compress(b"") * 1000, "gzip", 400),
        (b"{}", "br", 415),
        (b" " * (otlp.BODY_BYTES_MAX + 1), "", 413),
        (gzip.compress(bytes(100_000_000), 1), "gzip", 413),
        (zlib.compress(bytes(100_000_000), 1), "deflate", 413),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_bad_body_has_its_status(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(RequestError) as caught:
        otlp.unpack(body, encoding)
    assert caught.value.status == status


@given(body=st.binary(max_size=200), encoding=st.sampled_from(["", "gzip", "deflate", "br"]))
def test_any_bytes_unpack_or_are_refused(body: bytes, encoding: str) -> None:
    status = 200
    try:
        otlp.unpack(body, encoding)
    except RequestError as error:
        status = error.status
    assert status in (200, 400, 413, 415)


@pytest.mark.parametrize("signal", Signal)
def test_success_is_empty(signal: Signal) -> None:
    assert otlp.success_reply(signal, PROTOBUF).body == b""
    assert otlp.success_reply(signal, JSON).body == b"{}"


def test_partial_success_names_the_signals_own_field() -> None:
    logs = otlp.success_reply(Signal.LOGS, PROTOBUF, 3, "why")
    partial = ExportLogsServiceResponse.FromString(logs.body).partial_success
    assert (partial.rejected_log_records, "why" in partial.error_message) == (3, True)
    traces = otlp.success_reply(Signal.TRACES, PROTOBUF, 4, "why")
    assert ExportTraceServiceResponse.FromString(traces.body).partial_success.rejected_spans == 4
    for signal, field in ((Signal.LOGS, "rejectedLogRecords"), (Signal.TRACES, "rejectedSpans")):
        reply = otlp.success_reply(signal, JSON, 5, "why")
        assert json.loads(reply.body)["partialSuccess"][field] == "5"


def test_error_is_a_status_in_the_requests_encoding() -> None:
    binary = otlp.error_reply("application/x-protobuf; x=y", 503, "later")
    assert Status.FromString(binary.body) == Status(code=14, message="later")
    text = otlp.error_reply("text/plain", 415, "what")
    assert (text.content_type, json.loads(text.body)) == (JSON, {"code": 3, "message": "what"})
