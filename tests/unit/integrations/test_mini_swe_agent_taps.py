"""What a tapped model call and a tapped command send, and what they leave alone."""

import logging
import subprocess
from contextvars import copy_context
from typing import Any

import pytest
from litellm.exceptions import Timeout
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_response_model import LitellmResponseModel
from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel
from minisweagent.models.test_models import DeterministicToolcallModel
from minisweagent.models.utils import retry as retry_module
from tenacity import wait_none
from unit.integrations.scripted_server import SUBMIT, Request, ScriptedServer

import tao_client as tao
from tao_client import semconv
from tao_client.testing import Event
from tao_integrations import _mini_swe_agent_taps as taps
from tao_integrations import _quiet
from tao_integrations import mini_swe_agent as mini

PLACED = "/placed/v1/chat/completions"
OWN = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_quiet, "_warnings_given", set[str]())


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """mini-SWE-agent's three attempts, without their 4 s in between."""
    monkeypatch.setenv("MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT", "3")

    def no_wait(**settings: object) -> wait_none:
        return wait_none()

    monkeypatch.setattr(retry_module, "wait_exponential", no_wait)


def only(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event.name == name]


def as_sent(call: Request) -> tuple[str, dict[str, str], dict[str, Any]]:
    """A model call without what differs from one to the next anyway."""
    random = ("x-litellm-call-id", "traceparent")
    headers = {name: value for name, value in call.headers.items() if name not in random}
    return call.path, headers, call.body


# --- model calls ------------------------------------------------------------------------------


def test_usage_goes_back_with_the_lease(server: ScriptedServer, make_agent: Any) -> None:
    tao.connect(server.url)

    mini.bind(make_agent()).run("say hello")
    tao.disconnect()

    usage = [
        {name: release[name] for name in release if name != "duration_s"}
        for release in server.releases()
    ]
    assert usage == [
        {"outcome": "completed", "input_tokens": n, "cached_tokens": 900, "output_tokens": 20}
        for n in (1000, 1001)
    ]


def test_cached_tokens_that_are_not_told_are_not_made_up(
    server: ScriptedServer, make_agent: Any
) -> None:
    tao.connect(server.url)
    server.cached_tokens = None

    mini.bind(make_agent()).run("say hello")
    tao.disconnect()

    assert len(server.releases()) == 2
    assert all("cached_tokens" not in release for release in server.releases())


def test_prompt_length_is_estimated_from_all_text(server: ScriptedServer, make_agent: Any) -> None:
    tao.connect(server.url)

    mini.bind(make_agent()).run("x" * 8_000)

    first, second = (lease.body["input_tokens"] for lease in server.to("/tao/v1/leases"))
    assert 2_000 <= first <= 2_050  # four characters to a token, before anything is known
    assert 1_000 < second < 1_100  # 1,000 were counted, and a little text was added


def test_each_attempt_asks_for_its_own_lease(
    server: ScriptedServer, make_agent: Any, quick_retries: None
) -> None:
    tao.connect(server.url)
    server.failures = [500, 500]

    result = mini.bind(make_agent()).run("say hello")
    tao.disconnect()

    assert result["exit_status"] == "Submitted"
    requests = [lease.body["request_id"] for lease in server.to("/tao/v1/leases")]
    assert len(set(requests)) == 4
    outcomes = [release["outcome"] for release in server.releases()]
    assert outcomes == ["error", "error", "completed", "completed"]


def test_own_headers_and_settings_survive_placement(
    server: ScriptedServer, make_agent: Any, make_model: Any
) -> None:
    tao.connect(server.url)
    settings = {
        "extra_headers": {"x-own": "1", "x-pin": "own"},
        "base_url": f"{server.url}/v1",
        "temperature": 0.25,
        "max_tokens": 77,
        "timeout": 45,
    }
    agent = make_agent(model=make_model(model_kwargs=settings))

    mini.bind(agent).run("say hello")

    call = server.calls()[0]
    assert call.path == PLACED
    assert (call.headers["x-own"], call.headers["x-pin"]) == ("1", "7")
    assert (call.body["temperature"], call.body["max_tokens"]) == (0.25, 77)
    lease = server.to("/tao/v1/leases")[0].body
    assert (lease["timeout_s"], lease["max_output_tokens"]) == (45, 77)
    assert agent.model.config.model_kwargs["extra_headers"] == {"x-own": "1", "x-pin": "own"}


