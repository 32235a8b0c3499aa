"""The SDK from outside: whole processes that import, exit, crash and fork."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sdk_stubs import BackendStub, CoordinatorStub, eventually, free_url

HEAVY = [
    "anyio",
    "asyncio",
    "httpx",
    "httpx2",
    "numpy",
    "openai",
    "opentelemetry",
    "requests",
    "starlette",
    "tao_coordinator",
    "uvicorn",
]


@pytest.fixture
def coordinator() -> Iterator[CoordinatorStub]:
    with BackendStub() as backend, CoordinatorStub(backend.url) as stub:
        yield stub


def run_agent(
    source: str, environment: dict[str, str] | None = None, *, flags: tuple[str, ...] = ()
) -> "subprocess.CompletedProcess[str]":
    """Run a script in a process of its own, with warnings as errors."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAO_")}
    return subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", source],
        env=inherited | (environment or {}),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def test_import_loads_nothing_heavy() -> None:
    script = f"""
import sys, json
import tao_client
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    done = run_agent(script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_openai_is_never_loaded_by_the_sdk(coordinator: CoordinatorStub) -> None:
    script = """
import sys
import tao_client as tao
tao.connect()
with tao.session("s") as s, s.turn(model="m") as turn, s.tool_call("x"):
    assert turn.affinity is not None
tao.disconnect()
assert "openai" not in sys.modules
assert "opentelemetry.sdk" in sys.modules
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url})
    assert (done.returncode, done.stderr) == (0, "")


def test_without_an_endpoint_nothing_is_loaded_started_or_changed() -> None:
    script = """
import sys, threading
import tao_client as tao

@tao.tool(timeout_s=3)
def bash(command: str) -> str:
    return command

with tao.session("s") as s, s.turn(model="m") as turn, s.tool_call("x") as call:
    call.progress(0.5)
    assert bash("ls") == "ls"
    assert turn.base_url("http://own/v1") == "http://own/v1"
    assert turn.headers == {}
    assert turn.affinity is None and turn.receipt is None
    assert tao.current_session() is s
assert threading.active_count() == 1
assert "httpx2" not in sys.modules
"""
    done = run_agent(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_disabled_is_a_no_op_even_with_an_endpoint(coordinator: CoordinatorStub) -> None:
    script = """
import openai, threading
import tao_client as tao
tao.connect("http://127.0.0.1:1")
client = openai.OpenAI(base_url="http://127.0.0.1:1/v1", api_key="k")
before = client._client._transport
assert tao.wrap(client) is client
assert client._client._transport is before
with tao.session("s") as s, s.turn(model="m") as turn, s.tool_call("x"):
    assert turn.affinity is None
assert threading.active_count() == 1
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url, "TAO_DISABLED": "1"})
    assert (done.returncode, done.stderr) == (0, "")
    assert not coordinator.requests


def test_endpoint_that_cannot_work_is_told_and_harms_nothing() -> None:
    script = """
import tao_client as tao
with tao.session("s") as s, s.turn(model="m") as turn:
    assert turn.affinity is None
"""
    done = run_agent(script, {"TAO_ENDPOINT": "coordinator:8700"})
    assert done.returncode == 0
    assert "calls are not scheduled" in done.stderr
    assert "http://coordinator:8700" in done.stderr


ENDINGS = {
    "normal": ("pass", 0, "completed"),
    "exit": ("sys.exit(0)", 0, "completed"),
    "failed exit": ("sys.exit(3)", 3, "error"),
    "exception": ("raise ValueError('of the agent')", 1, "error"),
    "interrupt": ("raise KeyboardInterrupt", -2, "cancelled"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_last_words_arrive_however_the_process_ends(
    coordinator: CoordinatorStub, ending: str
) -> None:
    statement, status, reason = ENDINGS[ending]
    script = f"""
import sys
import tao_client as tao
with tao.session("s") as s:
    with s.turn(model="m") as turn:
        turn.report(output_tokens=5)
    {statement}
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url})
    assert done.returncode == status
    (end,) = coordinator.events_named("tao.session.end")
    assert end.attributes["tao.session.end.reason"] == reason
    assert coordinator.releases[0]["output_tokens"] == 5


def test_exit_with_a_dead_coordinator_is_quick_and_quiet() -> None:
    script = """
import logging, time
logging.getLogger("tao_client").setLevel(logging.ERROR)
import tao_client as tao
with tao.session("s") as s, s.turn(model="m"), s.tool_call("x"):
    pass
started_s = time.monotonic()
import atexit
atexit._run_exitfuncs()
print(time.monotonic() - started_s)
"""
    done = run_agent(script, {"TAO_ENDPOINT": free_url()})
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) < 3, "1 s, and slack for a loaded machine"


