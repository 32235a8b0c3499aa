"""The loop around one backend: what becomes of good, bad and impossible looks, and how often."""

import asyncio
from collections.abc import Sequence

import pytest

from tao_coordinator.adapters.engines.reading import EngineReading, Source
from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendSampled, BackendUnreachable, Event
from tao_coordinator.errors import EngineError
from tao_coordinator.service import poller
from tao_coordinator.service.poller import BackendPoller, Pace
from tao_coordinator.service.probe import Look, ProbeError

BACKEND = BackendConfig(backend_id="gpu-0", base_url="http://gpu-0:8000")
READING = EngineReading(
    capacity_tokens=4096, running=2, waiting=1, kv_usage_ratio=0.5, preemptions=3
)


def look(reading: EngineReading = READING, problem: str = "") -> Look:
    source = Source("vllm", "/metrics", lambda _: True, lambda _text, _rank: reading)
    return Look(kind="vllm", source=source, reading=reading, models=("m",), problem=problem)


class ScriptedProbe:
    def __init__(self, *answers: Look | Exception) -> None:
        self.answers = list(answers)

    async def look(self) -> Look:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def poller_of(*answers: Look | Exception) -> BackendPoller:
    probe = ScriptedProbe(*answers)
    return BackendPoller(BACKEND, probe, Pace(), lambda _: None)  # pyright: ignore


def test_good_look_becomes_a_sample() -> None:
    one = poller_of(look())
    assert asyncio.run(one.poll()) == BackendSampled(
        backend_id="gpu-0",
        capacity_tokens=4096,
        models=("m",),
        running=2,
        waiting=1,
        kv_usage_ratio=0.5,
        preemptions=3,
    )
    assert (one.engine_kind, one.error) == ("vllm", "")


def test_failure_becomes_unreachable_and_is_forgotten_by_the_next_success() -> None:
    async def body() -> None:
        one = poller_of(ProbeError("no answer"), look())
        assert await one.poll() == BackendUnreachable(backend_id="gpu-0", reason="no answer")
        assert one.error == "no answer"
        await one.poll()
        assert one.error == ""

    asyncio.run(body())


def test_each_finding_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        one = poller_of(look(EngineReading(capacity_tokens=9, num_ranks=4)))
        for _ in range(3):
            await one.poll()
        assert [finding.code for finding in one.findings] == ["several_ranks"]

    asyncio.run(body())
    assert len(caplog.messages) == 1
    assert "--data-parallel-ranks gpu-0=4" in caplog.text


def interval_s(*answers: Look | Exception) -> float:
    """Wait after the last of these polls."""

    async def body() -> float:
        one = poller_of(*answers)
        for _ in answers:
            await one.poll()
        return one._interval_s()

    return asyncio.run(body())


REFUSED = ProbeError("Connection refused", is_refused=True)
SILENT = ProbeError("no answer within 2 s")


def test_refusal_and_return_are_asked_again_quickly_and_long_silence_slowly() -> None:
    assert interval_s(look()) == poller.POLL_INTERVAL_S
    assert interval_s(REFUSED) == poller.QUICK_S
    assert interval_s(SILENT) == poller.POLL_INTERVAL_S
    assert interval_s(SILENT, look()) == poller.QUICK_S
    assert interval_s(SILENT, look(), look()) == poller.POLL_INTERVAL_S
    assert interval_s(*[REFUSED] * 100) == poller.SILENT_INTERVAL_S_MAX


def test_a_thousand_backends_are_asked_less_often() -> None:
    pace = Pace()
    pace.num_backends = 100
    assert pace.interval_s() == 1.0
    pace.num_backends = 1_000
    assert pace.interval_s() == 10.0


def test_slow_backend_does_not_delay_another() -> None:
    class Stuck:
        async def look(self) -> Look:
            await asyncio.Event().wait()
            raise AssertionError

    async def body() -> None:
        pace = Pace()
        seen: list[Event] = []
        done = asyncio.Event()

        def dispatch(events: Sequence[Event]) -> None:
            seen.extend(events)
            done.set()

        stuck = [BackendPoller(BACKEND, Stuck(), pace, dispatch) for _ in range(9)]  # pyright: ignore
        quick = BackendPoller(BACKEND, ScriptedProbe(look()), pace, dispatch)  # pyright: ignore
        tasks = [asyncio.create_task(one.run()) for one in [*stuck, quick]]
        await asyncio.wait_for(done.wait(), 5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(seen) == 1

    asyncio.run(body())


def test_run_goes_on_after_failed_steps_and_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(poller, "QUICK_S", 0.0)
    seen: list[Event] = []

    def dispatch(events: Sequence[Event]) -> None:
        seen.extend(events)
        if len(seen) == 3:
            raise asyncio.CancelledError
        raise EngineError("the step failed")

    async def body() -> None:
        probe = ScriptedProbe(look(), RuntimeError("a bug"), look())
        one = BackendPoller(BACKEND, probe, Pace(), dispatch)  # pyright: ignore
        await one.run()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(body())
    assert [type(event) for event in seen] == [BackendSampled, BackendUnreachable, BackendSampled]
