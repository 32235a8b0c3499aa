"""The runtime with a scripted engine: answers, polls, hang-ups, the timer, failures."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from service_fakes import FakeEngine, grant, hold, reject

from tao_coordinator.core.effects import RejectReason, Warn
from tao_coordinator.core.events import (
    LeaseReleased,
    LeaseRenewed,
    PollEnded,
    PollStarted,
    TurnAbandoned,
    TurnRequested,
)
from tao_coordinator.errors import EngineError
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.runtime import TIMER_S_MIN, HoldEnd, Runtime

TURN = TurnRequested(request_id="r", session_id="s")


class Clock:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 10.0))


def make_runtime(engine: FakeEngine, clock: Clock | None = None) -> Runtime:
    return Runtime(engine, ServiceMetrics(), clock or Clock())


def never() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_turn_gets_its_own_answer_among_others() -> None:
    async def body() -> None:
        engine = FakeEngine(next_effects=[grant("other"), hold("third")])
        runtime = make_runtime(engine)
        assert runtime.request_turn(TURN) == grant("r")

    run(body())


def test_engine_that_gives_no_answer_is_an_error() -> None:
    async def body() -> None:
        runtime = make_runtime(FakeEngine(answers={"r": grant("another")}))
        with pytest.raises(EngineError, match="no answer"):
            runtime.request_turn(TURN)

    run(body())


def test_held_turn_gets_the_grant_of_a_later_step() -> None:
    async def body() -> None:
        engine = FakeEngine(answers={"r": hold("r")})
        runtime = make_runtime(engine)
        assert runtime.request_turn(TURN) == hold("r")
        waiting = asyncio.create_task(runtime.hold("r", 5.0, never()))
        await settle()
        assert engine.events[-1] == PollStarted(request_id="r")
        assert runtime.num_polls == 1
        engine.next_effects = [grant("r")]
        runtime.dispatch(())
        assert await waiting == grant("r")
        assert runtime.num_polls == 0
        assert not engine.events_of(TurnAbandoned)

    run(body())


def test_held_turn_gets_a_later_rejection() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        waiting = asyncio.create_task(runtime.hold("r", 5.0, never()))
        await settle()
        engine.next_effects = [reject("r", RejectReason.WAITED_TOO_LONG)]
        runtime.dispatch(())
        assert await waiting == reject("r", RejectReason.WAITED_TOO_LONG)

    run(body())


def test_poll_that_times_out_abandons_nothing() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        assert await runtime.hold("r", 0.01, never()) is HoldEnd.STILL_HELD
        runtime.end_poll("r")
        assert engine.events == [PollStarted(request_id="r"), PollEnded(request_id="r")]

    run(body())


def test_caller_that_hangs_up_is_taken_back_at_once() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        disconnected = never()
        waiting = asyncio.create_task(runtime.hold("r", 5.0, disconnected))
        await settle()
        disconnected.set_result(None)
        assert await waiting is HoldEnd.DISCONNECTED
        assert engine.events_of(TurnAbandoned) == [TurnAbandoned(request_id="r")]
        assert runtime.num_polls == 0

    run(body())


def test_grant_to_a_caller_that_is_gone_is_taken_back() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        disconnected = never()
        waiting = asyncio.create_task(runtime.hold("r", 5.0, disconnected))
        await settle()
        engine.next_effects = [grant("r")]
        runtime.dispatch(())
        disconnected.set_result(None)
        assert await waiting is HoldEnd.DISCONNECTED
        assert engine.events_of(TurnAbandoned) == [TurnAbandoned(request_id="r")]

    run(body())


def test_old_connection_that_closes_does_not_abandon_the_new_poll() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        old_gone = never()
        old = asyncio.create_task(runtime.hold("r", 5.0, old_gone))
        new = asyncio.create_task(runtime.hold("r", 5.0, never()))
        await settle()
        old_gone.set_result(None)
        assert await old is HoldEnd.DISCONNECTED
        runtime.end_poll("r")
        assert not engine.events_of(TurnAbandoned)
        assert not engine.events_of(PollEnded)
        engine.next_effects = [grant("r")]
        runtime.dispatch(())
        assert await new == grant("r")

    run(body())


def test_cancelled_poll_is_abandoned_and_stays_cancelled() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        waiting = asyncio.create_task(runtime.hold("r", 5.0, never()))
        await settle()
        engine.error = RuntimeError("boom")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert engine.events_of(TurnAbandoned) == [TurnAbandoned(request_id="r")]

    run(body())


def test_delete_ends_a_poll_elsewhere() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        waiting = asyncio.create_task(runtime.hold("r", 5.0, never()))
        await settle()
        runtime.abandon("r")
        assert await waiting is HoldEnd.ABANDONED
        assert engine.events_of(TurnAbandoned) == [TurnAbandoned(request_id="r")]

    run(body())


def test_shutdown_answers_every_held_turn() -> None:
    async def body() -> None:
        runtime = make_runtime(FakeEngine())
        waiting = [asyncio.create_task(runtime.hold(f"r{n}", 5.0, never())) for n in range(3)]
        await settle()
        runtime.begin_shutdown()
        assert await asyncio.gather(*waiting) == [HoldEnd.SHUTTING_DOWN] * 3
        assert await runtime.hold("late", 5.0, never()) is HoldEnd.SHUTTING_DOWN
        assert runtime.is_closing

    run(body())


def test_renewal_says_whether_the_engine_still_has_the_lease() -> None:
    async def body() -> None:
        engine = FakeEngine(live_leases={"lease-r"})
        runtime = make_runtime(engine)
        assert runtime.renew("lease-r")
        assert not runtime.renew("lease-x")
        assert engine.events_of(LeaseRenewed) == [
            LeaseRenewed(lease_id="lease-r"),
            LeaseRenewed(lease_id="lease-x"),
        ]

    run(body())


def test_release_is_passed_on_every_time() -> None:
    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        released = LeaseReleased(lease_id="lease-r")
        runtime.release(released)
        runtime.release(released)
        assert engine.events_of(LeaseReleased) == [released, released]

    run(body())


def test_timer_wakes_the_engine_when_it_asked() -> None:
    async def body() -> None:
        engine, clock = FakeEngine(), Clock()
        runtime = make_runtime(engine, clock)
        engine.wake_up_s = clock.now_s + 0.02
        runtime.dispatch(())
        engine.wake_up_s = None
        await asyncio.sleep(0.1)
        assert len(engine.step_times_s) == 2

    run(body())


def test_later_step_replaces_the_timer() -> None:
    async def body() -> None:
        engine, clock = FakeEngine(), Clock()
        runtime = make_runtime(engine, clock)
        for delay_s in (0.01, 60.0):
            engine.wake_up_s = clock.now_s + delay_s
            runtime.dispatch(())
        await asyncio.sleep(0.05)
        assert len(engine.step_times_s) == 2
        engine.wake_up_s = clock.now_s + 0.01
        runtime.dispatch(())
        engine.wake_up_s = None
        await asyncio.sleep(0.05)
        assert len(engine.step_times_s) == 4

    run(body())


def test_wake_up_in_the_past_does_not_spin() -> None:
    async def body() -> None:
        engine, clock = FakeEngine(), Clock()
        runtime = make_runtime(engine, clock)
        engine.wake_up_s = clock.now_s - 50.0
        started_s = time.monotonic()
        runtime.dispatch(())
        await asyncio.sleep(0.05)
        runtime.close()
        # One step per delay at most, the first included; a busy machine only makes them fewer.
        num_steps_max = (time.monotonic() - started_s) / TIMER_S_MIN + 2
        assert 1 < len(engine.step_times_s) <= num_steps_max

    run(body())


def test_closed_runtime_is_never_woken() -> None:
    async def body() -> None:
        engine, clock = FakeEngine(), Clock()
        runtime = make_runtime(engine, clock)
        engine.wake_up_s = clock.now_s + 0.01
        runtime.dispatch(())
        runtime.close()
        runtime.dispatch(())
        await asyncio.sleep(0.05)
        assert len(engine.step_times_s) == 2

    run(body())


def test_failed_step_is_logged_and_the_timer_stays_armed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tao_coordinator.service.runtime.FAILED_STEP_RETRY_S", 0.01)

    async def body() -> None:
        engine = FakeEngine(error=RuntimeError("bug in the policy"))
        runtime = make_runtime(engine)
        with pytest.raises(EngineError):
            runtime.request_turn(TURN)
        assert "bug in the policy" in caplog.text
        engine.error = RuntimeError("again, in the timer")
        await asyncio.sleep(0.1)
        assert "again, in the timer" in caplog.text
        assert len(engine.step_times_s) == 3
        assert runtime.request_turn(TURN) == grant("r")

    run(body())


def test_warning_is_told_once_and_health_whenever_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def warn(code: str) -> Warn:
        return Warn(code=code, subject="gpu-0", message="the message")

    async def body() -> None:
        engine = FakeEngine()
        runtime = make_runtime(engine)
        for code in (
            "capacity_unknown",
            "capacity_unknown",
            "backend_healthy",
            "backend_lost",
            "backend_lost",
            "backend_healthy",
            "backend_silent",
        ):
            engine.next_effects = [warn(code)]
            runtime.dispatch(())

    with caplog.at_level(logging.INFO):
        run(body())
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "INFO", "WARNING", "INFO", "WARNING"]
    assert all("gpu-0" in record.getMessage() for record in caplog.records)


def test_lease_that_is_told_again_counts_once() -> None:
    async def body() -> None:
        metrics = ServiceMetrics()
        engine = FakeEngine()
        runtime = Runtime(engine, metrics, Clock())
        runtime.request_turn(TURN)
        engine.answers["r"] = replace(grant("r"), is_repeat=True)
        runtime.request_turn(TURN)
        count = metrics.registry.get_sample_value(
            "tao_turn_hold_seconds_count", {"reason": "resident"}
        )
        assert count == 1

    run(body())
