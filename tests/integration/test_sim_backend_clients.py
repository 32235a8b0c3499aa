"""The modelled backend and the real OpenAI client: sync, async, streaming, scripted tool calls."""

import asyncio
from collections.abc import Generator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from sim_backend_server import running_sim_backend, sim_settings

from tao_coordinator.service.sim_backend.scripts import parse_scripts
from tao_coordinator.service.sim_backend.server import SimBackendServer

SCRIPT = {
    "scripts": {
        "fix": {
            "turns": [
                {
                    "text": "Look first.",
                    "tool_calls": [
                        {"name": "bash", "arguments": {"command": "ls", "cwd": "/src"}},
                        {"name": "bash", "arguments": {"command": "git status"}},
                    ],
                    "output_tokens": 100,
                },
                {"tool_calls": [{"name": "bash", "arguments": {"command": "pytest"}}]},
                {"text": "Fixed it."},
            ]
        }
    }
}
BASH: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


@pytest.fixture(scope="module")
def backend() -> Generator[SimBackendServer]:
    with running_sim_backend(sim_settings(scripts=parse_scripts(SCRIPT))) as server:
        yield server


@pytest.fixture
def client(backend: SimBackendServer) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{backend.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_scripted_session_gets_tool_calls_and_hits_prompt_and_reply(client: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "You fix bugs. " * 100},
        {"role": "user", "content": "[[script fix]] Please fix the bug in a/b.py. " * 20},
    ]
    computed_tokens = 0
    commands: list[list[str]] = []
    for turn in range(4):
        answer = client.chat.completions.create(
            model="sim/test", messages=messages, tools=[BASH], max_tokens=1000
        )
        usage = answer.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        # All full blocks of the last prompt and its reply, whose last token was never computed.
        assert usage.prompt_tokens_details.cached_tokens == computed_tokens // 16 * 16
        computed_tokens = usage.prompt_tokens + usage.completion_tokens - 1
        choice = answer.choices[0]
        calls = choice.message.tool_calls or []
        assert choice.finish_reason == ("tool_calls" if calls else "stop")
        if turn == 0:
            assert usage.completion_tokens == 100
        messages.append(choice.message.model_dump())  # type: ignore[arg-type]
        commands.append([])
        for call in calls:
            assert call.type == "function"
            commands[-1].append(call.function.arguments)
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": "some output\n" * 30}
            )
        if not calls:
            messages.append({"role": "user", "content": "Go on."})
    assert commands == [
        ['{"command":"ls","cwd":"/src"}', '{"command":"git status"}'],
        ['{"command":"pytest"}'],
        [],
        [],
    ]
    ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert len(set(ids)) == 3


def test_echo_may_differ_in_ids_key_order_and_null_content(client: openai.OpenAI) -> None:
    first: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "[[script fix]] " + "Another bug. " * 80},
        {"role": "assistant", "content": "Looked."},
    ]
    answer = client.chat.completions.create(model="sim/test", messages=first)
    usage = answer.usage
    assert usage is not None
    call = (answer.choices[0].message.tool_calls or [])[0]
    assert call.type == "function"
    assert answer.choices[0].message.content is None
    echo: ChatCompletionMessageParam = {
        "tool_calls": [
            {
                "function": {"arguments": '{ "command" : "pytest" }', "name": "bash"},
                "type": "function",
                "id": "renamed",
            }
        ],
        "content": "",
        "role": "assistant",
    }
    again = client.chat.completions.create(
        model="sim/test",
        messages=[
            *first,
            echo,
            {
                "role": "tool",
                "tool_call_id": "renamed",
                "content": [{"type": "text", "text": "ok " * 40}],
            },
        ],
    )
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    computed_tokens = usage.prompt_tokens + usage.completion_tokens - 1
    assert again.usage.prompt_tokens_details.cached_tokens == computed_tokens // 16 * 16


def test_stream_accumulates_to_the_same_message(client: openai.OpenAI) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "[[script fix]] go"}]
    whole = client.chat.completions.create(model="sim/test", messages=messages).choices[0].message
    with client.chat.completions.stream(model="sim/test", messages=messages) as stream:
        for _ in stream:
            pass
        streamed = stream.get_final_completion().choices[0].message
    assert streamed.content == whole.content
    got = [
        (call.id, call.function.name, call.function.arguments) for call in streamed.tool_calls or []
    ]
    assert got == [
        (call.id, call.function.name, call.function.arguments)
        for call in whole.tool_calls or []
        if call.type == "function"
    ]
    assert len(got) == 2


def test_max_tokens_cuts_a_scripted_reply_and_drops_broken_calls(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="sim/test",
        messages=[{"role": "user", "content": "[[script fix]] go"}],
        max_completion_tokens=7,
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls is None
    assert (answer.choices[0].message.content or "").startswith("Look first. ")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7


async def stream_async(base_url: str) -> tuple[str, int]:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="sim/test",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=60,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, tokens = "", 0
        async for chunk in stream:
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
        return text, tokens


def test_async_client_streams(backend: SimBackendServer) -> None:
    text, tokens = asyncio.run(stream_async(f"{backend.url}/v1"))
    assert tokens == 60
    assert len(text.split()) > 20


def test_errors_reach_the_client_as_its_own_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="no", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.chat.completions.create(
            model="sim/test", messages=[{"role": "user", "content": "x" * 600_000}]
        )


def test_open_stream_ends_with_an_error_when_the_backend_stops() -> None:
    with running_sim_backend(sim_settings(time_scale=1)) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        stream = client.chat.completions.create(
            model="sim/test",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=10_000,
            stream=True,
        )
        assert next(iter(stream)).choices[0].delta.role == "assistant"
        server.request_exit()
        with pytest.raises(openai.APIError, match="takes no more requests"):
            for _ in stream:
                pass
        client.close()
