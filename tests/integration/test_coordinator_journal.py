"""A coordinator's journal from outside: real agents, kill -9, replay."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from coordinator_process import CoordinatorProcess, coordinator, wait_until
from otlp_bodies import protobuf_body
from sim_backend_process import MODEL, SimBackend, bash_script, sim_backend

from tao_coordinator.traces import files
from tao_coordinator.traces.records import SessionRecord

SECRET = "s3cret-words-of-a-prompt"
AGENT = """
import json, sys, threading, time
import tao_client as tao
from openai import OpenAI

url, own = sys.argv[1:3]
tao.connect(url)
client = tao.wrap(OpenAI(base_url=own + "/v1", api_key="own", max_retries=0))
found = {}

def run(number):
    name = f"swe-{number}"
    found[name] = calls = []
    messages = [{"role": "user", "content": f"[[script swe]] SECRET {number} " + "word " * 600}]
    with tao.session(name) as session:
        for turn in range(4 + number):
            reply = client.chat.completions.create(model="MODEL", messages=messages)
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
            began = time.perf_counter()
            with session.tool_call("bash", call_id=f"call-{turn}", key="make") as call:
                slept = time.perf_counter()
                time.sleep(0.01 * turn)
                slept = time.perf_counter() - slept
            calls.append([slept, time.perf_counter() - began])
            messages.append({"role": "user", "content": "SECRET " * 50})

threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tao.disconnect()
print(json.dumps(found))
""".replace("MODEL", MODEL).replace("SECRET", SECRET)


COORDINATOR = (sys.executable, "-m", "tao_coordinator", "coordinator")


@contextmanager
def fleet(folder: Path, *flags: str) -> Generator[tuple[CoordinatorProcess, list[SimBackend]]]:
    with ExitStack() as stack:
        backends: list[SimBackend] = []
        for name in ("a", "b"):
            (folder / name).mkdir()
            scripts = {"swe": bash_script(["make"] * 10)}
            backends.append(stack.enter_context(sim_backend(folder / name, scripts)))
        given = [f"--backend={n}={b.url}" for n, b in zip("ab", backends, strict=True)]
        service = stack.enter_context(coordinator(folder / "log", *given, *flags))
        wait_until(lambda: service.call("GET", "/readyz").status == 200)
        yield service, backends


def run_agents(service: CoordinatorProcess, backend: SimBackend) -> dict[str, list[list[float]]]:
    """Lower and upper bound of each tool call's duration, by session."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAO_")}
    done = subprocess.run(
        [sys.executable, "-c", AGENT, service.url, backend.url],
        env=inherited,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[float]]] = json.loads(done.stdout)
    return found


def relay_turn(service: CoordinatorProcess, number: int) -> None:
    """A turn through the relay, and before it a tool call of 0.2 s by its own word."""
    if number:
        ids = {"gen_ai.conversation.id": "relayed", "gen_ai.tool.call.id": f"t{number}"}
        for name, more in (
            ("tao.tool.start", {"gen_ai.tool.name": "Bash", "tao.tool.timeout": 120.0}),
            ("tao.tool.end", {"tao.tool.duration": 0.2, "error.type": "tool_error"}),
        ):
            body = protobuf_body([(name, {**ids, **more})], time.time_ns())
            headers = {"content-type": "application/x-protobuf"}
            assert service.call("POST", "/v1/logs", body, headers).status == 200
            time.sleep(0.2)
    content = f"[[script swe]] {SECRET} " + "word " * (400 + 100 * number)
    request = {"model": MODEL, "messages": [{"role": "user", "content": content}]}
    reply = service.call(
        "POST", "/v1/chat/completions", request, {"x-tao-session": "relayed", "x-tao-agent": "main"}
    )
    assert reply.status == 200, reply.body


def rows_written(service: CoordinatorProcess) -> int:
    number: int = service.state()["journal"]["rows_written"]
    return number


def rows_seen(service: CoordinatorProcess) -> int:
    """Rows that are on the disk or given up; none of them waits."""
    state = service.state()["journal"]
    return state["rows_written"] + state["rows_dropped"]


