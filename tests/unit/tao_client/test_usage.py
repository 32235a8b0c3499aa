import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_client import _usage
from tao_client._usage import BodyReader, StreamReader, Usage, read_usage

CHAT = {
    "prompt_tokens": 10,
    "completion_tokens": 4,
    "prompt_tokens_details": {"cached_tokens": 8},
}


@pytest.mark.parametrize(
    ("document", "usage"),
    [
        ({"usage": CHAT}, Usage(10, 8, 4)),
        ({"usage": {"prompt_tokens": 10, "completion_tokens": 4}}, Usage(10, None, 4)),
        ({"usage": {"prompt_tokens": 10, "prompt_tokens_details": None}}, Usage(10, None, None)),
        (
            {
                "response": {
                    "usage": {
                        "input_tokens": 7,
                        "input_tokens_details": {"cached_tokens": 0},
                        "output_tokens": 2,
                    }
                }
            },
            Usage(7, 0, 2),
        ),
        (
            {
                "message": {
                    "usage": {
                        "input_tokens": 3,
                        "cache_read_input_tokens": 20,
                        "cache_creation_input_tokens": 5,
                        "output_tokens": 1,
                    }
                }
            },
            Usage(28, 20, 1),
        ),
        ({"usage": {"cache_read_input_tokens": None}}, Usage()),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": True}}, Usage()),
        ({"usage": {"prompt_tokens": 1.5}}, Usage()),
        ({"usage": {"prompt_tokens": 10**18, "completion_tokens": 10**8 + 1}}, Usage()),
        ({"usage": {"input_tokens": 10**8, "cache_read_input_tokens": 1}}, Usage(None, 1)),
        ({"usage": None}, Usage()),
        ({}, Usage()),
        ([], Usage()),
    ],
)
def test_usage_of_every_dialect(document: object, usage: Usage) -> None:
    assert read_usage(document) == usage


def test_body_is_read_at_its_end() -> None:
    body = json.dumps({"usage": CHAT}).encode()
    reader = BodyReader()
    assert reader.feed(body[:9]) == body[:9]
    assert reader.feed(body[9:]) == body[9:]
    assert reader.usage == Usage()
    assert reader.end() == b""
    assert reader.usage == Usage(10, 8, 4)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[1]", b"[" * 100_000])
def test_body_that_is_no_reply_has_no_usage(body: bytes) -> None:
    reader = BodyReader()
    reader.feed(body)
    reader.end()
    assert reader.usage == Usage()


def test_very_long_body_passes_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_usage, "LONGEST_BODY_BYTES", 10)
    reader = BodyReader()
    body = json.dumps({"usage": CHAT}).encode()
    assert reader.feed(body) == body
    reader.end()
    assert reader.usage == Usage()


def chunk(word: str, **more: object) -> dict[str, object]:
    return {"choices": [{"delta": {"content": word}}], **more}


def stream(*data: object, ending: str = "\n") -> bytes:
    lines = [one if isinstance(one, str) else f"data: {json.dumps(one)}" for one in data]
    return "".join(f"{line}{ending}{ending}" for line in lines).encode()


LAST: dict[str, object] = {"choices": [], "usage": CHAT}


def feed(reader: StreamReader, raw: bytes, sizes: list[int]) -> bytes:
    passed = b""
    for size in sizes:
        passed += reader.feed(raw[:size])
        raw = raw[size:]
    return passed + reader.feed(raw) + reader.end()


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), max_size=40),
    ending=st.sampled_from(["\n", "\r\n"]),
    takes_out=st.booleans(),
    words=st.lists(st.text(max_size=12), max_size=5),
)
def test_only_the_usage_chunk_is_taken_out_however_the_bytes_are_cut(
    sizes: list[int], ending: str, takes_out: bool, words: list[str]
) -> None:
    said = [chunk(word, usage=None) for word in words]
    raw = stream(": keep-alive", *said, LAST, "data: [DONE]", ending=ending)
    without = stream(": keep-alive", *said, "data: [DONE]", ending=ending)
    reader = StreamReader(takes_usage_out=takes_out)
    assert feed(reader, raw, sizes) == (without if takes_out else raw)
    assert reader.usage == Usage(10, 8, 4)
    assert reader.is_complete


def test_events_pass_as_soon_as_they_are_whole() -> None:
    reader = StreamReader(takes_usage_out=True)
    first = stream(chunk("a"))
    assert reader.feed(first[:-1]) == b""
    assert reader.feed(first[-1:]) == first
    assert not reader.is_complete


def test_text_that_speaks_of_usage_is_not_taken_for_it() -> None:
    said = chunk('{"usage": {"prompt_tokens": 99}, "choices": []} [DONE] "message_stop"')
    reader = StreamReader(takes_usage_out=True)
    raw = stream(said)
    assert feed(reader, raw, []) == raw
    assert reader.usage == Usage()
    assert not reader.is_complete


