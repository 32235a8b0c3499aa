import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from tao_coordinator.service.sim_backend.driver import (
    RECORDS_MAX,
    BackendDriver,
    EngineClock,
    Generation,
)
from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS
from tao_coordinator.simulation.request import SimRequest

SCALE = 1000.0


def play(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def new_driver() -> BackendDriver:
    return BackendDriver(BackendModel(PRESETS[DEFAULT_PRESET]), EngineClock(SCALE))


def submit(driver: BackendDriver, *, output_tokens: int = 50) -> Generation:
    request = SimRequest(
        request_id=driver.next_id(), prompt_tokens=100, output_tokens=output_tokens
    )
    return driver.submit(
        request, request_id=f"r{request.request_id}", session_id=None, finish_reason="stop"
    )


async def stopped(driver: BackendDriver, running: "asyncio.Task[None]") -> None:
    driver.stop()
    await running


def test_replies_end_and_are_recorded_in_order() -> None:
    async def main() -> None:
        driver = new_driver()
        running = asyncio.create_task(driver.run())
        for _ in range(3):
            generation = submit(driver)
            await generation.wait_for_end()
            assert generation.finished
            assert generation.produced_tokens == 50
        assert driver.num_open == 0
        assert driver.finish_reasons["stop"] == 3
        assert [record.sequence for record in driver.records_since(0)] == [1, 2, 3]
        assert [record.sequence for record in driver.records_since(2)] == [3]
        assert driver.records_since(3) == driver.records_since(99) == []
        await stopped(driver, running)

    play(main())


def test_records_are_bounded_and_the_oldest_go() -> None:
    async def main() -> None:
        driver = new_driver()
        for _ in range(RECORDS_MAX + 5):
            driver.abort(submit(driver, output_tokens=200_000))
        records = driver.records_since(0)
        assert len(records) == RECORDS_MAX
        assert records[0].sequence == 6
        assert driver.records_since(RECORDS_MAX + 3)[0].sequence == RECORDS_MAX + 4
        assert {record.outcome for record in records} == {"cancelled"}
        assert driver.snapshot().waiting == 0

    play(main())


def test_abort_of_a_reply_that_has_just_ended_changes_nothing() -> None:
    async def main() -> None:
        driver = new_driver()
        generation = submit(driver, output_tokens=1)
        await asyncio.sleep(0.1)  # 100 engine seconds, and no driver task looked
        driver.abort(generation)
        driver.abort(generation)
        assert generation.finished
        (record,) = driver.records_since(0)
        assert record.outcome == "completed"
        assert driver.finish_reasons["abort"] == 0

    play(main())


def test_stop_fails_what_is_open() -> None:
    async def main() -> None:
        driver = new_driver()
        running = asyncio.create_task(driver.run())
        generation = submit(driver, output_tokens=200_000)
        waiting = asyncio.create_task(generation.wait_for_end())
        await asyncio.sleep(0)
        await stopped(driver, running)
        await waiting
        assert generation.failed
        assert not generation.finished
        assert driver.stopped

    play(main())


def test_broken_model_stops_the_backend_instead_of_hanging_its_clients(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        driver = new_driver()
        generation = submit(driver)

        def broken(now_s: float) -> None:
            raise AssertionError("broken")

        monkeypatch.setattr(driver.model, "advance", broken)
        with caplog.at_level(logging.ERROR):
            await driver.run()
        await generation.wait_for_end()
        assert generation.failed
        assert driver.stopped
        assert "the modelled engine broke" in caplog.text

    play(main())


def test_time_scale_turns_engine_time_into_real_time() -> None:
    clock = EngineClock(10.0)
    assert clock.epoch_s(50.0) - clock.epoch_s(0.0) == pytest.approx(5.0)