def by_id(folder: Path) -> dict[str, SessionRecord]:
    return {session.session_id: session for session in files.load(folder).sessions}


def test_journal_of_a_killed_coordinator_is_what_the_engines_saw(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "journal"
    with fleet(tmp_path, "--journal", str(folder)) as (service, backends):
        tool_bounds = run_agents(service, backends[0])
        for number in range(4):
            relay_turn(service, number)
        served = [r for backend in backends for r in backend.requests()]
        # 4 + 5 + 6 turns with a tool call each and 3 ends; 4 relayed turns and 3 calls.
        wait_until(lambda: rows_written(service) == 2 * 15 + 3 + 4 + 3)
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(10)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = file.read_text()
    assert SECRET not in text
    assert "word" not in text

    trace = files.load(folder)
    assert trace.skipped.count == 0
    sessions = {session.session_id: session for session in trace.sessions}
    assert sorted(sessions) == ["relayed/main", "swe-0", "swe-1", "swe-2"]
    assert [len(sessions[f"swe-{n}"].turns) for n in range(3)] == [4, 5, 6]
    turns = [turn for session in trace.sessions for turn in session.turns]
    recorded = [(t.input_tokens, t.cached_tokens, t.output_tokens) for t in turns]
    sent = [(r["prompt_tokens"], r["cached_tokens"], r["output_tokens"]) for r in served]
    assert sorted(map(str, recorded)) == sorted(map(str, sent))
    for name, bounds in tool_bounds.items():
        calls = [turn.tools for turn in sessions[name].turns]
        assert [len(found) for found in calls] == [0] + [1] * (len(calls) - 1)
        # The call after the last reply belongs to no turn.
        for (found,), (low_s, high_s) in zip(calls[1:], bounds[:-1], strict=True):
            assert (found.tool, found.key, found.is_error) == ("bash", "make", False)
            assert low_s - 1e-5 <= found.duration_s <= high_s + 1e-5
    relayed = [turn.tools for turn in sessions["relayed/main"].turns]
    assert relayed[0] == ()
    for (call,) in relayed[1:]:
        assert (call.duration_s, call.is_error) == (0.2, True)
        assert call.timeout_s == pytest.approx(120.0)
    for session in trace.sessions:
        arrivals = [turn.arrival_s for turn in session.turns]
        assert arrivals == sorted(arrivals)
        assert session.arrival_s is not None
        assert abs(session.arrival_s - time.time()) < 120


def replay(*arguments: object) -> tuple[Any, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tao_coordinator", "replay", "--json", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_replay_takes_the_folder_of_a_coordinator_that_still_runs(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with fleet(tmp_path, "--journal", str(folder)) as (service, backends):
        run_agents(service, backends[0])
        wait_until(lambda: rows_written(service) == 2 * 15 + 3)
        # As a write in the middle of which the process is killed.
        (file,) = folder.iterdir()
        with file.open("a") as torn:
            torn.write('{"request_id":"torn","session_id":"swe-')
        flags = ("--policy", "tao", "--same-fleet", "--jobs", "1")
        found, words = replay(folder, *flags, "--as-arrived")
        assert found["recorded_sessions"] == 3
        assert found["policies"]["tao"]["measures"]["turns"] == 15
        assert words.count("left out") == 1
        assert file.name in words
        again, _ = replay(file, *flags, "--workers", "1")
        assert again["policies"]["tao"]["measures"]["turns"] == 15


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="prlimit(2), with which one process limits another's files, is Linux's alone",
)
def test_full_disk_costs_rows_and_nothing_else(tmp_path: Path) -> None:
    """A real full disk would need a mount: the process's files are made too small instead."""
    folder = tmp_path / "journal"
    with fleet(tmp_path, "--journal", str(folder)) as (service, _):
        relay_turn(service, 0)
        wait_until(lambda: rows_written(service) == 1)
        import resource

        unlimited = resource.RLIM_INFINITY
        # Any write beyond this size fails, as on a full disk; the signal is ignored by Python.
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (2_000, unlimited))
        for number in range(1, 7):
            relay_turn(service, number)
        # Every row is somewhere before the disk has room again: 7 turns and 6 calls.
        wait_until(lambda: rows_seen(service) == 13)
        state = service.state()
        assert state["journal"]["rows_dropped"] > 0
        assert state["counters"]["released"] == {"completed": 7}
        assert state["journal"]["error"]
        page = service.call("GET", "/metrics").body.decode()
        assert "tao_journal_failing 1.0" in page
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        written = rows_written(service)
        relay_turn(service, 7)
        wait_until(lambda: rows_written(service) == written + 2)
        assert service.state()["journal"]["error"] is None
        assert service.log().count("WARNING journal") == 1
        (session,) = by_id(folder).values()
        assert session.session_id == "relayed/main"


