"""OTLP spans, protobuf or JSON, as plain rows."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, cast

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tao_coordinator.adapters.events.attributes import (
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


class SpanRow(NamedTuple):
    """What is kept of one span; it has ended, or it would not have been sent."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_span_id: bytes
    start_unix_ns: int
    end_unix_ns: int
    is_error: bool
    attributes: Attributes


class SpanRows(NamedTuple):
    """The spans of one request."""

    rows: tuple[SpanRow, ...]
    num_skipped: int
    """Spans beyond the caller's limit; they are never looked at."""


def rows_from_protobuf(body: bytes, limit: int) -> SpanRows:
    """Read a binary `ExportTraceServiceRequest`, at most `limit` spans of it.

    Raises:
        MalformedRequest: The body is not one.
    """
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        raise MalformedRequest("body is no protobuf ExportTraceServiceRequest") from None
    check_groups(len(request.resource_spans))
    check_groups(sum(len(resource.scope_spans) for resource in request.resource_spans))
    num_spans = sum(
        len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans
    )
    rows = tuple(islice(_protobuf_rows(request), limit))
    return SpanRows(rows, max(0, num_spans - limit))


def _protobuf_rows(request: ExportTraceServiceRequest) -> Iterator[SpanRow]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SpanRow(
                    span.name,
                    span.trace_id,
                    span.span_id,
                    span.parent_span_id,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == Status.STATUS_CODE_ERROR,
                    from_protobuf(span.attributes),
                )


def rows_from_json(body: bytes, limit: int) -> SpanRows:
    """Read a JSON `ExportTraceServiceRequest`, at most `limit` spans of it.

    Raises:
        MalformedRequest: The body is not one.
    """
    spans = [
        span
        for scope in json_scopes(body, "resourceSpans", "scopeSpans")
        for span in json_messages(scope, "spans")
    ]
    return SpanRows(tuple(map(_json_row, spans[:limit])), max(0, len(spans) - limit))


def _json_row(span: JsonObject) -> SpanRow:
    name = span.get("name")
    status = span.get("status")
    code = cast("JsonObject", status).get("code") if isinstance(status, dict) else None
    return SpanRow(
        name if isinstance(name, str) else "",
        json_id(span.get("traceId")),
        json_id(span.get("spanId")),
        json_id(span.get("parentSpanId")),
        json_integer(span.get("startTimeUnixNano")) or 0,
        json_integer(span.get("endTimeUnixNano")) or 0,
        code == Status.STATUS_CODE_ERROR,
        from_json(span.get("attributes")),
    )
