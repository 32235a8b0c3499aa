"""The OpenAI Agents SDK itself, on `TaoRunHooks` and a wrapped client."""

import asyncio
from typing import Any

import pytest
from framework_site import ANSWER, Site
from sdk_stubs import free_url

agents = pytest.importorskip("agents", reason="openai-agents is not installed")

from openai import AsyncOpenAI  # noqa: E402

import tao_client as tao  # noqa: E402
from tao_client import semconv  # noqa: E402
from tao_integrations.openai_agents import TaoRunHooks  # noqa: E402


async def look(path: str) -> str:
    """Look at a file."""
    await asyncio.sleep(0.1)
    return f"contents of {path}"


async def fail(path: str) -> str:
    """Fail at a file."""
    raise LookupError(path)


async def bash(command: str) -> str:
    """Run a command."""
    return "ok"


def run(site: Site, session_id: str | None = "swe-17") -> Any:
    """One run of an agent; what it answered."""

    async def go() -> Any:
        async with tao.wrap(AsyncOpenAI(base_url=site.base_url, max_retries=0)) as client:
            agent = agents.Agent(
                name="coder",
                model=agents.OpenAIChatCompletionsModel("sim", openai_client=client),
                tools=[
                    agents.function_tool(look, timeout=30),
                    agents.function_tool(bash),
                    agents.function_tool(fail),
                    agents.function_tool(fail, name_override="crash", failure_error_function=None),
                ],
            )
            with TaoRunHooks(session_id, agent="coder") as hooks:
                return (await agents.Runner.run(agent, "Go.", hooks=hooks)).final_output

    return asyncio.run(go())


def test_agents_run_is_a_session_whose_parallel_tool_calls_are_told(site: Site) -> None:
    site.plays([("look", {"path": "a"}), ("look", {"path": "b"})])
    site.connect()

    assert run(site) == ANSWER

    assert site.tool_calls("swe-17", 2) == {"call_0_0": ("look", None), "call_0_1": ("look", None)}
    assert site.overlap("swe-17")
    start = site.events(semconv.TOOL_START, "swe-17", 2)[0]
    assert start.attributes[semconv.TOOL_TIMEOUT] == 30.0
    assert "a" not in start.attributes.values()
    site.assert_placed("swe-17", turns=2)


def test_agents_tool_error_told_to_the_model_ends_its_call(site: Site) -> None:
    site.plays([("fail", {"path": "a"})], [("bash", {"command": "git push --force"})])
    site.connect()

    assert run(site) == ANSWER

    assert set(site.tool_calls("swe-17", 2)) == {"call_0_0", "call_1_0"}
    shell = site.events(semconv.TOOL_START, "swe-17", 2)[1]
    assert shell.attributes[semconv.TOOL_KEY] == "git push"


def test_agents_tool_that_raises_ends_its_call_and_the_session_with_the_error(site: Site) -> None:
    site.plays([("crash", {"path": "a"}), ("look", {"path": "b"})])
    site.connect()

    with pytest.raises(Exception, match="Error running tool crash: a"):
        run(site)

    ended = site.tool_calls("swe-17", 2)
    assert ended["call_0_0"][1] is not None
    end = site.events(semconv.SESSION_END, "swe-17", 1)[0]
    assert end.attributes[semconv.SESSION_END_REASON] == "error"


def test_agents_run_joins_the_session_around_it(site: Site) -> None:
    site.plays([("look", {"path": "a"})])
    site.connect()

    with tao.session("outer"):
        assert run(site, None) == ANSWER
        assert not site.coordinator.events_named(semconv.SESSION_END)

    assert set(site.tool_calls("outer", 1)) == {"call_0_0"}
    site.assert_placed("outer", turns=2)


@pytest.mark.parametrize("how", ["disabled", "dead", "broken"])
def test_agents_run_is_unchanged_without_the_scheduler(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: str
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

    assert run(site) == ANSWER

    site.assert_untouched(turns=2)