def test_stream_left_open_at_exit_says_nothing(coordinator: CoordinatorStub) -> None:
    script = """
import openai
import tao_client as tao
client = tao.wrap(openai.OpenAI(base_url="http://127.0.0.1:1/v1", api_key="k"))
stream = client.chat.completions.create(model="m", messages=[], stream=True)
next(iter(stream))
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url}, flags=("-W", "ignore"))
    assert (done.returncode, done.stderr) == (0, "")


def test_forked_children_speak_for_themselves(coordinator: CoordinatorStub) -> None:
    """Parent and children send their own events and turns; none ends what is another's."""
    script = """
import os, sys
import tao_client as tao

tao.connect()
with tao.session("parent") as s:
    outer = s.tool_call("outer", call_id="outer").__enter__()
    with s.turn(model="m") as turn:
        children = []
        for number in range(4):
            child = os.fork()
            if child == 0:
                with tao.session(f"child-{number}") as c:
                    with c.turn(model="m") as inner, c.tool_call("inner"):
                        assert inner.affinity is not None
                turn.finish("error")
                outer.__exit__(None, None, None)
                sys.exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
    outer.__exit__(None, None, None)
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url})
    assert (done.returncode, done.stderr) == (0, "")
    ends = coordinator.events_named("tao.session.end")
    ended = sorted(str(one.attributes["gen_ai.conversation.id"]) for one in ends)
    assert ended == ["child-0", "child-1", "child-2", "child-3", "parent"]
    assert {one.attributes["tao.session.end.reason"] for one in ends} == {"completed"}
    children = [one for one in ends if one.attributes["gen_ai.conversation.id"] != "parent"]
    assert {one.attributes["tao.session.parent.id"] for one in children} == {"parent"}
    assert len({one.resource["service.instance.id"] for one in coordinator.events}) == 5
    tool_ends = coordinator.events_named("tao.tool.end")
    assert [one.attributes["gen_ai.tool.call.id"] for one in tool_ends].count("outer") == 1
    assert [one["outcome"] for one in coordinator.releases] == ["completed"] * 5
    uids = [one.attributes["log.record.uid"] for one in coordinator.events]
    assert len(uids) == len(set(uids)) == 4 * 4 + 4


def test_fork_in_the_middle_of_sending_loses_and_corrupts_nothing(
    coordinator: CoordinatorStub,
) -> None:
    script = """
import os
import tao_client as tao

tao.connect()
with tao.session("parent") as s:
    for number in range(20):
        with s.tool_call("step"):
            child = os.fork()
            if child == 0:
                with s.tool_call("inside"):
                    pass
                tao.disconnect()
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url})
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("tao.tool.start", "tao.tool.end"):
        tools = [one.attributes["gen_ai.tool.name"] for one in coordinator.events_named(name)]
        assert sorted(str(tool) for tool in tools) == ["inside"] * 20 + ["step"] * 20


def test_multiprocessing_children_are_scheduled(coordinator: CoordinatorStub) -> None:
    script = """
import multiprocessing
import tao_client as tao

def agent(name):
    with tao.session(name) as s, s.turn(model="m") as turn:
        return turn.affinity.backend_id

if __name__ == "__main__":
    tao.connect()
    with tao.session("warm") as s, s.turn(model="m"):
        pass
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(agent, ["a", "b", "c"]) == ["gpu-1"] * 3
        pool.close()
        pool.join()
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url})
    assert (done.returncode, done.stderr) == (0, "")
    asked = sorted(str(one.json["session_id"]) for one in coordinator.leases)
    assert asked == ["a", "b", "c", "warm"]
    assert eventually(lambda: len(coordinator.releases) == 4)


def test_session_of_a_child_process_is_a_child_of_the_one_that_started_it(
    coordinator: CoordinatorStub,
) -> None:
    script = """
import os, subprocess, sys
import tao_client as tao

tao.connect()
child = '''
import tao_client as tao
with tao.session("child") as s, s.turn(model="m") as turn:
    assert turn.affinity is not None
'''
with tao.session("root"), tao.session("parent") as s:
    environment = os.environ | s.environment()
    subprocess.run([sys.executable, "-c", child], env=environment, check=True)
"""
    done = run_agent(script, {"TAO_ENDPOINT": coordinator.url})
    assert (done.returncode, done.stderr) == (0, "")
    (asked,) = coordinator.leases
    assert asked.json["session_id"] == "child"
    assert asked.json["parent_session_id"] == "parent"
    assert asked.json["root_session_id"] == "root"
