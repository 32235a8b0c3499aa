"""`tao demo`, `tao bench lease|sdk` as a user runs them: whole processes, small sizes."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("minisweagent", reason="the demo needs the extra mini-swe-agent")

SMALL = ["--sessions", "3", "--turns", "3", "--time-scale", "60"]


# A shell that starts its jobs in the background has them ignore SIGINT, and children inherit that.
START = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from tao_coordinator.cli import main; sys.exit(main())"
)


def tao(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def processes_with(marker: str) -> list[str]:
    """Command lines of processes that inherited the marker."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # ended meanwhile
    return found


@pytest.mark.timeout(180)
def test_demo_runs_real_agents_under_each_policy_and_reports_what_it_measured() -> None:
    process = tao("demo", *SMALL, "--policy", "round-robin", "--policy", "tao", "--json")
    out, err = process.communicate(timeout=170)
    assert process.returncode == 0, err
    body = json.loads(out)
    assert [result["policy"] for result in body["results"]] == ["round-robin", "tao"]
    for result in body["results"]:
        assert result["num_sessions"] == 3
        assert result["num_failed_sessions"] == 0
        assert result["num_turns"] >= 9
        assert 0 < result["ttft_s_mean"] <= result["ttft_s_p99"]
        assert 0 < result["task_s_mean"] <= result["task_s_max"] <= result["makespan_s"]
        assert 0 < result["hit_rate"] < 1
    # Three small sessions fit any pool: an honest demo says so.
    assert "No gain here" in body["verdict"] or "tao is" in body["verdict"]
    assert "3 real mini-SWE-agent sessions" in err


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="looks for left-over processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_demo_leaves_nothing_running_when_it_is_stopped(number: signal.Signals) -> None:
    marker = uuid.uuid4().hex
    environment = os.environ | {"DEMO_TEST_MARKER": marker}
    process = tao("demo", *SMALL, "--policy", "tao", env=environment)
    try:
        deadline_s = time.monotonic() + 60
        while not any("sim-backend" in line for line in processes_with(marker)):
            assert time.monotonic() < deadline_s, "no backend was started"
            time.sleep(0.1)
        time.sleep(1.0)
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert processes_with(marker) == []


def test_demo_refuses_nonsense_in_one_line() -> None:
    process = tao("demo", "--policy", "magic")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "unknown policy 'magic'" in err
    process = tao("demo", "--sessions", "0")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err.strip() == "tao: --sessions must be positive"


@pytest.mark.timeout(90)
def test_bench_lease_measures_residents() -> None:
    process = tao("bench", "lease", "--sessions", "20", "--calls", "60", "--crowd", "20", "--json")
    out, err = process.communicate(timeout=80)
    assert process.returncode == 0, err
    body = json.loads(out)
    assert body["num_resident"] == 60
    assert body["num_held"] == 19
    assert body["lease_beside_plans"]["p50_ms"] > 0
    assert 0 < body["lease"]["p50_ms"] <= body["lease"]["p99_ms"] <= body["lease"]["max_ms"]


@pytest.mark.timeout(120)
def test_bench_sdk_measures_scheduled_calls_and_told_events() -> None:
    process = tao("bench", "sdk", "--calls", "3", "--events", "40", "--json")
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    body = json.loads(out)
    warm_up = 10
    assert body["num_granted"] == 2 * (3 + warm_up), "of the wrapped clients, and of no other"
    assert body["num_tool_starts"] == 200 // 2 + 40 // 2
    assert set(body["call_ms"]) == {"sync", "async", "no coordinator"}
    for cost in body["call_ms"].values():
        assert cost["bare"] > 0
        assert cost["ratio"] == pytest.approx(cost["wrapped"] / cost["bare"])
    assert body["event_us"]["hot"] > 0
    assert body["import_ms"]["tao_client"] > 0


def test_bench_sdk_refuses_nonsense_in_one_line() -> None:
    process = tao("bench", "sdk", "--calls", "0")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err.strip() == "tao: --calls must be at least 1 and --events at least 2"
