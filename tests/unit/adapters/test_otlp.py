"""The OTLP receiver: encodings, limits, statuses, partial success, de-duplication, and garbage."""

import gzip
import json
import zlib
from collections.abc import Callable

import pytest
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from otlp_bodies import Record, json_body, protobuf_body

from tao_client import semconv
from tao_coordinator.adapters import otlp
from tao_coordinator.adapters.otlp import JSON, PROTOBUF, DecodedLogs, RecentUids, decode_logs
from tao_coordinator.adapters.otlp_records import KNOWN_ATTRIBUTES
from tao_coordinator.core.events import SessionEnded, ToolStarted

NOW_S = 1_796_000_000.0
START: Record = (
    semconv.TOOL_START,
    {
        semconv.CONVERSATION_ID: "s1",
        semconv.TOOL_CALL_ID: "c1",
        semconv.TOOL_NAME: "bash",
        semconv.TOOL_TIMEOUT: 30,
        semconv.TOOL_REMAINING: 2.5,
        semconv.TOOL_BACKGROUND: False,
        semconv.RECORD_UID: "u1",
    },
)
BROKEN: Record = (semconv.TOOL_START, {semconv.CONVERSATION_ID: "s1"})
FOREIGN: Record = ("codex.tool_result", {"call_id": "c9"})
STARTED = ToolStarted(
    session_id="s1", call_id="c1", name="bash", timeout_s=30.0, remaining_s=2.5, background=False
)

both_encodings = pytest.mark.parametrize(
    ("content_type", "build"), [(PROTOBUF, protobuf_body), (JSON, json_body)]
)
Build = Callable[[list[Record]], bytes]


def decode(body: bytes, content_type: str, content_encoding: str = "") -> DecodedLogs:
    return decode_logs(
        body, content_type=content_type, content_encoding=content_encoding, now_unix_s=NOW_S
    )


def error_message(logs: DecodedLogs) -> str:
    if logs.reply.content_type == PROTOBUF:
        return Status.FromString(logs.reply.body).message
    return json.loads(logs.reply.body)["message"]


def partial_success(logs: DecodedLogs) -> tuple[int, str]:
    if logs.reply.content_type == PROTOBUF:
        partial = ExportLogsServiceResponse.FromString(logs.reply.body).partial_success
        return partial.rejected_log_records, partial.error_message
    partial_json = json.loads(logs.reply.body)["partialSuccess"]
    return int(partial_json["rejectedLogRecords"]), partial_json["errorMessage"]


@both_encodings
def test_request_is_read_and_answered_in_its_encoding(content_type: str, build: Build) -> None:
    logs = decode(build([START]), content_type + "; charset=utf-8")
    assert [record.event for record in logs.records] == [STARTED]
    assert (logs.reply.status, logs.reply.content_type) == (200, content_type)
    assert logs.reply.body == (b"" if content_type == PROTOBUF else b"{}")


