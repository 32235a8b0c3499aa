"""Spans as rows: both encodings alike, garbage refused."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_bodies import SpanSpec, json_spans_body, protobuf_spans_body

from tao_client import semconv
from tao_coordinator.adapters.events.spans import SpanRow, rows_from_json, rows_from_protobuf
from tao_coordinator.errors import MalformedRequest

both_encodings = pytest.mark.parametrize(
    ("read", "build"),
    [(rows_from_protobuf, protobuf_spans_body), (rows_from_json, json_spans_body)],
    ids=["protobuf", "json"],
)
Read = Callable[[bytes, int], Any]
Build = Callable[..., bytes]


@both_encodings
def test_span_is_read(read: Read, build: Build) -> None:
    span = SpanSpec(
        parent_span_id="eee19b7ec3c1b173",
        is_error=True,
        attributes={semconv.TOOL_NAME: "bash", "of.somebody.else": 1},
    )
    rows, num_skipped = read(build([span]), 10)
    assert num_skipped == 0
    assert rows == (
        SpanRow(
            name="execute_tool bash",
            trace_id=bytes.fromhex("5b8efff798038103d269b633813fc60c"),
            span_id=bytes.fromhex("eee19b7ec3c1b174"),
            parent_span_id=bytes.fromhex("eee19b7ec3c1b173"),
            start_unix_ns=1_000_000_000,
            end_unix_ns=3_500_000_000,
            is_error=True,
            attributes={semconv.TOOL_NAME: "bash"},
        ),
    )


@both_encodings
def test_spans_beyond_the_limit_are_counted(read: Read, build: Build) -> None:
    rows, num_skipped = read(build([SpanSpec()] * 5), 3)
    assert (len(rows), num_skipped) == (3, 2)


@pytest.mark.parametrize("body", [b"[]", b"x", b'{"resourceSpans": [{"scopeSpans": [7]}]}'])
def test_broken_json_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        rows_from_json(body, 10)


def test_json_span_of_nothing_is_a_row_of_nothing() -> None:
    body = b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": 5, "status": 5}]}]}]}'
    assert rows_from_json(body, 10).rows == (SpanRow("", b"", b"", b"", 0, 0, False, {}),)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        rows_from_protobuf(body, 10)
    except MalformedRequest:
        return
