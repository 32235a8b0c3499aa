"""Log records as rows: both encodings alike, unknown things ignored, garbage refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from otlp_bodies import Record, json_body, protobuf_body

from tao_client import semconv
from tao_coordinator.adapters.events.attributes import KNOWN_ATTRIBUTES, Unreadable
from tao_coordinator.adapters.events.log_records import LogRow, rows_from_json, rows_from_protobuf
from tao_coordinator.errors import MalformedRequest

TRACE_ID = bytes.fromhex("5b8efff798038103d269b633813fc60c")
ATTRIBUTES = {
    semconv.CONVERSATION_ID: "s1",
    semconv.TOOL_TIMEOUT: 30,
    semconv.TOOL_REMAINING: 2.5,
    semconv.TOOL_BACKGROUND: False,
    semconv.TOOL_KEY: "",
    semconv.OPEN_CALL_IDS: ("a", "b"),
}

both_encodings = pytest.mark.parametrize(
    ("read", "build"),
    [(rows_from_protobuf, protobuf_body), (rows_from_json, json_body)],
    ids=["protobuf", "json"],
)
Read = Callable[[bytes, int], Any]
Build = Callable[..., bytes]


def one_json_row(**fields: object) -> LogRow:
    body = {"resourceLogs": [{"scopeLogs": [{"logRecords": [fields]}]}]}
    (row,) = rows_from_json(json.dumps(body).encode(), 10).rows
    return row


def one_protobuf_row(record: LogRecord) -> LogRow:
    scopes = [ScopeLogs(log_records=[record])]
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=scopes)])
    (row,) = rows_from_protobuf(request.SerializeToString(), 10).rows
    return row


@both_encodings
def test_record_is_read_with_its_types(read: Read, build: Build) -> None:
    record: Record = ("tao.tool.start", {**ATTRIBUTES, "of.somebody.else": "x"})
    (row,) = read(build([record], 17), 10).rows
    assert (row.event_name, row.time_unix_ns, row.attributes) == ("tao.tool.start", 17, ATTRIBUTES)


@both_encodings
def test_records_beyond_the_limit_are_counted(read: Read, build: Build) -> None:
    rows, num_skipped = read(build([("x", {})] * 5), 3)
    assert (len(list(rows)), num_skipped) == (3, 2)


@both_encodings
def test_name_may_stand_in_the_attribute(read: Read, build: Build) -> None:
    (row,) = read(build([("", {"event.name": "codex.tool_result"})]), 10).rows
    assert row.event_name == "codex.tool_result"


def test_fuller_name_in_the_body_wins_over_the_attribute() -> None:
    attribute = {"key": "event.name", "value": {"stringValue": "tool_result"}}
    body = {"stringValue": "claude_code.tool_result"}
    assert one_json_row(body=body, attributes=[attribute]).event_name == "claude_code.tool_result"
    pair = KeyValue(key="event.name", value=AnyValue(string_value="tool_result"))
    record = LogRecord(body=AnyValue(string_value="claude_code.tool_result"), attributes=[pair])
    assert one_protobuf_row(record).event_name == "claude_code.tool_result"


def test_body_that_is_text_is_no_name() -> None:
    assert one_json_row(body={"stringValue": "tao.tool.start"}).event_name == ""


@pytest.mark.parametrize(
    "spelling",
    [
        "5b8efff798038103d269b633813fc60c",
        "5B8EFFF798038103D269B633813FC60C",
        "W47/95gDgQPSabYzgT/GDA==",  # protobuf's own JSON mapping
    ],
)
def test_json_trace_id_is_hex_in_either_case_or_base64(spelling: str) -> None:
    assert one_json_row(eventName="x", traceId=spelling).trace_id == TRACE_ID


@pytest.mark.parametrize("spelling", ["", "xyz", "z" * 32, "=" * 24, 17, None, ["a"]])
def test_broken_json_trace_id_is_none(spelling: object) -> None:
    assert one_json_row(eventName="x", traceId=spelling).trace_id == b""


@pytest.mark.parametrize("number", [30, "30", "-30", -30])
def test_json_takes_integers_as_strings_or_numbers(number: object) -> None:
    attribute = {"key": semconv.TOOL_TIMEOUT, "value": {"intValue": number}, "unknown": [1]}
    row = one_json_row(eventName="x", timeUnixNano=number, attributes=[attribute])
    expected = int(str(number))
    assert (row.time_unix_ns, row.attributes) == (expected, {semconv.TOOL_TIMEOUT: expected})


@pytest.mark.parametrize(
    "value",
    [
        {"intValue": "9" * 400},
        {"intValue": "1-1"},
        {"intValue": 1.5},
        {"doubleValue": "x"},
        {"stringValue": 5},
        {"boolValue": "true"},
        {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": 1}]}},
        {"arrayValue": {"values": 5}},
        {"arrayValue": 5},
        {"kvlistValue": {"values": []}},
        {"bytesValue": "AA=="},
        {},
        None,
        5,
    ],
)
def test_json_value_of_another_type_is_marked(value: object) -> None:
    row = one_json_row(eventName="x", attributes=[{"key": semconv.TOOL_KEY, "value": value}])
    assert row.attributes == {semconv.TOOL_KEY: Unreadable.VALUE}


@pytest.mark.parametrize(
    "value",
    [
        AnyValue(),
        AnyValue(bytes_value=b"x"),
        AnyValue(kvlist_value=KeyValueList()),
        AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1)])),
    ],
)
def test_protobuf_value_of_another_type_is_marked(value: AnyValue) -> None:
    row = one_protobuf_row(LogRecord(attributes=[KeyValue(key=semconv.TOOL_KEY, value=value)]))
    assert row.attributes == {semconv.TOOL_KEY: Unreadable.VALUE}


def test_unknown_json_fields_are_ignored_anywhere() -> None:
    record = {"eventName": "x", "new": {"a": [1]}, "severityNumber": 9, "attributes": [5, {"k": 1}]}
    body = {
        "new": 1,
        "resource_logs": [{"scopeLogs": 5}],  # the original field name is no OTLP JSON key
        "resourceLogs": [{"new": 2, "scopeLogs": [{"new": 3, "logRecords": [record]}]}, {}],
    }
    (row,) = rows_from_json(json.dumps(body).encode(), 10).rows
    assert row == LogRow("x", 0, {}, b"")


def test_unknown_protobuf_fields_are_ignored() -> None:
    # Field 2047 of the request, a varint, behind a record.
    body = protobuf_body([("x", {})]) + b"\xf8\x7f\x01"
    assert [row.event_name for row in rows_from_protobuf(body, 10).rows] == ["x"]


def delimited(field: int, content: bytes) -> bytes:
    """One length-delimited field of the protobuf wire format."""
    length, varint = len(content), b""
    while length >= 0x80:
        varint += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([field << 3 | 2]) + varint + bytes([length]) + content


def nested_protobuf(depth: int) -> bytes:
    """A request whose one record has arrays in arrays as its body."""
    value = b""
    for _ in range(depth):
        value = delimited(5, delimited(1, value))
    return delimited(1, delimited(2, delimited(2, delimited(5, value))))


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff",
        b"\x08\x01\x07",
        b"\x0a\xff\xff\xff\xff\x0f",  # a length of 4 GiB
        b"\x0a\x04\x12\x02\x12\x7f",  # an inner length that overruns its message
        json_body([("x", {})]),
        nested_protobuf(10_000),
        b"\x0a\x00" * 20_001,  # resources without anything in them
        delimited(1, b"\x12\x00" * 20_001),  # scopes
        protobuf_body([("hello", {})]).replace(b"hello", b"\xff\xfe\xfd\xfc\xfb"),  # no UTF-8
    ],
    ids=lambda value: repr(value)[:24],
)
def test_broken_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        rows_from_protobuf(body, 10)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"\xff",
        b'{"resourceLogs": {}}',
        b'{"resourceLogs": [7]}',
        b'{"resourceLogs": [{"scopeLogs": [7]}]}',
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": 7}]}]}',
        b'{"resourceLogs":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"eventName": NaN}]}]}]}',
        b'{"resourceLogs": [' + b"{}," * 20_000 + b"{}]}",
        b'{"resourceLogs": [{"scopeLogs": [' + b"{}," * 20_000 + b"{}]}]}",
    ],
    ids=lambda value: repr(value)[:24],
)
def test_broken_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        rows_from_json(body, 10)


def test_nested_protobuf_is_read_as_far_as_it_goes() -> None:
    assert [row.event_name for row in rows_from_protobuf(nested_protobuf(10), 10).rows] == [""]


JSON_KEYS = [
    "resourceLogs",
    "scopeLogs",
    "logRecords",
    "attributes",
    "key",
    "value",
    "eventName",
    "body",
    "traceId",
    "timeUnixNano",
    "stringValue",
    "intValue",
    "doubleValue",
    "boolValue",
    "arrayValue",
    "values",
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(JSON_KEYS) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)
attribute_values = (
    st.text(max_size=300)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.text(max_size=4), max_size=3).map(tuple)
)
records = st.lists(
    st.tuples(
        st.text(max_size=5),
        st.dictionaries(st.sampled_from(sorted(KNOWN_ATTRIBUTES)), attribute_values, max_size=6),
    ),
    max_size=4,
)


@given(json_values)
def test_any_json_is_read_or_refused(value: object) -> None:
    wrapped = {"resourceLogs": [{"scopeLogs": [{"logRecords": [value]}]}]}
    for candidate in (value, wrapped):
        try:
            rows = list(rows_from_json(json.dumps(candidate).encode(), 10).rows)
        except MalformedRequest:
            continue
        assert all(set(row.attributes) <= KNOWN_ATTRIBUTES for row in rows)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        list(rows_from_protobuf(body, 10).rows)
    except MalformedRequest:
        return


@given(records)
def test_both_encodings_say_the_same(records: list[Record]) -> None:
    binary = rows_from_protobuf(protobuf_body(records, 5), 10).rows
    text = rows_from_json(json_body(records, 5), 10).rows
    for of_protobuf, of_json in zip(binary, text, strict=True):
        assert of_protobuf[:3] == of_json[:3]
