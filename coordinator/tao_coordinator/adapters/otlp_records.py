"""OTLP log records, protobuf or JSON, as plain rows.

Only the attributes that the event reader knows are kept, so a record's cost does not depend on what
else its emitter attached. JSON is mapped by hand: OTLP's JSON differs from protobuf's own mapping
(hex ids, enums as numbers), and the generic mapper is twenty times slower.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, cast

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tao_client import semconv


class Unreadable(Enum):
    """The value of an attribute whose type this receiver does not take."""

    VALUE = "unreadable"


AttributeValue = str | bool | int | float | tuple[str, ...] | Unreadable

EVENT_NAME: Final = "event.name"
"""Where emitters older than the `event_name` field put the name."""

KNOWN_ATTRIBUTES: Final = frozenset(
    {
        EVENT_NAME,
        semconv.CONVERSATION_ID,
        semconv.AGENT_NAME,
        semconv.REQUEST_MODEL,
        semconv.TOOL_NAME,
        semconv.TOOL_CALL_ID,
        semconv.ERROR_TYPE,
        semconv.RECORD_UID,
        semconv.ROOT_SESSION_ID,
        semconv.PARENT_SESSION_ID,
        semconv.SESSION_PRIORITY,
        semconv.WAIT_REASON,
        semconv.WAIT_EXPECTED,
        semconv.DEADLINE_REMAINING,
        semconv.TOOL_KEY,
        semconv.TOOL_TIMEOUT,
        semconv.TOOL_BACKGROUND,
        semconv.TOOL_PROGRESS_RATIO,
        semconv.TOOL_REMAINING,
        semconv.TOOL_DURATION,
        semconv.OPEN_CALL_IDS,
    }
)


@dataclass(frozen=True, slots=True)
class LogRow:
    """What is kept of one log record."""

    event_name: str
    """Empty: the record is no event."""
    time_unix_ns: int
    """0: the emitter did not say."""
    attributes: Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class LogRows:
    """The records of one request, read one by one."""

    rows: Iterator[LogRow]
    num_skipped: int
    """Records beyond the caller's limit; they are never looked at."""


class UndecodableRequest(ValueError):
    """The body is no OTLP logs request in the encoding that it claims."""


def rows_from_protobuf(body: bytes, limit: int) -> LogRows:
    """Read a binary `ExportLogsServiceRequest`, at most `limit` records of it.

    Raises:
        UndecodableRequest: The body is not one. Raised before the first row.
    """
    request = ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise UndecodableRequest("body is no protobuf ExportLogsServiceRequest") from error
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
                attributes = _protobuf_attributes(record.attributes)
                name = record.event_name or _text(attributes.get(EVENT_NAME))
                yield LogRow(name, record.time_unix_nano, attributes)


def _protobuf_attributes(pairs: Iterable[KeyValue]) -> dict[str, AttributeValue]:
    return {pair.key: _protobuf_value(pair.value) for pair in pairs if pair.key in KNOWN_ATTRIBUTES}


def _protobuf_value(value: AnyValue) -> AttributeValue:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "double_value":
        return value.double_value
    if kind == "int_value":
        return value.int_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "array_value":
        items = value.array_value.values
        if all(item.WhichOneof("value") == "string_value" for item in items):
            return tuple(item.string_value for item in items)
    return Unreadable.VALUE


def rows_from_json(body: bytes, limit: int) -> LogRows:
    """Read a JSON `ExportLogsServiceRequest`, at most `limit` records of it.

    Unknown fields are ignored.

    Raises:
        UndecodableRequest: The body is not one. Raised before the first row.
    """
    try:
        request: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UndecodableRequest("body is no JSON") from error
    records = [
        record
        for resource in _messages(request, "resourceLogs")
        for scope in _messages(resource, "scopeLogs")
        for record in _messages(scope, "logRecords")
    ]
    return LogRows(map(_json_row, records[:limit]), max(0, len(records) - limit))


def _json_row(record: Mapping[str, object]) -> LogRow:
    attributes: dict[str, AttributeValue] = {}
    pairs = record.get("attributes")
    if isinstance(pairs, list):
        for pair in cast("list[object]", pairs):
            fields = _fields(pair)
            key = fields.get("key")
            if isinstance(key, str) and key in KNOWN_ATTRIBUTES:
                attributes[key] = _json_value(_fields(fields.get("value")))
    name = _text(record.get("eventName")) or _text(attributes.get(EVENT_NAME))
    return LogRow(name, _integer(record.get("timeUnixNano")) or 0, attributes)


def _json_value(value: Mapping[str, object]) -> AttributeValue:
    for kind, content in value.items():
        if kind == "stringValue" and isinstance(content, str):
            return content
        if kind == "boolValue" and isinstance(content, bool):
            return content
        if kind == "intValue":
            number = _integer(content)
            return Unreadable.VALUE if number is None else number
        if kind == "doubleValue":
            return _double(content)
        if kind == "arrayValue":
            return _json_strings(_fields(content).get("values", []))
    return Unreadable.VALUE


def _json_strings(items: object) -> AttributeValue:
    if not isinstance(items, list):
        return Unreadable.VALUE
    strings = [_fields(item).get("stringValue") for item in cast("list[object]", items)]
    kept = tuple(item for item in strings if isinstance(item, str))
    return kept if len(kept) == len(strings) else Unreadable.VALUE


def _messages(parent: object, key: str) -> list[Mapping[str, object]]:
    """The repeated message field `key`; a wrong shape makes the whole request undecodable."""
    if not isinstance(parent, dict):
        raise UndecodableRequest("body is no OTLP JSON: an object is missing")
    children = cast("dict[str, object]", parent).get(key)
    if children is None:
        return []
    if not isinstance(children, list):
        raise UndecodableRequest(f"body is no OTLP JSON: {key} is no array")
    for child in cast("list[object]", children):
        if not isinstance(child, dict):
            raise UndecodableRequest(f"body is no OTLP JSON: an item of {key} is no object")
    return cast("list[Mapping[str, object]]", children)


def _fields(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _integer(value: object) -> int | None:
    """A 64-bit integer; JSON emitters write it as a string or as a number."""
    if isinstance(value, str) and value.isascii() and value.lstrip("-").isdigit():
        # 20 characters hold every 64-bit number; int() of a longer one is quadratic.
        return int(value) if len(value) <= 20 and value.count("-") <= 1 else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def _double(value: object) -> AttributeValue:
    """A double; protobuf's JSON writes the special values as strings."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(cast("str", value))
    return Unreadable.VALUE
