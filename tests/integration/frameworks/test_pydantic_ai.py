"""Pydantic AI itself, on `TaoCapability` and a wrapped client."""

import asyncio

import pytest
from framework_site import ANSWER, Site
from sdk_stubs import free_url

pytest.importorskip("pydantic_ai", reason="pydantic-ai-slim is not installed")

from openai import AsyncOpenAI
from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import tao_client as tao
from tao_client import semconv
from tao_integrations.pydantic_ai import TaoCapability


async def look(path: str) -> str:
    """Look at a file."""
    await asyncio.sleep(0.1)
    return f"contents of {path}"


async def retry(path: str) -> str:
    """Ask the model for better arguments."""
    raise ModelRetry("no such path")


async def crash(path: str) -> str:
    """Fail at a file."""
    raise LookupError(path)


def bash(command: str) -> str:
    """Run a command."""
    return "ok"


def run(site: Site, *conversation_ids: str, at_once: bool = False) -> list[str]:
    """Runs of one agent; what each answered."""

    async def go() -> list[str]:
        async with tao.wrap(AsyncOpenAI(base_url=site.base_url, max_retries=0)) as client:
            agent = Agent(
                OpenAIChatModel("sim", provider=OpenAIProvider(openai_client=client)),
                name="coder",
                tools=[Tool(look, timeout=30), retry, crash, bash],
                capabilities=[TaoCapability()],
            )
            runs = (agent.run("Go.", conversation_id=name) for name in conversation_ids)
            before = tao.current_session()
            results = await asyncio.gather(*runs) if at_once else [await one for one in runs]
            assert tao.current_session() is before
            return [result.output for result in results]

    return asyncio.run(go())


def test_pydantic_ai_run_is_a_session_whose_parallel_tool_calls_are_told(site: Site) -> None:
    site.plays([("look", {"path": "a"}), ("look", {"path": "b"})])
    site.connect()

    assert run(site, "swe-17") == [ANSWER]

    assert site.tool_calls("swe-17", 2) == {"call_0_0": ("look", None), "call_0_1": ("look", None)}
    assert site.overlap("swe-17")
    start = site.events(semconv.TOOL_START, "swe-17", 2)[0]
    assert start.attributes[semconv.TOOL_TIMEOUT] == 30.0
    assert start.attributes[semconv.AGENT_NAME] == "coder"
    assert "a" not in start.attributes.values()
    site.assert_placed("swe-17", turns=2)


@pytest.mark.parametrize("at_once", [True, False])
def test_pydantic_ai_runs_are_sessions_of_their_own(site: Site, at_once: bool) -> None:
    site.plays([("look", {"path": "a"})], [("bash", {"command": "git push --force"})])
    site.connect()

    assert run(site, "one", "two", at_once=at_once) == [ANSWER, ANSWER]

    for name in ("one", "two"):
        assert set(site.tool_calls(name, 2)) == {"call_0_0", "call_1_0"}
        shell = site.events(semconv.TOOL_START, name, 2)[1]
        assert shell.attributes[semconv.TOOL_KEY] == "git push"
        assert semconv.PARENT_SESSION_ID not in shell.attributes
    placed = [call.headers["x-session-id"] for call in site.leased.calls]
    assert sorted(placed) == ["one"] * 3 + ["two"] * 3


def test_pydantic_ai_retry_ends_its_call_with_an_error(site: Site) -> None:
    site.plays([("retry", {"path": "a"})])
    site.connect()

    assert run(site, "swe-17") == [ANSWER]

    (name, error) = site.tool_calls("swe-17", 1)["call_0_0"]
    assert name == "retry"
    assert error is not None


def test_pydantic_ai_tool_that_raises_ends_its_call_and_the_session(site: Site) -> None:
    site.plays([("crash", {"path": "a"}), ("look", {"path": "b"})])
    site.connect()

    with pytest.raises(LookupError):
        run(site, "swe-17")

    ended = site.tool_calls("swe-17", 2)
    assert ended == {"call_0_0": ("crash", "LookupError"), "call_0_1": ("look", "cancelled")}
    end = site.events(semconv.SESSION_END, "swe-17", 1)[0]
    assert end.attributes[semconv.ERROR_TYPE] == "LookupError"


def test_pydantic_ai_run_joins_the_session_around_it(site: Site) -> None:
    site.plays([("look", {"path": "a"})])
    site.connect()

    with tao.session("outer"):
        assert run(site, "inner") == [ANSWER]
        assert not site.coordinator.events_named(semconv.SESSION_END)

    assert set(site.tool_calls("outer", 1)) == {"call_0_0"}
    site.assert_placed("outer", turns=2)


@pytest.mark.parametrize("how", ["disabled", "dead", "broken"])
def test_pydantic_ai_run_is_unchanged_without_the_scheduler(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    site.plays([("look", {"path": "a"}), ("retry", {"path": "b"})])
    if how == "disabled":
        monkeypatch.setenv("TAO_DISABLED", "1")
        site.connect()
    elif how == "dead":
        tao.connect(free_url())
    else:
        monkeypatch.setattr(tao.Session, "tool_call", None)
        monkeypatch.setattr(tao.Session, "end", None)

    assert run(site, "swe-17") == [ANSWER]

    site.assert_untouched(turns=2)
