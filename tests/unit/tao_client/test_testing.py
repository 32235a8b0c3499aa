"""`tao_client.testing`, as the author of an agent would use it in his own tests."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionMessageParam

import tao_client as tao
from tao_client.testing import ScriptedModel, ToolRequest, capture_events, reset


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    reset()
    yield
    reset()


def client_of(model: ScriptedModel) -> OpenAI:
    return tao.wrap(OpenAI(http_client=model.http_client(), api_key="none", max_retries=0))


# --- an agent, as its author has written it ----------------------------------------------------


@tao.tool(timeout_s=30)
def bash(command: str) -> str:
    return f"ran {command}"


@tao.agent(session_id_from="task")
def solve(task: str, client: OpenAI) -> str:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task}]
    while True:
        reply = client.chat.completions.create(model="m", messages=messages).choices[0].message
        if not reply.tool_calls:
            return str(reply.content)
        calls = [
            c for c in reply.tool_calls if isinstance(c, ChatCompletionMessageFunctionToolCall)
        ]
        messages.append({"role": "assistant", "content": reply.content})
        for call in calls:
            output = bash(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


# --- and his tests of it ------------------------------------------------------------------------


def test_agent_runs_the_tools_that_the_model_asks_for() -> None:
    model = ScriptedModel(
        ToolRequest("bash", {"command": "git status"}),
        [ToolRequest("bash", {"command": "ls"}), ToolRequest("bash", {"command": "pwd"})],
        "fixed",
    )
    with capture_events() as events:
        assert solve("swe-17", client_of(model)) == "fixed"
    assert [event.name.removeprefix("tao.") for event in events] == [
        "session.start",
        *["tool.start", "tool.end"] * 3,
        "session.end",
    ]
    assert {event.attributes["gen_ai.conversation.id"] for event in events} == {"swe-17"}
    keys = [event.attributes["tao.tool.key"] for event in events if "tool.start" in event.name]
    assert keys == ["git status", "ls", "pwd"]
    assert len(model.requests) == 3
    assert "ran git status" in str(model.requests[1]["messages"])


def test_agent_passes_on_what_the_model_fails_with() -> None:
    with capture_events() as events, pytest.raises(openai.InternalServerError):
        solve("swe-17", client_of(ScriptedModel(500)))
    assert events[-1].attributes["error.type"] == "InternalServerError"


def test_agent_that_does_not_stop_is_told_that_the_script_is_over() -> None:
    client = client_of(ScriptedModel(ToolRequest("bash", {"command": "ls"})))
    with pytest.raises(openai.BadRequestError, match="the script is over after 1 replies"):
        solve("swe-17", client)


def test_streams_are_played_word_by_word() -> None:
    model = ScriptedModel("two words", ToolRequest("bash", {"command": "ls"}), "x")
    client = client_of(model)
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "?"}]
    stream = client.chat.completions.create(model="m", messages=asked, stream=True)
    words = [chunk.choices[0].delta.content for chunk in stream]
    assert words == ["", "two", " words", None]
    stream = client.chat.completions.create(
        model="m", messages=asked, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    (call,) = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert call.function is not None
    assert (call.id, call.function.arguments) == ("call-1-0", '{"command": "ls"}')
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert last.usage is not None
    assert last.usage.total_tokens == last.usage.prompt_tokens + last.usage.completion_tokens


def test_asynchronous_clients_have_theirs() -> None:
    model = ScriptedModel("hello")

    async def main() -> str | None:
        client = AsyncOpenAI(http_client=model.async_http_client(), api_key="none")
        async with tao.wrap(client) as wrapped:
            reply = await wrapped.chat.completions.create(model="m", messages=[])
            return reply.choices[0].message.content

    assert asyncio.run(main()) == "hello"


def test_model_has_a_name_and_no_other_endpoint() -> None:
    client = client_of(ScriptedModel())
    assert [model.id for model in client.models.list()] == ["scripted"]
    with pytest.raises(openai.NotFoundError, match=r"no /v1/embeddings"):
        client.embeddings.create(model="m", input="x")


def test_httpx_of_openai_2_is_answered_in_kind() -> None:
    httpx = pytest.importorskip("httpx", reason="httpx is not installed")
    model = ScriptedModel("hello")
    with httpx.Client(transport=httpx.MockTransport(model.respond)) as client:
        reply = client.post("http://model/v1/chat/completions", json={"messages": []})
    assert reply.json()["choices"][0]["message"]["content"] == "hello"


def test_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)

    def my_agent(client: OpenAI) -> str:
        return solve("tidy up", client)

    names: dict[str, object] = {"my_agent": my_agent}
    exec(example, names)
    test = names["test_agent_runs_the_tool"]
    assert callable(test)
    test()
