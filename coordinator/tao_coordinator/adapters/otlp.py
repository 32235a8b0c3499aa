"""OTLP/HTTP logs receiver, without the HTTP server: one request's bytes in, events and reply out.

Follows the OTLP specification 1.11: protobuf or JSON chosen by content type, answers in the same
encoding, `google.rpc.Status` bodies for errors, a bound on the size after decompression, partial
success for invalid records, unknown names accepted. Pure: the caller passes the wall clock.
"""

import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import orjson
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from tao_client import semconv
from tao_coordinator.adapters.otlp_records import (
    LogRow,
    LogRows,
    UndecodableRequest,
    rows_from_json,
    rows_from_protobuf,
)
from tao_coordinator.adapters.tao_events import InvalidRecord, event_from_row, record_age_s
from tao_coordinator.core.events import Event

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Before and after decompression. An event is about 400 bytes."""
RECORDS_MAX: Final = 20_000
"""Records read of one request; further ones are rejected, so one request cannot stall the loop."""
UIDS_MAX: Final = 65_536
"""Remembered record ids. A retry comes within seconds; this many last for minutes."""

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"

_UID_LENGTH_MAX = 256
_GZIP_MEMBERS_MAX = 16
_RPC_INVALID_ARGUMENT = 3
_RPC_RESOURCE_EXHAUSTED = 8
_RPC_UNAUTHENTICATED = 16
_RPC_UNAVAILABLE = 14
_RPC_INTERNAL = 13
_RPC_CODES = {
    401: _RPC_UNAUTHENTICATED,
    413: _RPC_RESOURCE_EXHAUSTED,
    500: _RPC_INTERNAL,
    503: _RPC_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class OtlpReply:
    """What goes back to the emitter."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """One record that became an event."""

    name: str
    event: Event
    age_s: float
    uid: str
    """De-duplication key; empty: the record carries nothing to recognise it by."""


@dataclass(frozen=True, slots=True)
class DecodedLogs:
    """One request, read."""

    reply: OtlpReply
    records: tuple[DecodedRecord, ...] = ()
    rejected_names: tuple[str, ...] = ()
    """Event names of the invalid records."""
    num_ignored: int = 0
    """Records with names of others."""


class RecentUids:
    """Remembers the last record ids: OTLP delivers at least once."""

    def __init__(self, limit: int = UIDS_MAX) -> None:
        self._limit = limit
        self._uids: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._uids)

    def is_new(self, uid: str) -> bool:
        """Remember `uid`; false when it was seen before. An empty one is always new."""
        if not uid:
            return True
        if uid in self._uids:
            self._uids.move_to_end(uid)
            return False
        self._uids[uid] = None
        if len(self._uids) > self._limit:
            self._uids.popitem(last=False)
        return True


def decode_logs(
    body: bytes, *, content_type: str, content_encoding: str = "", now_unix_s: float
) -> DecodedLogs:
    """Read one `POST /v1/logs`. Never raises for anything that a peer can send.

    Args:
        body: As received, at most `BODY_BYTES_MAX`.
        content_type: The request's header; parameters are ignored.
        content_encoding: The request's header; empty, `identity`, `gzip` or `deflate`.
        now_unix_s: The receiver's wall clock, for the ages of the records.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in (PROTOBUF, JSON):
        message = f"content type must be {PROTOBUF} or {JSON}"
        return DecodedLogs(error_reply(JSON, 415, message))
    encoding = content_encoding.strip().lower()
    if encoding not in ("", "identity", "gzip", "deflate"):
        message = "content encoding must be gzip, deflate or identity"
        return DecodedLogs(error_reply(media_type, 415, message))
    if encoding in ("gzip", "deflate"):
        try:
            inflated = _inflate(body)
        except zlib.error:
            return DecodedLogs(error_reply(media_type, 400, f"body is no valid {encoding}"))
    else:
        inflated = body
    if inflated is None or len(inflated) > BODY_BYTES_MAX:
        message = f"body is larger than {BODY_BYTES_MAX} bytes"
        return DecodedLogs(error_reply(media_type, 413, message))
    try:
        read_rows = rows_from_protobuf if media_type == PROTOBUF else rows_from_json
        rows = read_rows(inflated, RECORDS_MAX)
    except UndecodableRequest as error:
        return DecodedLogs(error_reply(media_type, 400, str(error)))
    return _decode_rows(rows, media_type, now_unix_s)


def error_reply(content_type: str, status: int, message: str) -> OtlpReply:
    """An error in the encoding of the request: `google.rpc.Status`."""
    code = _RPC_CODES.get(status, _RPC_INVALID_ARGUMENT)
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == PROTOBUF:
        return OtlpReply(status, PROTOBUF, Status(code=code, message=message).SerializeToString())
    return OtlpReply(status, JSON, orjson.dumps({"code": code, "message": message}))


def _decode_rows(rows: LogRows, media_type: str, now_unix_s: float) -> DecodedLogs:
    records: list[DecodedRecord] = []
    rejected: list[str] = []
    num_ignored = 0
    first_message = ""
    for row in rows.rows:
        try:
            age_s = record_age_s(row.time_unix_ns, now_unix_s)
            event = event_from_row(row, age_s)
        except InvalidRecord as error:
            rejected.append(row.event_name)
            first_message = first_message or f"{row.event_name}: {error}"
            continue
        if event is None:
            num_ignored += 1
        else:
            records.append(DecodedRecord(row.event_name, event, age_s, _uid(row)))
    if rows.num_skipped:
        first_message = first_message or f"more than {RECORDS_MAX} records in one request"
    reply = _success_reply(media_type, len(rejected) + rows.num_skipped, first_message)
    return DecodedLogs(reply, tuple(records), tuple(rejected), num_ignored)


def _uid(row: LogRow) -> str:
    """The record's own id, else what makes two records the same occurrence."""
    uid = row.attributes.get(semconv.RECORD_UID)
    if isinstance(uid, str) and 0 < len(uid) <= _UID_LENGTH_MAX:
        return uid
    if row.time_unix_ns <= 0:
        return ""
    session_id = row.attributes.get(semconv.CONVERSATION_ID, "")
    call_id = row.attributes.get(semconv.TOOL_CALL_ID, "")
    return f"{session_id}\n{call_id}\n{row.event_name}\n{row.time_unix_ns}"


def _success_reply(media_type: str, num_rejected: int, first_message: str) -> OtlpReply:
    if not num_rejected:
        return OtlpReply(200, media_type, b"" if media_type == PROTOBUF else b"{}")
    message = f"{num_rejected} rejected; the first: {first_message}"
    if media_type == PROTOBUF:
        response = ExportLogsServiceResponse()
        response.partial_success.rejected_log_records = num_rejected
        response.partial_success.error_message = message
        return OtlpReply(200, PROTOBUF, response.SerializeToString())
    # 64-bit integers are strings in protobuf's JSON.
    partial = {"rejectedLogRecords": str(num_rejected), "errorMessage": message}
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
