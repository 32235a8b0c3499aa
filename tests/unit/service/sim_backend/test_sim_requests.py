import json

from tao_coordinator.service.sim_backend.rendering import RenderedCall, RenderedMessage
from tao_coordinator.service.sim_backend.requests import parse_chat, parse_completion


def chat_body(*messages: object, **more: object) -> bytes:
    return json.dumps({"messages": list(messages), **more}).encode()


def test_chat_is_reduced_to_what_counts() -> None:
    request = parse_chat(
        chat_body(
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]},
            {
                "role": "assistant",
                "content": None,
                "function_call": None,
                "tool_calls": [
                    {"id": "1", "function": {"name": "f", "arguments": '{"b":1, "a":2}'}},
                    {"id": "2", "function": {"name": "g", "arguments": {"x": 1}}},
                    {"id": "3", "function": {"name": "h"}},
                ],
            },
            model="m",
            max_tokens=5,
            max_completion_tokens=7,
            stream=True,
            stream_options={"include_usage": True},
            temperature=0.3,
        )
    )
    assert request.messages == (
        RenderedMessage("user", 'a{"type":"image_url"}'),
        RenderedMessage(
            "assistant",
            "",
            (
                RenderedCall("f", '{"a":2,"b":1}'),
                RenderedCall("g", '{"x":1}'),
                RenderedCall("h", "{}"),
            ),
        ),
    )
    assert (request.model, request.tokens_max) == ("m", 7)
    assert request.stream
    assert request.include_usage


def test_null_means_not_given() -> None:
    request = parse_chat(
        chat_body(
            {"role": "user", "content": "a", "tool_calls": None},
            model=None,
            tools=None,
            max_tokens=None,
            stream=None,
            stream_options=None,
            n=1,
        )
    )
    assert (request.model, request.tokens_max) == (None, None)
    assert not request.stream
    assert not request.include_usage


def test_plain_prompt_is_the_prompt() -> None:
    assert parse_completion(b'{"prompt": "x = "}').prompt == "x = "
