"""Builds OTLP requests for tests: by the generated protobuf classes and as plain JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

Value = str | bool | int | float | Sequence[str]
Record = tuple[str, Mapping[str, Value]]
"""Event name and attributes."""


def protobuf_body(records: Sequence[Record], time_unix_ns: int = 0) -> bytes:
    logs = [
        LogRecord(
            event_name=name,
            time_unix_nano=time_unix_ns,
            attributes=[KeyValue(key=k, value=_any(v)) for k, v in attributes.items()],
        )
        for name, attributes in records
    ]
    scope = ScopeLogs(log_records=logs)
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[scope])])
    return request.SerializeToString()


def json_body(records: Sequence[Record], time_unix_ns: int = 0) -> bytes:
    logs = [
        {
            "eventName": name,
            "timeUnixNano": str(time_unix_ns),
            "traceId": "5b8efff798038103d269b633813fc60c",
            "attributes": [{"key": k, "value": _json(v)} for k, v in attributes.items()],
        }
        for name, attributes in records
    ]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]}).encode()


@dataclass(frozen=True, kw_only=True)
class SpanSpec:
    """One span; ids in hex."""

    name: str = "execute_tool bash"
    trace_id: str = "5b8efff798038103d269b633813fc60c"
    span_id: str = "eee19b7ec3c1b174"
    parent_span_id: str = ""
    start_ns: int = 1_000_000_000
    end_ns: int = 3_500_000_000
    is_error: bool = False
    attributes: Mapping[str, Value] = field(default_factory=dict[str, Value])


def protobuf_spans_body(spans: Sequence[SpanSpec]) -> bytes:
    built = [
        Span(
            name=span.name,
            trace_id=bytes.fromhex(span.trace_id),
            span_id=bytes.fromhex(span.span_id),
            parent_span_id=bytes.fromhex(span.parent_span_id),
            start_time_unix_nano=span.start_ns,
            end_time_unix_nano=span.end_ns,
            status=Status(code=Status.STATUS_CODE_ERROR) if span.is_error else None,
            attributes=[KeyValue(key=k, value=_any(v)) for k, v in span.attributes.items()],
        )
        for span in spans
    ]
    scope = ScopeSpans(spans=built)
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[scope])])
    return request.SerializeToString()


def json_spans_body(spans: Sequence[SpanSpec]) -> bytes:
    built = [
        {
            "name": span.name,
            "traceId": span.trace_id.upper(),
            "spanId": span.span_id,
            "parentSpanId": span.parent_span_id,
            "kind": 1,
            "startTimeUnixNano": str(span.start_ns),
            "endTimeUnixNano": span.end_ns,
            "status": {"code": 2} if span.is_error else {},
            "attributes": [{"key": k, "value": _json(v)} for k, v in span.attributes.items()],
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": built}]}]}).encode()


def _any(value: Value) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=v) for v in value]))


def _json(value: Value) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if value == value and abs(value) < 1e400 else "NaN"}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": v} for v in value]}}
