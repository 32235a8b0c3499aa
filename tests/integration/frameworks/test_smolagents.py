"""smolagents itself, on the two agent classes and a wrapped client."""

# smolagents is typed in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from framework_site import ANSWER, Site
from sdk_stubs import free_url

pytest.importorskip("smolagents", reason="smolagents is not installed")

from smolagents import LogLevel, OpenAIModel, tool

import tao_client as tao
from tao_client import semconv
from tao_integrations.smolagents import TaoCodeAgent, TaoToolCallingAgent

FINAL = [("final_answer", {"answer": ANSWER})]


@tool
def look(path: str) -> str:
    """Look at a file.

    Args:
        path: Path of the file.
    """
    time.sleep(0.1)
    return f"contents of {path}"


@tool
def crash(path: str) -> str:
    """Fail at a file.

    Args:
        path: Path of the file.
    """
    raise LookupError(path)


@tool
def bash(command: str) -> str:
    """Run a command.

    Args:
        command: The command line.
    """
    return "ok"


@contextmanager
def model(site: Site) -> Generator[Any]:
    with site.http_client() as client:
        yield OpenAIModel(
            "sim",
            api_base=site.base_url,
            api_key="own-key",
            client_kwargs={"http_client": client, "max_retries": 0},
            retry=False,
        )


def run(site: Site, *, stream: bool = False) -> Any:
    """One run of an agent; what it answered."""
    before = tao.current_session()
    # What the model has said is not in the messages of a turn whose tool has failed.
    site.leased.counts_calls = site.own.counts_calls = True
    with model(site) as own_model:
        agent = TaoToolCallingAgent(
            tools=[look, crash, bash], model=own_model, name="coder", verbosity_level=LogLevel.OFF
        )
        if not stream:
            answer = agent.run("Go.")
        else:
            *_, last = agent.run("Go.", stream=True)
            answer = last.output
    assert tao.current_session() is before
    return answer


@pytest.mark.parametrize("stream", [False, True])
def test_smolagents_parallel_tool_calls_are_told(site: Site, stream: bool) -> None:
    site.plays([("look", {"path": "a"}), ("look", {"path": "b"})], final=FINAL)
    site.connect()

    with tao.session("swe-17"):
        assert run(site, stream=stream) == ANSWER

    assert site.tool_calls("swe-17", 2) == {"call_0_0": ("look", None), "call_0_1": ("look", None)}
    assert site.overlap("swe-17")
    start = site.events(semconv.TOOL_START, "swe-17", 2)[0]
    assert "a" not in start.attributes.values()
    site.assert_placed("swe-17", turns=2)


def test_smolagents_tool_that_raises_ends_its_call_and_the_run_goes_on(site: Site) -> None:
    site.plays([("crash", {"path": "a"})], [("bash", {"command": "git push --force"})], final=FINAL)
    site.connect()

    with tao.session("swe-17"):
        assert run(site) == ANSWER

    ended = site.tool_calls("swe-17", 2)
    assert ended == {"call_0_0": ("crash", "LookupError"), "call_1_0": ("bash", None)}
    shell = site.events(semconv.TOOL_START, "swe-17", 2)[1]
    assert shell.attributes[semconv.TOOL_KEY] == "git push"


@pytest.mark.parametrize("stream", [False, True])
def test_smolagents_run_without_a_session_opens_one(site: Site, stream: bool) -> None:
    site.plays([("look", {"path": "a"})], final=FINAL)
    site.connect()

    assert run(site, stream=stream) == ANSWER

    (session_id,) = {str(lease.json["session_id"]) for lease in site.coordinator.leases}
    assert set(site.tool_calls(session_id, 1)) == {"call_0_0"}
    end = site.events(semconv.SESSION_END, session_id, 1)[0]
    assert end.attributes[semconv.AGENT_NAME] == "coder"
    assert end.attributes[semconv.SESSION_END_REASON] == "completed"


def test_smolagents_managed_agent_is_a_child_session(site: Site) -> None:
    site.plays([("helper", {"task": "Help.", "additional_args": {}})], final=FINAL)
    site.connect()

    with model(site) as own_model:
        quietly: dict[str, Any] = {"model": own_model, "verbosity_level": LogLevel.OFF}
        helper = TaoToolCallingAgent(
            tools=[look], name="helper", description="Helps.", max_steps=1, **quietly
        )
        chief = TaoToolCallingAgent(tools=[], managed_agents=[helper], **quietly)
        with tao.session("swe-17"):
            assert chief.run("Go.") == ANSWER

    assert site.tool_calls("swe-17", 1)["call_0_0"][0] == "helper"
    starts = site.coordinator.events_named(semconv.SESSION_START)
    parents = [start.attributes.get(semconv.PARENT_SESSION_ID) for start in starts]
    assert parents == [None, "swe-17"]
    assert starts[1].attributes[semconv.AGENT_NAME] == "helper"


def test_smolagents_code_is_one_tool_call_per_execution(site: Site) -> None:
    for backend in (site.leased, site.own):
        backend.answer = '<code>final_answer(look("a"))</code>'
    site.connect()

    with model(site) as own_model, tao.session("swe-17"):
        agent = TaoCodeAgent(tools=[look], model=own_model, verbosity_level=LogLevel.OFF)
        assert agent.run("Go.") == "contents of a"
        agent.cleanup()

    ((name, error),) = site.tool_calls("swe-17", 1).values()
    assert (name, error) == ("python_interpreter", None)
    site.assert_placed("swe-17", turns=1)


@pytest.mark.parametrize("how", ["disabled", "dead", "broken"])
def test_smolagents_run_is_unchanged_without_the_scheduler(
    site: Site, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    site.plays([("look", {"path": "a"}), ("crash", {"path": "b"})], final=FINAL)
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
