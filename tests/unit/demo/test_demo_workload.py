"""The demo's work: seeded, real commands, scaled durations."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tao_coordinator.demo.workload import SUBMIT, build


def commands(time_scale: float = 10.0, seed: int = 1) -> list[list[str]]:
    work = build(num_sessions=6, num_turns=10, time_scale=time_scale, seed=seed)
    scripts: dict[str, Any] = work.script["scripts"]  # pyright: ignore[reportAssignmentType]
    return [
        [turn["tool_calls"][0]["arguments"]["command"] for turn in script["turns"]]
        for script in scripts.values()
    ]


def sleeps_s(every: list[list[str]]) -> list[float]:
    found = [re.match(r"\./(?:build|run-tests) ([\d.]+) ", c) for s in every for c in s]
    return [float(match[1]) for match in found if match]


def test_same_seed_gives_the_same_sessions() -> None:
    assert commands(seed=3) == commands(seed=3)
    assert commands(seed=3) != commands(seed=4)


def test_every_session_ends_by_submitting_and_is_named_in_its_task() -> None:
    work = build(num_sessions=5, num_turns=4, time_scale=1.0, seed=2)
    assert all(session[-1] == SUBMIT for session in commands())
    for task in work.tasks:
        assert f"[[script {task['session_id']}]]" in str(task["task"])
    scripts: dict[str, Any] = work.script["scripts"]  # pyright: ignore[reportAssignmentType]
    assert work.num_turns == sum(len(script["turns"]) for script in scripts.values())


def test_time_scale_divides_the_durations_of_tools_and_nothing_else() -> None:
    slow, fast = sleeps_s(commands(1.0)), sleeps_s(commands(20.0))
    assert fast == [pytest.approx(s / 20.0, abs=0.001) for s in slow]
    assert max(slow) > 2.0


def test_commands_are_real_and_run_in_any_folder(tmp_path: Path) -> None:
    for command in commands(time_scale=1000.0)[0]:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=20
        )
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout


def test_work_is_plain_json() -> None:
    work = build(num_sessions=2, num_turns=4, time_scale=1.0, seed=2)
    assert json.loads(json.dumps(work.script)) == work.script
