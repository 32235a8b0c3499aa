import os
import time
from collections.abc import Sequence

import pytest
from worker_tasks import perform

from tao_coordinator.study.workers import Ended, Failure, Running, run_all


def outcomes(
    tasks: Sequence[str], *, workers: int = 2, limit_s: float = 30.0
) -> dict[str, str | Failure]:
    found: dict[str, str | Failure] = {}
    for told in run_all(perform, tasks, workers=workers, limit_s=limit_s):
        if isinstance(told, Ended):
            found[told.task] = told.outcome
    return found


def test_every_task_is_run_and_workers_are_used_again() -> None:
    tasks = [f"say:{number}" for number in range(12)]
    found = outcomes(tasks)
    assert set(found) == set(tasks)
    assert all(str(found[t]).startswith(t.removeprefix("say:") + " by ") for t in tasks)
    processes = {str(text).split()[-1] for text in found.values()}
    assert len(processes) <= 2
    assert str(os.getpid()) not in processes


def test_failures_are_told_and_the_others_go_on() -> None:
    found = outcomes(["fail:no luck", "die:", "say:1", "say:2", "say:3"])
    failed = found["fail:no luck"]
    assert isinstance(failed, Failure)
    assert failed.reason == "ValueError: no luck"
    assert "Traceback" in failed.details and "perform" in failed.details
    assert found["die:"] == Failure("its process ended (SIGKILL)")
    assert not any(isinstance(found[f"say:{n}"], Failure) for n in (1, 2, 3))


def test_task_that_hangs_is_ended_and_a_new_worker_goes_on() -> None:
    found = outcomes(["hang:", "say:1", "say:2"], workers=1, limit_s=8.0)
    assert found["hang:"] == Failure("took longer than 8 s and was ended")
    assert not isinstance(found["say:2"], Failure)


def test_ctrl_c_while_a_worker_starts_is_the_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERRUPT_AT_IMPORT", "1")
    assert not isinstance(outcomes(["say:1"])["say:1"], Failure)


def test_what_runs_is_told_while_nothing_ends() -> None:
    told = list(run_all(perform, ["slow:1"], workers=1, limit_s=30.0, told_every_s=0.05))
    running = [item for item in told if isinstance(item, list)]
    assert running
    assert running[0][0].task == "slow:1"
    assert all(isinstance(one, Running) and one.for_s > 0.0 for item in running for one in item)
    assert isinstance(told[-1], Ended)


def test_whoever_stops_asking_ends_the_workers() -> None:
    told = run_all(perform, ["say:1", "hang:", "hang:"], workers=2, limit_s=30.0)
    first = next(item for item in told if isinstance(item, Ended))
    assert not isinstance(first.outcome, Failure)
    process = int(first.outcome.split()[-1])
    began_s = time.monotonic()
    told.close()
    assert time.monotonic() - began_s < 10.0
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
