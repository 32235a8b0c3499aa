"""What type checkers make of a user's code. Checked by pyright, never run.

Each line that must be refused says by which rule, and an ignore that nothing needs is an error.
tests/unit/tao_client/test_user_typing.py sees to it that this file is really checked.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncGenerator, Generator
from typing import assert_type

import httpx2
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

import tao_client as tao
from tao_client.testing import AttributeValue, ScriptedModel, ToolRequest, capture_events

tao.connect("http://a:8700", api_key="k", on_hold=lambda hold: hold.queue_position)
tao.connect("http://a:8700,http://b:8700")
tao.connect(["http://a:8700", "http://b:8700"], spans=True)
tao.connect(8700)  # pyright: ignore[reportArgumentType]

# A wrapped client is what it was.
assert_type(tao.wrap(OpenAI()), OpenAI)
assert_type(tao.wrap(AsyncOpenAI()), AsyncOpenAI)
assert_type(tao.wrap(Anthropic()), Anthropic)
assert_type(tao.wrap(AsyncAnthropic()), AsyncAnthropic)
assert_type(tao.wrap(httpx2.Client()), httpx2.Client)
assert_type(tao.http_client(), httpx2.Client)
assert_type(tao.async_http_client(timeout_s=None), httpx2.AsyncClient)


# A decorated function is what it was, in every form.
@tao.tool
def bash(command: str, *, check: bool = False) -> str:
    return command * check


@tao.tool(timeout_s=30, key="fetch")
async def fetch(url: str) -> bytes:
    return url.encode()


@tao.tool
def lines(path: str) -> Generator[str, int, bool]:
    yield path
    return True


@tao.tool(background=True)
async def follow(path: str) -> AsyncGenerator[str]:
    yield path


@tao.agent(session_id_from="task")
async def solve(task: str) -> list[str]:
    return [task]


class Tools:
    @tao.tool
    def search(self, query: str) -> int:
        return len(query)


assert_type(bash("ls", check=True), str)
assert_type(lines("a"), Generator[str, int, bool])
assert_type(follow("a"), AsyncGenerator[str])
assert_type(Tools().search("a"), int)
bash(3)  # pyright: ignore[reportArgumentType]
bash("ls", True)  # pyright: ignore[reportCallIssue]
tao.tool(timeout=30)  # pyright: ignore[reportCallIssue]

# Sessions, calls and turns.
with tao.session("swe-17", priority=1) as session:
    assert_type(session, tao.Session)
    assert_type(session.environment(), dict[str, str])
    assert_type(session.run(bash, "ls", check=True), str)
    session.run(bash, 3)  # pyright: ignore[reportArgumentType]
    session.wait("lunch")  # pyright: ignore[reportArgumentType]
    with session.tool_call("pytest", timeout_s=600) as call:
        assert_type(call, tao.ToolCall)
        assert_type(call.progress(0.4, remaining_s=12), None)
    with session.turn(model="m") as turn:
        assert_type(turn.affinity, tao.Affinity | None)
        assert_type(turn.base_url("http://own/v1"), str)
assert_type(tao.current_session(), tao.Session | None)


async def asynchronous() -> None:
    assert_type(await fetch("a"), bytes)
    assert_type(await solve(task="a"), list[str])
    async with tao.session() as session, session.turn() as turn:
        assert_type(turn.receipt, tao.Receipt | None)


# Tests of the user's own.
with capture_events() as events:
    assert_type(events[0].attributes["tao.tool.key"], AttributeValue)
model = ScriptedModel(ToolRequest("bash", {"command": "ls"}), "done", 500)
assert_type(model.requests, list[dict[str, object]])
OpenAI(http_client=model.http_client())
AsyncOpenAI(http_client=model.async_http_client())
OpenAI(http_client=model.async_http_client())  # pyright: ignore[reportArgumentType]

try:
    tao.connect()
except tao.ConfigurationError as error:
    assert_type(error, tao.ConfigurationError)
