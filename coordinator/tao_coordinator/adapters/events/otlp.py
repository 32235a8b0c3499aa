"""OTLP/HTTP without the HTTP server: what a request carries, and what goes back.

Follows the OTLP specification 1.11: protobuf or JSON chosen by content type, answers in the same
encoding, `google.rpc.Status` bodies for errors, a bound on the size after decompression, partial
success for invalid records.
"""

import zlib
from dataclasses import dataclass
from enum import Enum
from typing import Final

import orjson
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tao_client import semconv
from tao_coordinator.errors import RequestError

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Before and after decompression. An event is about 400 bytes."""

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
MALFORMED: Final = "malformed_request"
UNSUPPORTED: Final = "unsupported_media_type"

_GZIP_MEMBERS_MAX = 16
_RPC_INVALID_ARGUMENT = 3
_RPC_CODES: Final = {401: 16, 408: 4, 413: 8, 429: 8, 500: 13, 503: 14}
"""HTTP status to the code of `google.rpc`; any other is an invalid argument."""


class Signal(Enum):
    """Kind of telemetry; the value is its path."""

    LOGS = semconv.LOGS_PATH
    TRACES = "/v1/traces"
    METRICS = "/v1/metrics"


PATHS: Final = frozenset(signal.value for signal in Signal)


@dataclass(frozen=True, slots=True)
class OtlpReply:
    """What goes back to the emitter."""

    status: int
    content_type: str
    body: bytes


_SUCCESS: Final = {PROTOBUF: OtlpReply(200, PROTOBUF, b""), JSON: OtlpReply(200, JSON, b"{}")}


def media_type_of(content_type: str) -> str:
    """The encoding of a request and of its answer: `PROTOBUF` or `JSON`.

    Args:
        content_type: The request's header; parameters are ignored.

    Raises:
        RequestError: 415, any other type.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in (PROTOBUF, JSON):
        raise RequestError(415, UNSUPPORTED, f"content type must be {PROTOBUF} or {JSON}")
    return media_type


def unpack(body: bytes, content_encoding: str) -> bytes:
    """The body without its compression, at most `BODY_BYTES_MAX`.

    Args:
        body: As received.
        content_encoding: The request's header; empty, `identity`, `gzip` or `deflate`.

    Raises:
        RequestError: 415 for another encoding, 400 for broken data, 413 for too much of it.
    """
    encoding = content_encoding.strip().lower()
    unpacked: bytes | None = body
    if encoding in ("gzip", "deflate"):
        try:
            unpacked = _inflate(body)
        except zlib.error:
            raise RequestError(400, MALFORMED, f"body is no valid {encoding}") from None
    elif encoding not in ("", "identity"):
        message = "content encoding must be gzip, deflate or identity"
        raise RequestError(415, UNSUPPORTED, message)
    if unpacked is None or len(unpacked) > BODY_BYTES_MAX:
        raise RequestError(413, "body_too_large", f"body is larger than {BODY_BYTES_MAX} bytes")
    return unpacked


def error_reply(content_type: str, status: int, message: str) -> OtlpReply:
    """An error in the encoding of the request: `google.rpc.Status`."""
    code = _RPC_CODES.get(status, _RPC_INVALID_ARGUMENT)
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == PROTOBUF:
        return OtlpReply(status, PROTOBUF, Status(code=code, message=message).SerializeToString())
    return OtlpReply(status, JSON, orjson.dumps({"code": code, "message": message}))


def success_reply(
    signal: Signal, media_type: str, num_rejected: int = 0, first_message: str = ""
) -> OtlpReply:
    """200, with partial success where some of the records were not taken."""
    if not num_rejected:
        return _SUCCESS[media_type]
    message = f"{num_rejected} rejected; the first: {first_message}"
    if media_type == PROTOBUF:
        response: ExportLogsServiceResponse | ExportTraceServiceResponse
        if signal is Signal.TRACES:
            response = ExportTraceServiceResponse()
            response.partial_success.rejected_spans = num_rejected
        else:
            response = ExportLogsServiceResponse()
            response.partial_success.rejected_log_records = num_rejected
        response.partial_success.error_message = message
        return OtlpReply(200, PROTOBUF, response.SerializeToString())
    field = "rejectedSpans" if signal is Signal.TRACES else "rejectedLogRecords"
    # 64-bit integers are strings in protobuf's JSON.
    partial = {field: str(num_rejected), "errorMessage": message}
    return OtlpReply(200, JSON, orjson.dumps({"partialSuccess": partial}))


def _inflate(body: bytes) -> bytes | None:
    """Decompress gzip (all members) or zlib; `None` beyond the bound, which is never exceeded.

    Raises:
        zlib.error: Not compressed data, or cut short.
    """
    inflated = b""
    rest = body
    for _ in range(_GZIP_MEMBERS_MAX):
        # 32 + MAX_WBITS: gzip or zlib by the header. The Python exporter's `deflate` is zlib.
        inflater = zlib.decompressobj(32 + zlib.MAX_WBITS)
        inflated += inflater.decompress(rest, BODY_BYTES_MAX + 1 - len(inflated))
        if len(inflated) > BODY_BYTES_MAX:
            return None
        if not inflater.eof:
            raise zlib.error("truncated")
        rest = inflater.unused_data
        if not rest:
            return inflated
    raise zlib.error("too many members")