def test_usage_beside_choices_stays() -> None:
    said = chunk("a", usage=CHAT)
    reader = StreamReader(takes_usage_out=True)
    raw = stream(said)
    assert feed(reader, raw, []) == raw
    assert reader.usage == Usage(10, 8, 4)


def test_last_event_without_a_blank_line_is_read() -> None:
    reader = StreamReader(takes_usage_out=True)
    raw = stream(LAST).rstrip(b"\n")
    assert feed(reader, raw, [5]) == b""
    assert reader.usage == Usage(10, 8, 4)
    reader = StreamReader(takes_usage_out=True)
    assert feed(reader, b"data: [DONE]", []) == b"data: [DONE]"
    assert reader.is_complete


@pytest.mark.parametrize("takes_out", [False, True])
def test_event_longer_than_any_passes_unread(
    monkeypatch: pytest.MonkeyPatch, takes_out: bool
) -> None:
    monkeypatch.setattr(_usage, "LONGEST_EVENT_BYTES", 50)
    raw = b"event: x\n" + b"data: " + b"y" * 100 + b"\n\n" + stream(LAST)
    reader = StreamReader(takes_usage_out=takes_out)
    assert feed(reader, raw, [20, 70, 30, 7]) == raw
    assert reader.usage == Usage()


def test_usage_that_is_no_json_passes() -> None:
    for raw in (
        b'data: {"usage": {broken\n\n',
        b'data: {"usage": {' + b'"a":[' * 100_000 + b"\n\n",
    ):
        reader = StreamReader(takes_usage_out=True)
        assert feed(reader, raw, []) == raw


@pytest.mark.parametrize(
    "last",
    [
        {"type": "response.completed", "response": {"usage": {"input_tokens": 7}}},
        {"type": "response.failed", "response": {"usage": {"input_tokens": 7}}},
    ],
)
def test_responses_stream_says_when_it_is_over(last: dict[str, object]) -> None:
    reader = StreamReader(takes_usage_out=False)
    reader.feed(stream({"type": "response.output_text.delta", "delta": "a"}))
    assert not reader.is_complete
    reader.feed(stream(last))
    assert reader.is_complete
    assert reader.usage.input_tokens == 7


def test_messages_stream_adds_up() -> None:
    reader = StreamReader(takes_usage_out=False)
    usage = {"input_tokens": 3, "cache_read_input_tokens": 20, "output_tokens": 1}
    reader.feed(stream({"type": "message_start", "message": {"usage": usage}}))
    reader.feed(stream({"type": "message_delta", "usage": {"output_tokens": 55}}))
    assert not reader.is_complete
    reader.feed(stream({"type": "message_stop"}))
    assert reader.is_complete
    assert reader.usage == Usage(23, 20, 55)


@pytest.mark.parametrize(
    "repeated",
    [
        {"input_tokens": 3},
        {"input_tokens": 3, "cache_read_input_tokens": None, "cache_creation_input_tokens": None},
        {"input_tokens": None, "cache_read_input_tokens": 20},
    ],
)
def test_messages_stream_that_repeats_a_part_keeps_the_rest(repeated: dict[str, object]) -> None:
    reader = StreamReader(takes_usage_out=False)
    first = {
        "input_tokens": 3,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 5,
        "output_tokens": 1,
    }
    reader.feed(stream({"type": "message_start", "message": {"usage": first}}))
    last = {**repeated, "output_tokens": 55}
    reader.feed(stream({"type": "message_delta", "usage": last}))
    assert reader.usage == Usage(28, 20, 55)


def test_messages_stream_corrects_what_it_first_said() -> None:
    """As vLLM does it: first the whole prompt, at the end without what the cache held."""
    reader = StreamReader(takes_usage_out=False)
    first = {"input_tokens": 1775, "output_tokens": 0}
    reader.feed(stream({"type": "message_start", "message": {"usage": first}}))
    assert reader.usage == Usage(1775, None, 0)
    last = {"input_tokens": 111, "cache_read_input_tokens": 1664, "output_tokens": 9}
    reader.feed(stream({"type": "message_delta", "usage": last}))
    assert reader.usage == Usage(1775, 1664, 9)


@pytest.mark.parametrize(
    "opening",
    ["response.created", "response.queued", "response.in_progress", "message_start", "ping"],
)
def test_what_opens_a_stream_is_no_token(opening: str) -> None:
    reader = StreamReader(takes_usage_out=False)
    reader.feed(b": a comment that keeps the connection alive\n\n")
    reader.feed(stream({"type": opening, "response": {"instructions": "x"}}))
    assert not reader.has_token
    reader.feed(stream({"type": "any_delta", "delta": "a"}))
    assert reader.has_token


def test_both_readers_look_alike() -> None:
    makers: list[Callable[[], BodyReader | StreamReader]] = [
        BodyReader,
        lambda: StreamReader(takes_usage_out=True),
    ]
    for make in makers:
        assert make().end() == b""
