"""Plans from a real process of their own: made, failed, hanging, killed."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tao_coordinator.core.effects import Effect, SolvePlan
from tao_coordinator.core.events import Event, PlanSolved
from tao_coordinator.errors import EngineError
from tao_coordinator.scheduling.placement import PlacementProblem, Plan
from tao_coordinator.service.plan_worker import PlanWorker, make_plan


def problem() -> PlacementProblem:
    """Two sessions for one place; the second has credit."""
    return PlacementProblem(
        weights=np.array([[10], [10]]),
        budgets=np.array([15]),
        classes=np.array([0, 0]),
        credits=np.array([[0], [3]]),
        ready=np.array([1, 1]),
        tokens=np.array([10, 10]),
        eligible=np.array([[True], [True]]),
    )


def die(problem: object, limit_s: float) -> Plan:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def hang(problem: object, limit_s: float) -> Plan:
    time.sleep(60)
    raise AssertionError


def die_once(problem: object, limit_s: float) -> Plan:
    """Told by the problem, since every process starts anew."""
    if problem == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return make_plan(problem, limit_s)


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of the worker's own records."""
    return [r.levelname for r in caplog.records if r.name.endswith("plan_worker")]


class Engine:
    """Notes the answers."""

    def __init__(self, error: EngineError | None = None) -> None:
        self.answers: list[PlanSolved] = []
        self.answered = asyncio.Event()
        self.error = error

    def dispatch(self, events: Sequence[Event]) -> list[Effect]:
        for event in events:
            assert isinstance(event, PlanSolved)
            self.answers.append(event)
        self.answered.set()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return []

    async def next(self) -> PlanSolved:
        async with asyncio.timeout(30):
            await self.answered.wait()
        self.answered.clear()
        return self.answers[-1]


def with_worker(
    scenario: Callable[[PlanWorker, Engine], object],
    make: Callable[[object, float], Plan] = make_plan,
    answer_s_max: float = 20.0,
    error: EngineError | None = None,
) -> None:
    async def main() -> None:
        engine = Engine(error)
        worker = PlanWorker(engine.dispatch, make, answer_s_max)
        task = asyncio.create_task(worker.run())
        try:
            coroutine = scenario(worker, engine)
            assert asyncio.iscoroutine(coroutine)
            await coroutine
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_plan_comes_from_another_process() -> None:
    async def scenario(worker: PlanWorker, engine: Engine) -> None:
        worker.order(SolvePlan(plan_id=7, problem=problem()))
        solved = await engine.next()
        assert solved.plan_id == 7
        assert isinstance(solved.plan, Plan)
        assert solved.plan.backend_of.tolist() == [-1, 0]
        assert solved.plan.elapsed_s is not None

    with_worker(scenario)


def test_newer_order_replaces_one_that_was_not_begun() -> None:
    async def scenario(worker: PlanWorker, engine: Engine) -> None:
        worker.order(SolvePlan(plan_id=1, problem=problem()))
        worker.order(SolvePlan(plan_id=2, problem=problem()))
        assert (await engine.next()).plan_id == 2
        assert [answer.plan_id for answer in engine.answers] == [2]

    with_worker(scenario)


def test_killed_process_costs_one_plan(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario(worker: PlanWorker, engine: Engine) -> None:
        worker.order(SolvePlan(plan_id=1, problem="die"))
        assert (await engine.next()).plan is None
        worker.order(SolvePlan(plan_id=2, problem=problem()))
        assert isinstance((await engine.next()).plan, Plan)

    with_worker(scenario, die_once)
    assert levels(caplog) == ["WARNING", "INFO"]
    assert "plan 1 was not made" in caplog.text


def test_hanging_process_is_killed_in_time() -> None:
    async def scenario(worker: PlanWorker, engine: Engine) -> None:
        worker.order(SolvePlan(plan_id=1, problem=problem()))
        assert (await engine.next()).plan is None

    with_worker(scenario, hang, answer_s_max=3.0)


def test_solver_error_is_one_failed_plan_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(worker: PlanWorker, engine: Engine) -> None:
        for number in (1, 2):
            worker.order(SolvePlan(plan_id=number, problem="rubbish"))
            assert (await engine.next()).plan is None

    with_worker(scenario)
    assert levels(caplog) == ["WARNING"]
    assert "not a placement problem: str" in caplog.text


def test_worker_survives_an_engine_that_fails_on_its_answer() -> None:
    async def scenario(worker: PlanWorker, engine: Engine) -> None:
        worker.order(SolvePlan(plan_id=1, problem=problem()))
        await engine.next()
        worker.order(SolvePlan(plan_id=2, problem=problem()))
        assert (await engine.next()).plan_id == 2

    with_worker(scenario, error=EngineError("broken"))


def test_cancelled_worker_leaves_no_process(tmp_path: object) -> None:
    async def main() -> None:
        engine = Engine()
        worker = PlanWorker(engine.dispatch, hang)
        task = asyncio.create_task(worker.run())
        worker.order(SolvePlan(plan_id=1, problem=problem()))
        await asyncio.sleep(1.0)
        task.cancel()
        async with asyncio.timeout(5):
            await asyncio.gather(task, return_exceptions=True)
        assert engine.answers == []

    asyncio.run(main())
