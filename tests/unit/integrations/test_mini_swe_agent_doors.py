"""The three doors of the mini-SWE-agent integration: what becomes a session, how it ends."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from litellm.exceptions import NotFoundError
from minisweagent.agents.default import DefaultAgent
from minisweagent.run.benchmarks.utils.common import ProgressTrackingAgent
from unit.integrations.scripted_server import SUBMIT, ScriptedServer

import tao_client as tao
from tao_client import semconv
from tao_client.testing import Event
from tao_integrations import mini_swe_agent as mini

ONE_COMMAND = [
    semconv.SESSION_START,
    semconv.TOOL_START,
    semconv.TOOL_END,
    semconv.TOOL_START,
    semconv.TOOL_END,
    semconv.SESSION_END,
]
"""Events of a run of `echo hello` and the submission."""


class Instance(DefaultAgent):
    """As the batch runs have it."""

    instance_id = "django__django-11099"


@pytest.fixture(autouse=True)
def uninstrumented() -> Iterator[None]:
    yield
    mini.uninstrument()


def session_ids(events: list[Event]) -> set[Any]:
    return {event.attributes[semconv.CONVERSATION_ID] for event in events}


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


@pytest.mark.parametrize("door", ["class", "instrument", "bind"])
def test_each_door_makes_a_run_one_session(
    door: str, server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    tao.connect(server.url)
    agent = make_agent(mini.TaoDefaultAgent if door == "class" else None)
    if door == "instrument":
        mini.instrument()
    elif door == "bind":
        assert mini.bind(agent) is agent

    result = agent.run("say hello")

    assert result["exit_status"] == "Submitted"
    assert names(events) == ONE_COMMAND
    (session_id,) = session_ids(events)
    assert session_id.startswith("mini-")
    assert [call.path for call in server.calls()] == ["/placed/v1/chat/completions"] * 2
    assert {call.headers["x-session-id"] for call in server.calls()} == {session_id}
    leases = [lease.body for lease in server.to("/tao/v1/leases")]
    assert [lease["session_id"] for lease in leases] == [session_id] * 2
    assert [lease["model"] for lease in leases] == ["sim"] * 2
    assert [lease["agent"] for lease in leases] == ["mini-swe-agent"] * 2
    assert "_query" not in vars(agent.model)
    assert "execute" not in vars(agent.env)


def test_all_doors_at_once_are_one_session(events: list[Event], make_agent: Any) -> None:
    mini.instrument()
    agent = mini.bind(make_agent(mini.TaoDefaultAgent))

    agent.run("say hello")

    assert names(events) == ONE_COMMAND


def test_instrument_names_sessions_after_instances(events: list[Event], make_agent: Any) -> None:
    mini.instrument()

    make_agent(Instance).run("fix it")

    assert session_ids(events) == {"django__django-11099"}


def test_instrument_takes_names_from_a_function(events: list[Event], make_agent: Any) -> None:
    mini.instrument()
    mini.instrument(session_id=lambda agent: f"{agent.instance_id}.try-2")

    make_agent(Instance).run("fix it")

    assert session_ids(events) == {"django__django-11099.try-2"}


def test_uninstrument_leaves_nothing_behind(events: list[Event], make_agent: Any) -> None:
    original = vars(DefaultAgent)["run"]
    mini.instrument()
    mini.instrument()
    mini.uninstrument()

    make_agent().run("say hello")

    assert vars(DefaultAgent)["run"] is original
    assert events == []


def test_batch_agents_inherit_the_instrumented_run() -> None:
    mini.instrument()

    assert "run" not in vars(ProgressTrackingAgent)
    assert issubclass(ProgressTrackingAgent, DefaultAgent)


def test_bind_to_a_session_of_the_caller_neither_opens_nor_ends_it(
    events: list[Event], make_agent: Any
) -> None:
    with tao.session("mine") as session:
        agent = mini.bind(make_agent(), session)
        agent.run("say hello")
        agent.run("say it again")
        assert names(events) == [semconv.SESSION_START, *ONE_COMMAND[1:-1] * 2]
    assert session_ids(events) == {"mine"}


def test_bound_agent_may_be_stepped_by_the_caller(
    server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    tao.connect(server.url)
    agent = mini.bind(make_agent(), tao.session("stepped"))
    agent.add_messages({"role": "user", "content": "say hello"})

    agent.step()

    assert names(events) == [semconv.TOOL_START, semconv.TOOL_END]
    assert server.calls()[0].headers["x-session-id"] == "stepped"


def attributes_of(agent: Any) -> list[dict[str, Any]]:
    parts: tuple[Any, ...] = (agent, agent.model, agent.env)
    return [{**part.__dict__} for part in parts]


def test_unbind_gives_the_agent_back_as_it_was(events: list[Event], make_agent: Any) -> None:
    agent = make_agent()
    before = attributes_of(agent)
    mini.bind(agent, tao.session("mine"))
    mini.bind(agent)

    assert mini.unbind(agent) is agent

    assert attributes_of(agent) == before
    agent.run("say hello")
    assert events == []


def test_a_second_run_is_a_second_session(events: list[Event], make_agent: Any) -> None:
    agent = mini.bind(make_agent())
    agent.run("say hello")
    agent.run("say hello")

    assert names(events) == ONE_COMMAND * 2
    assert len(session_ids(events)) == 2


def test_agent_inside_a_session_is_its_child(events: list[Event], make_agent: Any) -> None:
    with tao.session("campaign", tenant="team-a"):
        mini.bind(make_agent()).run("say hello")

    starts = [event for event in events if event.name == semconv.SESSION_START]
    assert [start.attributes.get(semconv.PARENT_SESSION_ID) for start in starts] == [
        None,
        "campaign",
    ]


def test_failed_run_ends_its_session_and_raises_what_it_raised(
    server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    tao.connect(server.url)
    raised: list[Exception] = []
    agents = [make_agent(), mini.bind(make_agent())]
    for agent in agents:
        server.failures = [404]
        with pytest.raises(NotFoundError) as info:
            agent.run("say hello")
        raised.append(info.value)

    plain, bound = raised
    assert str(bound) == str(plain)
    assert type(bound.__cause__) is type(plain.__cause__)
    end = events[-1]
    assert end.name == semconv.SESSION_END
    assert end.attributes[semconv.SESSION_END_REASON] == "error"
    assert end.attributes[semconv.ERROR_TYPE] == "NotFoundError"
    assert "_query" not in vars(agents[1].model)
    assert "execute" not in vars(agents[1].env)


def test_interrupted_run_is_cancelled(events: list[Event], make_agent: Any) -> None:
    agent = mini.bind(make_agent())

    def interrupt(action: dict[str, Any], cwd: str = "") -> dict[str, Any]:
        raise KeyboardInterrupt

    agent.env.execute = interrupt

    with pytest.raises(KeyboardInterrupt):
        agent.run("say hello")

    assert [event.attributes.get(semconv.ERROR_TYPE) for event in events[-2:]] == [
        "cancelled",
        "KeyboardInterrupt",
    ]
    assert events[-1].attributes[semconv.SESSION_END_REASON] == "cancelled"
    assert agent.env.execute is interrupt


def test_agents_that_share_model_and_environment_keep_their_sessions_apart(
    server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    tao.connect(server.url)
    server.commands = ["echo a", "sleep 0.05", "echo b", SUBMIT]
    mini.instrument()
    first = make_agent(Instance)
    agents = [first, *(make_agent(Instance, model=first.model, env=first.env) for _ in range(3))]
    for number, agent in enumerate(agents):
        agent.instance_id = f"i-{number}"
    threads = [
        threading.Thread(target=agent.run, args=(f"task of {agent.instance_id}",))
        for agent in agents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for agent in agents:
        own = [e for e in events if e.attributes[semconv.CONVERSATION_ID] == agent.instance_id]
        assert names(own) == [ONE_COMMAND[0], *ONE_COMMAND[1:3] * 4, ONE_COMMAND[-1]]
    asked = {
        (call.headers["x-session-id"], call.body["messages"][1]["content"])
        for call in server.calls()
    }
    assert asked == {(f"i-{n}", f"task of i-{n}") for n in range(4)}
    assert len(server.calls()) == 16
    assert "_query" not in vars(first.model)
    assert "execute" not in vars(first.env)
