"""OTLP log records, protobuf or JSON, as plain rows."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tao_coordinator.adapters.events.attributes import (
    EVENT_NAME,
    Attributes,
    from_json,
    from_protobuf,
    json_integer,
)
from tao_coordinator.adapters.events.bodies import (
    JsonObject,
    check_groups,
    json_id,
    json_messages,
    json_scopes,
)
from tao_coordinator.errors import MalformedRequest

_BODY_NAME_LENGTH_MAX = 64


class LogRow(NamedTuple):
    """What is kept of one log record."""

    event_name: str
    """Empty: the record is no event."""
    time_unix_ns: int
    """0: the emitter did not say."""
    attributes: Attributes
    trace_id: bytes = b""


class LogRows(NamedTuple):
    """The records of one request, read one by one."""

    rows: Iterator[LogRow]
    num_skipped: int
    """Records beyond the caller's limit; they are never looked at."""


def rows_from_protobuf(body: bytes, limit: int) -> LogRows:
    """Read a binary `ExportLogsServiceRequest`, at most `limit` records of it.

    Raises:
        MalformedRequest: The body is not one. Raised before the first row.
    """
    request = ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise MalformedRequest("body is no protobuf ExportLogsServiceRequest") from None
    check_groups(len(request.resource_logs))
    check_groups(sum(len(resource.scope_logs) for resource in request.resource_logs))
    num_records = sum(
        len(scope.log_records)
        for resource in request.resource_logs
        for scope in resource.scope_logs
    )
    return LogRows(islice(_protobuf_rows(request), limit), max(0, num_records - limit))


def _protobuf_rows(request: ExportLogsServiceRequest) -> Iterator[LogRow]:
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            for record in scope.log_records:
                attributes = from_protobuf(record.attributes)
                name = record.event_name or _old_name(attributes, record.body.string_value)
                yield LogRow(name, record.time_unix_nano, attributes, record.trace_id)


def rows_from_json(body: bytes, limit: int) -> LogRows:
    """Read a JSON `ExportLogsServiceRequest`, at most `limit` records of it.

    Unknown fields are ignored.

    Raises:
        MalformedRequest: The body is not one. Raised before the first row.
    """
    records = [
        record
        for scope in json_scopes(body, "resourceLogs", "scopeLogs")
        for record in json_messages(scope, "logRecords")
    ]
    return LogRows(map(_json_row, records[:limit]), max(0, len(records) - limit))


def _json_row(record: JsonObject) -> LogRow:
    attributes = from_json(record.get("attributes"))
    name = record.get("eventName")
    if not isinstance(name, str) or not name:
        body = record.get("body")
        text = cast("JsonObject", body).get("stringValue") if isinstance(body, dict) else None
        name = _old_name(attributes, text)
    time_unix_ns = json_integer(record.get("timeUnixNano")) or 0
    return LogRow(name, time_unix_ns, attributes, json_id(record.get("traceId")))


def _old_name(attributes: Attributes, body: object) -> str:
    """The name of a record without `event_name`: an attribute, or the body where that is fuller.

    Claude Code writes the body `claude_code.tool_result` beside the attribute `tool_result`.
    """
    name = attributes.get(EVENT_NAME)
    if not isinstance(name, str):
        name = ""
    if isinstance(body, str) and len(body) <= _BODY_NAME_LENGTH_MAX and body.endswith(f".{name}"):
        return body
    return name