def test_two_coordinators_share_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with (
        fleet(tmp_path, "--journal", str(folder)) as (one, backends),
        coordinator(
            tmp_path / "log2", f"--backend=a={backends[0].url}", "--journal", str(folder)
        ) as two,
    ):
        wait_until(lambda: two.call("GET", "/readyz").status == 200)
        for number in range(3):
            relay_turn((one, two)[number % 2], number)
        wait_until(lambda: rows_written(one) + rows_written(two) == 5)
    assert len(list(folder.iterdir())) == 2
    (session,) = by_id(folder).values()
    assert len(session.turns) == 3
    assert [len(turn.tools) for turn in session.turns] == [0, 1, 1]


def test_calls_that_only_telemetry_tells_of_are_sessions_too(tmp_path: Path) -> None:
    """Claude Code on its own account, its log records on the coordinator."""
    folder = tmp_path / "journal"
    with fleet(tmp_path, "--journal", str(folder)) as (service, _):
        begin_ns = time.time_ns() - 10_000_000_000
        for number in range(3):
            request = {
                "session.id": "cc", "model": "sonnet", "input_tokens": 5 + number,
                "cache_read_tokens": "1000", "cache_creation_tokens": 200, "output_tokens": 30,
                "duration_ms": 800, "ttft_ms": 90, "prompt": SECRET,
            }  # fmt: skip
            result = {
                "session.id": "cc", "tool_name": "Bash", "tool_use_id": f"t{number}",
                "success": "true", "duration_ms": 500, "tool_parameters": SECRET,
            }  # fmt: skip
            end_ns = begin_ns + number * 2_000_000_000
            for name, attributes, at_ns in (
                ("claude_code.api_request", request, end_ns),
                ("claude_code.tool_result", result, end_ns + 600_000_000),
            ):
                body = protobuf_body([(name, attributes)], at_ns)
                headers = {"content-type": "application/x-protobuf"}
                assert service.call("POST", "/v1/logs", body, headers).status == 200
        wait_until(lambda: rows_written(service) == 6)
        assert service.state()["sessions"] == []
    (session,) = by_id(folder).values()
    assert [(t.input_tokens, t.cached_tokens, t.output_tokens) for t in session.turns] == [
        (1_205, 1_000, 30), (1_206, 1_000, 30), (1_207, 1_000, 30)
    ]  # fmt: skip
    assert [turn.duration_s for turn in session.turns] == [0.8] * 3
    assert [[t.duration_s for t in turn.tools] for turn in session.turns] == [[], [0.5], [0.5]]
    assert session.turns[1].gap_s == pytest.approx(0.6, abs=0.05)
    assert all(SECRET not in file.read_text() for file in folder.iterdir())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--journal", "{file}/below"], "Not a directory"),
        (["--journal", "{file}"], "File exists"),
        (["--journal-bytes-max", "10"], "--journal-bytes-max must be at least"),
        (["--journal-bytes-max", "many"], "--journal-bytes-max must be a number of bytes"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    tmp_path: Path, flags: list[str], words: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    given = [flag.format(file=file) for flag in flags]
    done = subprocess.run(
        [*COORDINATOR, "--port=0", "--backend=http://127.0.0.1:1", *given],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
