"""How much a step does as sessions become many: counted in Python calls, since clocks differ."""

import sys
from collections.abc import Callable
from types import FrameType

from tao_coordinator.core.effects import Grant
from tao_coordinator.core.events import (
    BackendAdded,
    BackendSampled,
    LeaseReleased,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine

NUM_BACKENDS = 8


def num_calls(work: Callable[[], object]) -> int:
    """Python and C functions that `work` calls."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def pools(engine: Engine, now_s: float, tokens: int) -> None:
    names = [f"b{n}" for n in range(NUM_BACKENDS)]
    engine.step(now_s, [BackendAdded(backend_id=one, base_url=f"http://{one}") for one in names])
    engine.step(now_s, [BackendSampled(backend_id=one, capacity_tokens=tokens) for one in names])


def heaviest_step(num_sessions: int) -> int:
    """All sessions are in long tools when the pools turn out to hold three in four, and new ones
    ask: seats are given up, the waiting pool grows, second by second."""
    engine = Engine(Parameters())
    pools(engine, 0.0, num_sessions * 40_000 // NUM_BACKENDS)
    asked = [
        TurnRequested(request_id=f"r{n}", session_id=f"s{n}", input_tokens=10_000)
        for n in range(num_sessions)
    ]
    effects, _ = engine.step(0.0, asked)
    leases = [effect.lease_id for effect in effects if isinstance(effect, Grant)]
    assert len(leases) == num_sessions
    engine.step(1.0, [LeaseReleased(lease_id=one, input_tokens=10_000) for one in leases])
    engine.step(
        1.0,
        [
            ToolStarted(session_id=f"s{n}", call_id="c", name="bash", remaining_s=600.0)
            for n in range(num_sessions)
        ],
    )
    pools(engine, 2.0, num_sessions * 7_500 // NUM_BACKENDS)
    counts: list[int] = []
    for second in range(3, 23):
        new = [
            TurnRequested(
                request_id=f"n{second}.{n}", session_id=f"n{second}.{n}", input_tokens=10_000
            )
            for n in range(num_sessions // 100)
        ]
        counts.append(num_calls(lambda now_s=second, events=new: engine.step(float(now_s), events)))
    seen = engine.observe(23.0)
    assert seen.counters.seats_released == num_sessions
    assert len(seen.held) > num_sessions // 10
    return max(counts)


def test_step_under_pressure_grows_no_faster_than_its_sessions() -> None:
    assert heaviest_step(3_000) < 10 * heaviest_step(300)
