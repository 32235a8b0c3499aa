"""`tao replay` and `tao study` as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trace_rows import lines

COMMAND = [sys.executable, "-m", "tao_coordinator"]


def tao(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True, text=True, timeout=50, cwd=cwd, env=environment(),
    )  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = [
        {
            "request_id": f"s{session}:{turn}", "session_id": f"s{session}", "turn": turn,
            "input_length": 9_000 + 3_000 * turn, "output_length": 80, "llm_ms": 1_000,
            "arrival_ms": 4_000 * turn, "delay": 2_000,
        }
        for session in range(10)
        for turn in range(4)
    ]  # fmt: skip
    path = tmp_path / "trace.jsonl"
    path.write_text(lines(rows), encoding="utf-8")
    return path


def test_replay_writes_a_page_and_tells_numbers(trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text('{"base": "qwen3-32b-bf16-tp2", "kv_capacity_tokens": 60000}')
    done = tao(
        "replay", "trace.jsonl", "--policy", "tao", "--policy", "round-robin", "--backends", "2",
        "--workers", "6", "--engine", "mine.json", "--report", "out.html", "--json",
        "--jobs", "1", "--keep", "runs.jsonl", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert set(facts["policies"]) == {"tao", "round-robin"}
    assert facts["policies"]["tao"]["measures"]["sessions"] == 10
    assert set(facts["policies"]["tao"]["task_s_by_backends"]) == {"1", "2"}
    assert "replay: 4/4" in done.stderr
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and str(tmp_path) not in page
    assert "As given in mine.json" in page
    mine.rename(tmp_path / "other.json")  # the same engine, whatever it is called
    again = tao(
        "replay", "trace.jsonl", "--policy", "tao", "--policy", "round-robin", "--backends", "2",
        "--workers", "6", "--engine", "other.json", "--jobs", "1", "--keep", "runs.jsonl",
        cwd=tmp_path,
    )  # fmt: skip
    assert "4 cells, 0 to run" in again.stderr
    head, ours, *_ = again.stdout.splitlines()
    assert head.split()[9:11] == ["run", "tok/s"]
    whole_run = facts["policies"]["tao"]["measures"]["output_tokens_per_s_all"]
    assert ours.split()[5] == f"{whole_run:,.0f}"
    assert "measured under tao" in again.stdout
    assert "Note: 10 in all and 6 at a time are a batch" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "nowhere.jsonl"], "nowhere.jsonl"),
        (["replay", "trace.jsonl", "--policy", "best"], "unknown policy 'best'"),
        (["replay", "trace.jsonl", "--backends", "0"], "--backends must be 1 to 1000"),
        (["replay", "trace.jsonl", "--report", "no/such/out.html"], "there is no folder"),
        (["replay", "trace.jsonl", "--seeds", "a"], "--seeds a"),
        (["study", "run", "surge", "--seeds", "1,2,1"], "--seeds 1,2,1: each may come once"),
        (["study", "run", "nothing"], "no study 'nothing'"),
        (["study", "run", "surge", "--share", "0"], "--share must be above 0"),
        (["study", "run", "surge", "--cell-limit", "0"], "--cell-limit must be above 0"),
        (["study", "run", "surge", "--trace", "swe=nowhere"], "the path must exist"),
        (["study", "run", "surge", "--trace", "sew=trace.jsonl"], "studies run agentx"),
    ],
)
def test_mistakes_are_one_line(
    trace: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = tao(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_list_names_every_study(tmp_path: Path) -> None:
    facts = json.loads(tao("study", "list", "--json", cwd=tmp_path).stdout)
    names = [study["name"] for study in facts]
    assert "pressure" in names and "main-table" in names
    assert all(study["runs"] > 0 for study in facts)
    assert len(tao("study", "list", cwd=tmp_path).stdout.splitlines()) == len(names)


def test_interrupted_study_resumes_and_writes_its_report(tmp_path: Path) -> None:
    arguments = [
        "study", "run", "low-concurrency", "--seeds", "1", "--share", "0.03", "--jobs", "1",
        "--out", "o", "--no-plots",
    ]  # fmt: skip
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    lines_seen = [process.stderr.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert lines_seen[0].startswith("low-concurrency: 1/35")
    results = tmp_path / "o/low-concurrency/cells.jsonl"
    known = len(results.read_text(encoding="utf-8").splitlines())
    assert known >= 2
    refused = tao(*arguments, cwd=tmp_path)
    assert refused.returncode == 2 and "--resume" in refused.stderr
    began_s = time.monotonic()
    done = tao(*arguments, "--resume", cwd=tmp_path)
    assert done.returncode == 0, (done.stderr, time.monotonic() - began_s)
    assert f"35 cells, {35 - known} to run" in done.stderr
    report = tmp_path / "o/low-concurrency/report.md"
    assert "## V4-Flash x1, 64 workers" in report.read_text(encoding="utf-8")
    assert json.loads(report.with_suffix(".json").read_text())["study"] == "low-concurrency"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_killed_study_leaves_no_worker_and_resumes(tmp_path: Path) -> None:
    arguments = [
        "study", "run", "low-concurrency", "--seeds", "1", "--share", "0.03", "--jobs", "2",
        "--out", "o", "--no-plots",
    ]  # fmt: skip

    def start(*more: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [*COMMAND, *arguments, *more],
            cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        return process, process.stderr.readline()

    def kill(process: subprocess.Popen[str]) -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii")
        assert children
        process.kill()
        process.communicate()
        deadline_s = time.monotonic() + 10.0
        while any(Path(f"/proc/{child}/cmdline").exists() for child in children.split()):
            assert time.monotonic() < deadline_s, "a worker computes on"
            time.sleep(0.05)

    process, said = start()
    assert said.startswith("low-concurrency: 1/35")
    kill(process)
    known = len((tmp_path / "o/low-concurrency/cells.jsonl").read_text("utf-8").splitlines())
    process, said = start("--resume")
    assert said.startswith(f"low-concurrency: 35 cells, {35 - known} to run")
    process.terminate()
    process.communicate()


def test_study_whose_runs_fail_tells_each_in_a_line(tmp_path: Path) -> None:
    arguments = [
        "study", "run", "running-requests", "--seeds", "1", "--share", "0.1", "--jobs", "2",
        "--out", "o", "--cell-limit", "0.001",
    ]  # fmt: skip
    done = tao(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    failed = [line for line in done.stderr.splitlines() if "FAILED: took longer than" in line]
    assert len(failed) == 7
    assert "tao: running-requests: 7 of 7 cells failed" in done.stderr
    assert "--resume" in done.stderr
    folder = tmp_path / "o/running-requests"
    assert "**Incomplete: 7 runs" in (folder / "report.md").read_text("utf-8")
    assert (folder / "failures.log").read_text("utf-8").count("took longer") == 7
