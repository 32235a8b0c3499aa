"""Builds OTLP log requests for tests: by the generated protobuf classes and as plain JSON."""

import json
from collections.abc import Mapping, Sequence

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

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
