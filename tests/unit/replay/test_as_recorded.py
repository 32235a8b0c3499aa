"""How sessions fared by the trace's own word."""

import pytest

from tao_coordinator.replay.as_recorded import as_recorded
from tao_coordinator.traces.records import SessionRecord, TurnRecord


def turn(number: int, arrival_s: float, **more: float | None) -> TurnRecord:
    facts = {"hold_s": 1.0, "duration_s": 2.0, "gap_s": 0.0, **more}
    return TurnRecord(
        request_id=str(number),
        arrival_s=arrival_s,
        input_tokens=100,
        **facts,  # pyright: ignore[reportArgumentType]
    )


def test_tasks_holds_and_hits_are_those_of_the_trace() -> None:
    one = SessionRecord(
        session_id="a",
        turns=(turn(0, 0, cached_tokens=0), turn(1, 10, cached_tokens=60), turn(2, 20)),
    )
    # A night between two turns counts as a minute.
    two = SessionRecord(
        session_id="b", turns=(turn(0, 5), turn(1, 30_000, gap_s=29_992), turn(2, 30_010))
    )
    found = as_recorded([one, two], 3, 60.0)
    assert found is not None
    assert found.sessions == 2
    assert found.task_s == pytest.approx((23.0 + (30_013 - 5 - 29_932)) / 2)
    assert found.hold_s == 3.0
    assert found.hit_rate == pytest.approx(60 / 200)
    assert found.sentence() == (
        "As recorded: 50 s per task on average, hit rate 0.300, 3.0 s held per session."
    )


def test_trace_that_does_not_tell_is_left_alone() -> None:
    untold = SessionRecord(session_id="a", turns=(turn(0, 0), turn(1, 1, duration_s=None)))
    assert as_recorded([untold], 1, 60.0) is None
    short = SessionRecord(session_id="b", turns=(turn(0, 0, hold_s=0.0),))
    assert as_recorded([short], 2, 60.0) is None
    alone = as_recorded([short], 1, 60.0)
    assert alone is not None
    assert alone.sentence() == "As recorded: 2 s per task on average."