@both_encodings
@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)],
)
def test_compressed_request_is_read(
    content_type: str, build: Build, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    logs = decode(compress(build([START])), content_type, encoding)
    assert [record.event for record in logs.records] == [STARTED]


def test_gzip_of_several_members_is_read() -> None:
    body = json_body([START])
    logs = decode(gzip.compress(body[:40]) + gzip.compress(body[40:]), JSON, "gzip")
    assert [record.event for record in logs.records] == [STARTED]


@pytest.mark.parametrize(("content_type", "body"), [(PROTOBUF, b""), (JSON, b"{}")])
def test_empty_request_succeeds(content_type: str, body: bytes) -> None:
    logs = decode(body, content_type)
    assert (logs.reply.status, logs.records) == (200, ())


@both_encodings
def test_invalid_record_is_rejected_alone(content_type: str, build: Build) -> None:
    logs = decode(build([BROKEN, START, FOREIGN, BROKEN]), content_type)
    assert [record.event for record in logs.records] == [STARTED]
    number, message = partial_success(logs)
    assert (logs.reply.status, number) == (200, 2)
    assert semconv.TOOL_CALL_ID in message
    assert (logs.rejected_names, logs.num_ignored) == ((semconv.TOOL_START,) * 2, 1)


@both_encodings
def test_name_may_stand_in_the_attribute(content_type: str, build: Build) -> None:
    old_style = ("", {**START[1], "event.name": semconv.TOOL_START})
    assert [record.event for record in decode(build([old_style]), content_type).records] == [
        STARTED
    ]


@pytest.mark.parametrize("number", [30, "30", 30.0])
def test_json_takes_numbers_as_strings_or_numbers(number: object) -> None:
    kind = "doubleValue" if isinstance(number, float) else "intValue"
    body = json.loads(json_body([START]))
    record = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    record["attributes"] = [
        {"key": semconv.TOOL_TIMEOUT, "value": {kind: number}, "unknown": [1]},
        *(a for a in record["attributes"] if a["key"] != semconv.TOOL_TIMEOUT),
    ]
    record["timeUnixNano"] = int((NOW_S - 5) * 1e9)
    logs = decode(json.dumps(body).encode(), JSON)
    event = logs.records[0].event
    assert isinstance(event, ToolStarted)
    assert event.timeout_s == 25.0


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "status"),
    [
        (b"\xff\xff\xff", PROTOBUF, "", 400),
        (b"not json", JSON, "", 400),
        (b"", JSON, "", 400),
        (b"[]", JSON, "", 400),
        (b'{"resourceLogs": {}}', JSON, "", 400),
        (b'{"resourceLogs": [{"scopeLogs": [7]}]}', JSON, "", 400),
        (b"no gzip at all", PROTOBUF, "gzip", 400),
        (gzip.compress(b"{}")[:-4], JSON, "gzip", 400),
        (gzip.compress(b"") * 1000, JSON, "gzip", 400),
        (b"{}", JSON, "br", 415),
        (b"{}", "text/plain", "", 415),
        (b"{}", "", "", 415),
        (b" " * (otlp.BODY_BYTES_MAX + 1), JSON, "", 413),
        (gzip.compress(bytes(100_000_000), 1), PROTOBUF, "gzip", 413),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_bad_request_has_its_status(
    body: bytes, content_type: str, encoding: str, status: int
) -> None:
    logs = decode(body, content_type, encoding)
    assert logs.reply.status == status
    assert not logs.records
    assert logs.reply.content_type == (content_type if content_type == PROTOBUF else JSON)
    assert error_message(logs)


@both_encodings
def test_records_beyond_the_limit_are_rejected_unread(
    content_type: str, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "RECORDS_MAX", 3)
    logs = decode(build([START] * 5), content_type)
    assert len(logs.records) == 3
    assert partial_success(logs)[0] == 2


def test_record_without_uid_is_known_by_what_it_says() -> None:
    end: Record = (semconv.SESSION_END, {semconv.CONVERSATION_ID: "s1"})
    once, again = (
        decode(protobuf_body([end], time_unix_ns=int(NOW_S * 1e9)), PROTOBUF).records[0]
        for _ in range(2)
    )
    later = decode(protobuf_body([end], time_unix_ns=int(NOW_S * 1e9) + 1), PROTOBUF).records[0]
    unstamped = decode(protobuf_body([end]), PROTOBUF).records[0]
    assert once.event == SessionEnded(session_id="s1")
    assert once.uid == again.uid != later.uid
    recent = RecentUids()
    fresh = [recent.is_new(r.uid) for r in (once, again, later, unstamped, unstamped)]
    assert fresh == [True, False, True, True, True]


def test_recent_uids_forget_the_oldest() -> None:
    recent = RecentUids(limit=2)
    assert [recent.is_new(uid) for uid in ("a", "b", "a", "c")] == [True, True, False, True]
    # `b` was the least recently seen when `c` came.
    assert [recent.is_new(uid) for uid in ("a", "c", "b")] == [False, False, True]
    assert len(recent) == 2


JSON_KEYS = [
    "resourceLogs",
    "scopeLogs",
    "logRecords",
    "attributes",
    "key",
    "value",
    "eventName",
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
        | st.dictionaries(
            st.sampled_from(JSON_KEYS) | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
attribute_values = (
    st.text(max_size=300)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.lists(st.text(max_size=4), max_size=3)
)
records = st.lists(
    st.tuples(
        st.sampled_from(sorted(semconv.EVENT_NAMES)) | st.text(max_size=5),
        st.dictionaries(
            st.sampled_from(sorted(KNOWN_ATTRIBUTES)),
            attribute_values,
            max_size=6,
        ),
    ),
    max_size=4,
)


@given(
    body=st.binary(max_size=200),
    content_type=st.sampled_from([PROTOBUF, JSON, "x"]),
    encoding=st.sampled_from(["", "gzip", "deflate", "br"]),
)
def test_any_bytes_get_an_answer(body: bytes, content_type: str, encoding: str) -> None:
    assert decode(body, content_type, encoding).reply.status in (200, 400, 413, 415)


@given(json_values)
def test_any_json_gets_an_answer(value: object) -> None:
    wrapped = {"resourceLogs": [{"scopeLogs": [{"logRecords": [value]}]}]}
    for candidate in (value, wrapped):
        assert decode(json.dumps(candidate).encode(), JSON).reply.status in (200, 400)


@given(records)
def test_every_record_is_read_rejected_or_ignored(records: list[Record]) -> None:
    for content_type, body in ((PROTOBUF, protobuf_body(records)), (JSON, json_body(records))):
        logs = decode(body, content_type)
        assert logs.reply.status == 200
        assert len(logs.records) + len(logs.rejected_names) + logs.num_ignored == len(records)
        if logs.rejected_names:
            assert partial_success(logs)[0] == len(logs.rejected_names)
