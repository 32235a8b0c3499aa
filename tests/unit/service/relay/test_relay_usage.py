"""The relay's reading of usage: the SDK's rule, byte for byte, however a stream is cut."""

import json
from collections.abc import Sequence

import pytest
import sdk_api_stubs as api
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_client import _usage as sdk
from tao_coordinator.service.relay import usage
from tao_coordinator.service.relay.dialects import LAST_EVENT_MARKS, Dialect
from tao_coordinator.service.relay.usage import BodyReader, StreamReader, Usage, read_usage

TEXT_WITH_MARKS = 'say "usage": {} and data: [DONE] and "message_stop"\n\n'


def lines(events: Sequence[tuple[str, object]], ending: str = "\n") -> bytes:
    parts: list[str] = []
    for name, data in events:
        text = data if isinstance(data, str) else json.dumps(data)
        parts.append((f"event: {name}{ending}" if name else "") + f"data: {text}{ending}{ending}")
    return "".join(parts).encode()


def chat(content: str, ending: str = "\n") -> bytes:
    def chunk(**fields: object) -> object:
        return {"id": "c", "choices": [{"index": 0, "delta": {"content": content}}], **fields}

    last: object = {"id": "c", "choices": [], "usage": api.COMPLETION_USAGE}
    return lines([("", chunk()), ("", chunk(usage=None)), ("", last), ("", "[DONE]")], ending)


STREAMS = {
    "chat": (Dialect.CHAT, chat("hi")),
    "chat-crlf": (Dialect.CHAT, chat("hi", "\r\n")),
    "chat-marks": (Dialect.CHAT, chat(TEXT_WITH_MARKS)),
    "chat-no-end": (Dialect.CHAT, chat("hi").rstrip()),
    "comments": (Dialect.CHAT, b": ping\n\n" + chat("hi") + b"\n\n: bye\n\n"),
    "responses": (Dialect.RESPONSES, lines(api.response_events())),
    "messages": (Dialect.MESSAGES, lines(api.message_events())),
    "no-json": (Dialect.CHAT, b'data: {"usage": {oops\n\ndata: [DONE]\n\n'),
    "no-stream": (Dialect.CHAT, b"<html>nothing of the kind</html>"),
}


def reader(dialect: Dialect, *, takes_usage_out: bool = False) -> StreamReader:
    return StreamReader(takes_usage_out=takes_usage_out, last_mark=LAST_EVENT_MARKS[dialect])


def counted(found: object) -> tuple[object, object, object]:
    assert isinstance(found, Usage | sdk.Usage)
    return found.input_tokens, found.cached_tokens, found.output_tokens


@pytest.mark.parametrize("name", STREAMS)
@settings(max_examples=40)
@given(data=st.data())
def test_stream_is_read_as_the_sdk_reads_it(name: str, data: st.DataObject) -> None:
    dialect, stream = STREAMS[name]
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    takes_usage_out = data.draw(st.booleans())
    ours = reader(dialect, takes_usage_out=takes_usage_out)
    theirs = sdk.StreamReader(takes_usage_out=takes_usage_out)
    passed = {"ours": b"", "theirs": b""}
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        passed["ours"] += ours.feed(stream[start:end])
        passed["theirs"] += theirs.feed(stream[start:end])
    passed["ours"] += ours.end()
    passed["theirs"] += theirs.end()
    assert passed["ours"] == passed["theirs"]
    assert counted(ours.usage) == counted(theirs.usage)
    assert (ours.has_token, ours.is_complete) == (theirs.has_token, theirs.is_complete)
    if not takes_usage_out:
        assert passed["ours"] == stream


def test_only_the_usage_chunk_is_taken_out() -> None:
    stream = chat("hi")
    events = stream.split(b"\n\n")
    found = reader(Dialect.CHAT, takes_usage_out=True)
    assert found.feed(stream) + found.end() == b"\n\n".join([*events[:2], *events[3:]])
    assert counted(found.usage) == tuple(api.COUNTED.values())


def test_what_passes_before_a_cut_ends_with_an_event() -> None:
    stream = chat("hi")
    for cut in range(len(stream)):
        found = reader(Dialect.CHAT)
        passed = b"".join(found.feed(stream[at : at + 7]) for at in range(0, cut, 7))
        assert passed == b"" or passed.endswith(b"\n\n")
        assert found.is_whole


def test_endless_event_passes_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LONGEST_EVENT_BYTES", 100)
    found = reader(Dialect.CHAT)
    passed = b"".join(found.feed(b"x" * 30) for _ in range(5))
    assert passed + found.end() == b"x" * 150
    assert not found.is_whole


DOCUMENTS: list[object] = [
    {"usage": api.COMPLETION_USAGE},
    {"usage": api.MESSAGE_USAGE},
    api.response("completed"),
    {"response": api.response("completed")},
    {"message": api.message()},
    {"usage": {"prompt_tokens": -1, "completion_tokens": True, "prompt_tokens_details": 7}},
    {"usage": {"cache_read_input_tokens": None, "input_tokens": 1.5}},
    {"usage": {"prompt_tokens": 10**18, "prompt_tokens_details": {"cached_tokens": 10**18}}},
    {"usage": {"input_tokens": 10**8, "cache_read_input_tokens": 1}},
    {"usage": [1], "response": "x", "message": None},
    [],
    None,
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_are_read_as_the_sdk_reads_them(document: object) -> None:
    assert counted(read_usage(document)) == counted(sdk.read_usage(document))
    body = json.dumps(document).encode()
    found = BodyReader()
    assert found.feed(body[:5]) + found.feed(body[5:]) + found.end() == body
    assert counted(found.usage) == counted(sdk.read_usage(document))
