"""The fleet as a process: its records, its address book, its end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from unit.integrations.scripted_server import SUBMIT, ScriptedServer

from tao_integrations.mini_swe_agent_fleet import TaskFileError, main, read_tasks

LIMIT_S = 100

pytestmark = pytest.mark.timeout(150)  # each test starts several processes with slow imports


def write_tasks(folder: Path, *session_ids: str) -> Path:
    path = folder / "tasks.json"
    tasks = [{"session_id": name, "task": f"task of {name}"} for name in session_ids]
    path.write_text(json.dumps(tasks))
    return path


@contextmanager
def fleet(tmp_path: Path, base_url: str, *flags: str) -> Generator["subprocess.Popen[str]"]:
    """A running fleet whose temporary folders lie in `tmp_path/tmp`."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    tasks = tmp_path / "tasks.json"
    if not tasks.exists():
        write_tasks(tmp_path, "one", "two", "three")
    command = [sys.executable, "-m", "tao_integrations.mini_swe_agent_fleet"]
    flags = ("--base-url", base_url, "--model", "sim", "--tasks", str(tasks), *flags)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TAO_")}
    with subprocess.Popen(
        [*command, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment | {"TMPDIR": str(tmp_path / "tmp")},
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def finish(child: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    """Its records, once it has ended well."""
    output, errors = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def wait_until(is_true: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < deadline_s, "condition did not come true"
        time.sleep(0.02)


def test_every_turn_and_session_has_its_record(server: ScriptedServer, tmp_path: Path) -> None:
    server.commands = ["pwd; echo mine > file; ls", "cat file", SUBMIT]
    before = time.time()

    with fleet(tmp_path, f"{server.url}/v1", "--workers", "2") as child:
        records = finish(child)

    after = time.time()
    for name in ("one", "two", "three"):
        own = [record for record in records if record["session_id"] == name]
        assert [record["kind"] for record in own] == ["turn"] * 3 + ["session"]
        *turns, session = own
        assert (session["turns"], session["exit_status"]) == (3, "Submitted")
        dates = [before, session["started_at"]]
        for turn in turns:
            dates += [turn["asked_at"], turn["answered_at"]]
            assert 0 <= turn["hold_s"] <= turn["answered_at"] - turn["asked_at"]
            assert turn["cached_tokens"] == 900
            assert turn["output_tokens"] == 20
            assert turn["backend"] == server.url
            assert "error" not in turn
        assert [turn["input_tokens"] for turn in turns] == [1000, 1001, 1002]
        dates += [session["ended_at"], after]
        assert dates == sorted(dates)
    assert server.to("/tao/v1/leases") == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_sessions_work_in_folders_of_their_own(server: ScriptedServer, tmp_path: Path) -> None:
    server.commands = ["ls | wc -l; pwd; touch file", SUBMIT]

    with fleet(tmp_path, f"{server.url}/v1", "--workers", "1") as child:
        finish(child)

    outputs: list[str] = [
        message["content"]
        for call in server.calls()
        for message in call.body["messages"]
        if message["role"] == "tool"
    ]
    assert len(outputs) == 3
    assert len(set(outputs)) == 3
    for output in outputs:
        assert "<output>\n0\n" in output
        assert str(tmp_path / "tmp") in output


def test_fleet_with_an_endpoint_is_placed(server: ScriptedServer, tmp_path: Path) -> None:
    output = tmp_path / "records.jsonl"
    flags = ["--tao-endpoint", server.url, "--output", str(output), "--workers", "3"]

    with fleet(tmp_path, "http://127.0.0.1:9/v1", *flags) as child:
        assert finish(child) == []

    records = [json.loads(line) for line in output.read_text().splitlines()]
    turns = [record for record in records if record["kind"] == "turn"]
    assert {turn["backend"] for turn in turns} == {f"{server.url}/placed"}
    leases = [lease.body["session_id"] for lease in server.to("/tao/v1/leases")]
    assert sorted(leases) == ["one", "one", "three", "three", "two", "two"]
    assert len(server.releases()) == 6
    assert len(server.to("/v1/logs")) > 0
    called = [call.headers["x-session-id"] for call in server.calls()]
    assert sorted(called) == sorted(leases)


def test_a_fleet_whose_server_is_dead_ends_without_waiting_for_it(tmp_path: Path) -> None:
    with fleet(tmp_path, "http://127.0.0.1:9/v1") as child:
        records = finish(child)

    sessions = [record for record in records if record["kind"] == "session"]
    turns = [record for record in records if record["kind"] == "turn"]
    assert len(sessions) == len(turns) == 3  # one attempt each: no wait of 4 s and more between
    assert all("Connection error" in session["exit_status"] for session in sessions)
    assert all(turn["error"] == "InternalServerError" for turn in turns)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_kills_commands_and_removes_folders(
    number: signal.Signals, server: ScriptedServer, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    server.commands = [f"echo $$ >> {pids}; sleep 300 & wait", SUBMIT]
    with fleet(tmp_path, f"{server.url}/v1", "--workers", "3") as child:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3)
        groups = [int(word) for word in pids.read_text().split()]

        child.send_signal(number)

        output, _ = child.communicate(timeout=20)
        assert child.returncode == 128 + number
    for group in groups:
        wait_until(lambda group=group: not has_members(group))
    assert list((tmp_path / "tmp").iterdir()) == []
    sessions = [r for r in map(json.loads, output.splitlines()) if r["kind"] == "session"]
    assert {session["exit_status"] for session in sessions} == {"Stopped"}


def has_members(group: int) -> bool:
    """Whether a process of this group lives (a dead one may wait for its new parent)."""
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return any(int(row[0]) == group and not row[1].startswith("Z") for row in rows)


def test_a_signal_while_starting_ends_it_too(server: ScriptedServer, tmp_path: Path) -> None:
    with fleet(tmp_path, f"{server.url}/v1") as child:
        wait_until(lambda: list((tmp_path / "tmp").iterdir()))

        child.terminate()

        child.communicate(timeout=20)
        assert child.returncode == 128 + signal.SIGTERM
    assert list((tmp_path / "tmp").iterdir()) == []
    assert server.calls() == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "no JSON"),
        ("{}", "entry 0"),
        ('[{"session_id": "a", "task": "t"}, {"session_id": "b"}]', "entry 1"),
        ('[{"session_id": "a", "task": "t"}, {"session_id": "a", "task": "u"}]', "twice"),
    ],
)
def test_unusable_tasks_are_refused(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_text(content)

    with pytest.raises(TaskFileError, match=complaint):
        read_tasks(path)


def test_missing_tasks_are_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nowhere.json"

    status = main(["--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--tasks", str(path)])

    assert status == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error