@pytest.mark.parametrize("why", ["refused", "dead", "never connected", "disabled"])
def test_without_affinity_the_call_is_the_one_it_was(
    why: str, server: ScriptedServer, make_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make_agent()
    plain_result = plain.run("say hello")
    expected = [as_sent(call) for call in server.calls()]
    server.requests.clear()
    if why == "refused":
        server.lease_answer = (404, {"error": {"type": "model_not_served", "message": "no"}})
        tao.connect(server.url)
    elif why == "dead":
        tao.connect("http://127.0.0.1:9")
    elif why == "disabled":
        monkeypatch.setenv("TAO_DISABLED", "1")
        tao.connect(server.url)
    agent = mini.bind(make_agent())

    result = agent.run("say hello")

    assert [as_sent(call) for call in server.calls()] == expected
    assert result == plain_result
    assert contents(agent) == contents(plain)
    assert len(server.to("/tao/v1/leases")) == (2 if why == "refused" else 0)


def contents(agent: Any) -> list[tuple[str, Any]]:
    return [(message["role"], message.get("content")) for message in agent.messages]


def test_responses_model_is_placed_too(
    server: ScriptedServer, make_agent: Any, make_model: Any
) -> None:
    tao.connect(server.url)
    model = make_model(LitellmResponseModel)

    result = mini.bind(make_agent(model=model)).run("say hello")
    tao.disconnect()

    assert result["exit_status"] == "Submitted"
    assert [call.path for call in server.calls()] == ["/placed/v1/responses"] * 2
    assert [release["input_tokens"] for release in server.releases()] == [1000, 1001]
    assert [release["cached_tokens"] for release in server.releases()] == [900, 900]


def test_calls_of_litellms_vllm_provider_are_placed(
    server: ScriptedServer, make_agent: Any, make_model: Any
) -> None:
    tao.connect(server.url)
    model = make_model(model_name="hosted_vllm/Qwen/Qwen3-32B")

    mini.bind(make_agent(model=model)).run("say hello")

    assert [call.path for call in server.calls()] == [PLACED] * 2
    assert {call.headers["x-pin"] for call in server.calls()} == {"7"}
    leases = server.to("/tao/v1/leases")
    assert {lease.body["model"] for lease in leases} == {"Qwen/Qwen3-32B"}
    assert {call.body["model"] for call in server.calls()} == {"Qwen/Qwen3-32B"}


def test_hold_of_the_whole_timeout_is_the_models_own_timeout(
    server: ScriptedServer, make_agent: Any, make_model: Any
) -> None:
    tao.connect(server.url)
    server.lease_answer = (
        202,
        {"queue_position": 3, "estimated_wait_s": 90.0, "retry_after_s": 0.05},
    )
    agent = mini.bind(make_agent(model=make_model(model_kwargs={"timeout": 0.3})))

    with pytest.raises(Timeout, match="held for"):
        agent.run("say hello")

    assert server.calls() == []


@pytest.mark.parametrize(
    ("model_name", "kwargs"),
    [("anthropic/claude-x", {}), ("m", {"custom_llm_provider": "bedrock"})],
)
def test_models_of_other_providers_are_left_alone(
    model_name: str, kwargs: dict[str, Any], make_model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(model_name=model_name, model_kwargs=kwargs)

    class Agent:
        env = LocalEnvironment()

    agent: Any = Agent()
    agent.model = model
    with caplog.at_level(logging.WARNING):
        tapped = taps.tap(agent, tao.session("s"))
        taps.untap(taps.tap(agent, tao.session("t")), tao.session("t"))

    assert [one.name for one in tapped] == ["execute"]
    assert "_query" not in vars(model)
    assert [record.message.count("not scheduled") for record in caplog.records] == [1]


def test_model_without_query_still_tells_its_commands(
    server: ScriptedServer,
    events: list[Event],
    make_agent: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tao.connect(server.url)
    outputs = [
        {
            "role": "assistant",
            "content": "a",
            "extra": {"actions": [{"command": command, "tool_call_id": f"c{n}"}], "cost": 0.0},
        }
        for n, command in enumerate(["echo hello", SUBMIT])
    ]

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            model = DeterministicToolcallModel(outputs=outputs)
            result = mini.bind(make_agent(model=model)).run("say hello")
            assert result["exit_status"] == "Submitted"

    ids = [event.attributes[semconv.TOOL_CALL_ID] for event in only(events, semconv.TOOL_END)]
    assert ids == ["c0", "c1"] * 2
    assert server.to("/tao/v1/leases") == []
    assert [record.message.count("it has no `_query`") for record in caplog.records] == [1]


@pytest.mark.parametrize("broken", ["session", "turn", "tool_call", "emit", "acquire", "report"])
def test_whatever_fails_in_the_sdk_does_not_reach_the_agent(
    broken: str,
    server: ScriptedServer,
    make_agent: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = make_agent()
    plain.run("say hello")
    tao.connect(server.url)

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("broken on purpose")

    owner = {"session": tao, "acquire": tao.Turn, "report": tao.Turn}.get(broken, tao.Session)
    monkeypatch.setattr(owner, broken, fail)
    agent = mini.bind(make_agent())

    with caplog.at_level(logging.WARNING, logger="tao_integrations"):
        # In a context of its own: a session that breaks half open stays the current one.
        result = copy_context().run(agent.run, "say hello")

    assert result["exit_status"] == "Submitted"
    assert contents(agent) == contents(plain)
    own = [r for r in caplog.records if r.name == "tao_integrations"]
    assert own
    assert all("the agent goes on without" in record.message for record in own)


# --- commands ---------------------------------------------------------------------------------


def test_command_events_carry_id_limit_and_head_but_no_arguments(
    server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    server.commands = ["cd . && python3 -m this_secret_module --token hunter2 || true", SUBMIT]

    mini.bind(make_agent()).run("say hello")

    start, end = only(events, semconv.TOOL_START)[0], only(events, semconv.TOOL_END)[0]
    assert start.attributes[semconv.TOOL_CALL_ID] == "call_0"
    assert start.attributes[semconv.TOOL_NAME] == "bash"
    assert start.attributes[semconv.TOOL_TIMEOUT] == 30.0
    assert start.attributes[semconv.TOOL_KEY] == "python3 -m this_secret_module"
    assert end.attributes[semconv.TOOL_CALL_ID] == "call_0"
    assert not any("hunter2" in str(event.attributes) for event in events)


def test_submission_is_a_command_that_ended_well(events: list[Event], make_agent: Any) -> None:
    mini.bind(make_agent()).run("say hello")

    end = only(events, semconv.TOOL_END)[-1]
    assert end.attributes[semconv.TOOL_CALL_ID] == "call_1"
    assert semconv.ERROR_TYPE not in end.attributes
    assert only(events, semconv.SESSION_END)[0].attributes[semconv.SESSION_END_REASON] == (
        "completed"
    )


def test_command_that_took_too_long_ended_by_timeout(
    server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    server.commands = ["sleep 20", SUBMIT]
    agent = make_agent(env=LocalEnvironment(timeout=1))

    mini.bind(agent).run("say hello")

    starts, ends = only(events, semconv.TOOL_START), only(events, semconv.TOOL_END)
    assert starts[0].attributes[semconv.TOOL_TIMEOUT] == 1.0
    assert ends[0].attributes[semconv.ERROR_TYPE] == "timeout"
    assert semconv.ERROR_TYPE not in ends[1].attributes
    observation = agent.messages[3]["extra"]
    assert observation["exception_type"] == subprocess.TimeoutExpired.__name__


def test_command_that_fails_ended_all_the_same(
    server: ScriptedServer, events: list[Event], make_agent: Any
) -> None:
    server.commands = ["exit 3", SUBMIT]

    mini.bind(make_agent()).run("say hello")

    assert len(only(events, semconv.TOOL_END)) == 2
    assert semconv.ERROR_TYPE not in only(events, semconv.TOOL_END)[0].attributes


def test_environment_that_raises_ends_the_command_and_raises(
    events: list[Event], make_agent: Any
) -> None:
    error = OSError("no such container")

    class Broken(LocalEnvironment):
        def execute(self, *args: object, **kwargs: object) -> dict[str, Any]:
            raise error

    with pytest.raises(OSError, match="no such container") as raised:
        mini.bind(make_agent(env=Broken())).run("say hello")

    assert raised.value is error
    assert only(events, semconv.TOOL_END)[0].attributes[semconv.ERROR_TYPE] == "OSError"


def test_commands_without_an_id_get_one(
    server: ScriptedServer, events: list[Event], make_agent: Any, make_model: Any
) -> None:
    command = f"```mswea_bash_command\n{SUBMIT}\n```"
    model = make_model(LitellmTextbasedModel)
    plain = server.answer

    def answer(request: Request) -> tuple[int, dict[str, Any]]:
        status, document = plain(request)
        if "choices" in document:
            document["choices"][0]["message"] = {"role": "assistant", "content": command}
        return status, document

    server.answer = answer

    result = mini.bind(make_agent(model=model)).run("say hello")

    assert result["exit_status"] == "Submitted"
    start, end = only(events, semconv.TOOL_START)[0], only(events, semconv.TOOL_END)[0]
    assert start.attributes[semconv.TOOL_CALL_ID] == end.attributes[semconv.TOOL_CALL_ID] != ""
