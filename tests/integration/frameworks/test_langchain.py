"""LangChain's agent on LangGraph itself, on `tao_config` and wrapped clients."""

# `create_agent` leaves type parameters of its own open.
# pyright: reportUnknownVariableType=false

import asyncio
import time
from typing import Any

import pytest
from framework_site import ANSWER, Site
from sdk_stubs import free_url

pytest.importorskip("langchain", reason="langchain is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

import httpx2
from langchain.agents import create_agent
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, ToolException
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import tao_client as tao
from tao_client import semconv
from tao_integrations.langchain import TaoCallbackHandler, tao_config

WAYS = ["invoke", "ainvoke", "stream", "astream"]
QUESTION: Any = {"messages": [{"role": "user", "content": "Go."}]}
THREAD: RunnableConfig = {"configurable": {"thread_id": "swe-17"}}


def look(path: str) -> str:
    """Look at a file."""
    time.sleep(0.1)
    return f"contents of {path}"


async def look_async(path: str) -> str:
    """Look at a file."""
    await asyncio.sleep(0.1)
    return f"contents of {path}"


def fail(path: str) -> str:
    """Fail in a way that the model is told."""
    raise ToolException(path)


def crash(path: str) -> str:
    """Fail at a file."""
    raise LookupError(path)


def bash(command: str) -> str:
    """Run a command."""
    return "ok"


async def call(site: Site, config: RunnableConfig, way: str) -> str:
    """Call an agent in one of the ways; what it answered."""
    with tao.wrap(httpx2.Client(trust_env=False)) as client:
        async with tao.wrap(httpx2.AsyncClient(trust_env=False)) as async_client:
            model = ChatOpenAI(
                model="sim",
                base_url=site.base_url,
                api_key=SecretStr("own-key"),
                max_retries=0,
                http_client=client,
                http_async_client=async_client,
            )
            tools = [
                StructuredTool.from_function(look, coroutine=look_async),
                StructuredTool.from_function(fail, handle_tool_error=True),
                StructuredTool.from_function(crash),
                StructuredTool.from_function(bash),
            ]
            agent: Any = create_agent(model, tools)
            state: Any = None
            if way == "invoke":
                state = agent.invoke(QUESTION, config)
            elif way == "ainvoke":
                state = await agent.ainvoke(QUESTION, config)
            elif way == "stream":
                for each in agent.stream(QUESTION, config, stream_mode="values"):
                    state = each
            else:
                async for each in agent.astream(QUESTION, config, stream_mode="values"):
                    state = each
            return state["messages"][-1].content


def run(site: Site, way: str = "ainvoke") -> str:
    async def go() -> str:
        before = tao.current_session()
        with tao_config(THREAD, agent="coder") as config:
            answer = await call(site, config, way)
        assert tao.current_session() is before
        return answer

    return asyncio.run(go())


@pytest.mark.parametrize("way", WAYS)
def test_langchain_run_is_a_session_whose_parallel_tool_calls_are_told(
    site: Site, way: str
) -> None:
    site.plays([("look", {"path": "a"}), ("look", {"path": "b"})])
    site.connect()

    assert run(site, way) == ANSWER

    assert site.tool_calls("swe-17", 2) == {"call_0_0": ("look", None), "call_0_1": ("look", None)}
    assert site.overlap("swe-17")
    start = site.events(semconv.TOOL_START, "swe-17", 2)[0]
    assert start.attributes[semconv.AGENT_NAME] == "coder"
    assert "a" not in start.attributes.values()
    site.assert_placed("swe-17", turns=2)


@pytest.mark.parametrize("way", WAYS)
def test_langchain_tool_error_told_to_the_model_ends_its_call_with_it(site: Site, way: str) -> None:
    site.plays([("fail", {"path": "a"})], [("bash", {"command": "git push --force"})])
    site.connect()

    assert run(site, way) == ANSWER

    ended = site.tool_calls("swe-17", 2)
    assert ended == {"call_0_0": ("fail", "ToolException"), "call_1_0": ("bash", None)}
    shell = site.events(semconv.TOOL_START, "swe-17", 2)[1]
    assert shell.attributes[semconv.TOOL_KEY] == "git push"


@pytest.mark.parametrize("way", WAYS)
def test_langchain_tool_that_raises_ends_its_call_and_the_session(site: Site, way: str) -> None:
    site.plays([("look", {"path": "a"}), ("crash", {"path": "b"})])
    site.connect()

    with pytest.raises(LookupError):
        run(site, way)

    ended = site.tool_calls("swe-17", 2)
    assert ended["call_0_1"] == ("crash", "LookupError")
    end = site.events(semconv.SESSION_END, "swe-17", 1)[0]
    assert end.attributes[semconv.ERROR_TYPE] == "LookupError"


@pytest.mark.parametrize("door", ["handler", "config"])
def test_langchain_run_joins_the_session_around_it(site: Site, door: str) -> None:
    site.plays([("look", {"path": "a"})])
    site.connect()

    with tao.session("outer"):
        if door == "config":
            assert run(site) == ANSWER
        else:
            config: RunnableConfig = {**THREAD, "callbacks": [TaoCallbackHandler()]}
            assert asyncio.run(call(site, config, "ainvoke")) == ANSWER
        assert not site.coordinator.events_named(semconv.SESSION_END)

    assert set(site.tool_calls("outer", 1)) == {"call_0_0"}
    site.assert_placed("outer", turns=2)


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("how", ["disabled", "dead", "broken"])
def test_langchain_run_is_unchanged_without_the_scheduler(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: str, way: str
) -> None:
    site.plays([("look", {"path": "a"}), ("fail", {"path": "b"})])
    if how == "disabled":
        monkeypatch.setenv("TAO_DISABLED", "1")
        site.connect()
    elif how == "dead":
        tao.connect(free_url())
    else:
        monkeypatch.setattr(tao.Session, "tool_call", None)
        monkeypatch.setattr(tao.Session, "end", None)

    assert run(site, way) == ANSWER

    site.assert_untouched(turns=2)
