"""What a body says, and the body that is sent on in its place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_client._model_call import _count_chars as sdk_count_chars
from tao_client._model_call import _with_usage as sdk_with_usage
from tao_coordinator.errors import MalformedRequest
from tao_coordinator.service.relay.call import ModelCall, read_call, resolve
from tao_coordinator.service.relay.dialects import ENDPOINTS, Endpoint

CHAT, MESSAGES, RESPONSES, COMPLETIONS, EMBEDDINGS = ENDPOINTS
ALIASES = (("claude-*", "qwen3"), ("claude-opus-*", "never"), ("gpt-oss", "qwen3"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def read(body: bytes | dict[str, object], endpoint: Endpoint = CHAT) -> ModelCall:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_call(endpoint, content, ALIASES)[0]


def test_bytes_stay_as_they_are_where_nothing_must_change() -> None:
    body = b' {"model" : "m",\n "stream":true, "stream_options":{"include_usage":true}, "n":1.0 } '
    call = read(body)
    assert call.content is body
    assert (call.model, call.wants_stream, call.takes_usage_out) == ("m", True, False)


@pytest.mark.parametrize(
    ("endpoint", "body", "takes_usage_out"),
    [
        (CHAT, {"stream": True}, True),
        (COMPLETIONS, {"stream": True}, True),
        (CHAT, {"stream": False}, False),
        (CHAT, {"stream": "yes"}, False),
        (CHAT, {"stream": True, "stream_options": {"include_usage": True}}, False),
        (CHAT, {"stream": True, "stream_options": {"include_usage": False}}, True),
        (CHAT, {"stream": True, "stream_options": None}, True),
        (RESPONSES, {"stream": True}, False),
        (MESSAGES, {"stream": True}, False),
    ],
)
def test_usage_is_asked_for_only_where_it_must_be(
    endpoint: Endpoint, body: dict[str, object], takes_usage_out: bool
) -> None:
    call = read(body, endpoint)
    assert call.takes_usage_out is takes_usage_out
    sent = json.loads(call.content)
    if takes_usage_out:
        assert sent["stream_options"]["include_usage"] is True
        del sent["stream_options"]
        body = {key: value for key, value in body.items() if key != "stream_options"}
    assert sent == body


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_usage_is_asked_for_as_the_sdk_does(document: dict[str, object]) -> None:
    document["stream"] = True
    document.pop("model", None)
    body = json.dumps(document).encode()
    call = read(body)
    if call.takes_usage_out:
        assert json.loads(call.content) == json.loads(sdk_with_usage(body, document))
    assert call.input_chars == sdk_count_chars(body)


def test_other_options_of_a_stream_are_kept() -> None:
    call = read({"stream": True, "stream_options": {"chunk": 5}})
    assert json.loads(call.content)["stream_options"] == {"chunk": 5, "include_usage": True}


@pytest.mark.parametrize(
    ("name", "model"),
    [("claude-opus-5", "qwen3"), ("gpt-oss", "qwen3"), ("gpt-oss-2", "gpt-oss-2"), ("", "")],
)
def test_first_alias_counts(name: str, model: str) -> None:
    assert resolve(name, ALIASES) == model


@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
def test_alias_changes_the_model_and_nothing_else(
    document: dict[str, object], is_nested: bool
) -> None:
    document["model"] = "claude-1"
    if is_nested:
        document["tools"] = [{"model": "claude-1"}]
    call = read(document)
    assert json.loads(call.content) == {**document, "model": "qwen3"}
    assert (call.model, call.is_rewritten) == ("qwen3", True)


def test_alias_keeps_every_other_byte() -> None:
    body = b'{ "messages" : [1.0, "\\u00e4"],\t"model" :\n"claude-1" }'
    assert read(body).content == body.replace(b"claude-1", b"qwen3")


def test_name_that_stands_in_the_prompt_is_not_the_model() -> None:
    body = b'{"messages":[{"content":"say \\"model\\":\\"claude-1\\""}],"model":"claude-1"}'
    assert json.loads(read(body).content)["messages"] == json.loads(body)["messages"]
    # The last of two counts, for JSON's readers and so for the engine.
    assert json.loads(read(b'{"model":"other","model":"claude-1"}').content)["model"] == "qwen3"


def test_what_engines_take_though_it_is_odd_passes() -> None:
    lone = b'{"model":"claude-1","messages":[{"content":"\\ud800"}],"temperature":NaN}'
    call = read(lone)
    assert b"\\ud800" in call.content
    assert call.model == "qwen3"
    streamed = read(lone.replace(b'"temperature"', b'"stream":true,"temperature"'))
    assert streamed.takes_usage_out
    assert b"\\ud800" in streamed.content


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"a":1}x',
        '{"model":"m","stream":true}'.encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read(body)


@pytest.mark.parametrize("model", [7, ["m"], {}, "x" * 257, True])
def test_model_that_is_no_name_is_refused(model: object) -> None:
    with pytest.raises(MalformedRequest, match="model"):
        read({"model": model})


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": 0}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": -3, "max_output_tokens": 4}, 4),
        ({"max_tokens": 10**12}, None),
        ({"max_tokens": "many"}, None),
    ],
)
def test_output_limit(body: dict[str, object], limit: int | None) -> None:
    assert read(body).max_output_tokens == limit


def test_inline_images_count_as_a_prompt_counts_them() -> None:
    image = "data:image/png;base64," + "A" * 100_000
    assert read({"messages": [{"content": image}]}).input_chars < 5_000
