"""Duplicates, late and reordered events; what is forgotten first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.adapters.events import order
from tao_coordinator.adapters.events.order import EventOrder, Outcome, Recent, RecentUids
from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionEnded,
    SessionEvent,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)

S = 1_000_000_000
START = ToolStarted(session_id="s", call_id="c", name="bash")
END = ToolEnded(session_id="s", call_id="c")
PROGRESS = ToolProgressed(session_id="s", call_id="c", ratio=0.5)
OPENED = SessionStarted(session_id="s")
CLOSED = SessionEnded(session_id="s")
BEAT = SessionHeartbeat(session_id="s", open_call_ids=())
WAIT = SessionWaiting(session_id="s")
WANTED = SessionDeadlineSet(session_id="s", remaining_s=0.0)

ACCEPTED, DUPLICATE, LATE = Outcome.ACCEPTED, Outcome.DUPLICATE, Outcome.LATE


def judged(
    *told: tuple[SessionEvent, float], unique: bool = False, events: EventOrder | None = None
) -> list[Outcome]:
    events = events or EventOrder()
    return [events.judge(event, int(stamp_s * S), has_unique_ids=unique) for event, stamp_s in told]


def test_events_in_order_count() -> None:
    told = ((OPENED, 1), (START, 2), (PROGRESS, 3), (BEAT, 4), (END, 5), (WAIT, 6), (CLOSED, 7))
    assert judged(*told) == [ACCEPTED] * 7


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [
        ((END, 5), (START, 3), LATE),
        ((END, 5), (START, 5), LATE),
        ((END, 5), (PROGRESS, 4), LATE),
        ((END, 5), (END, 5), DUPLICATE),
        ((PROGRESS, 5), (PROGRESS, 4), LATE),
        ((START, 5), (BEAT, 4), LATE),
        ((START, 5), (WAIT, 4), LATE),
        ((BEAT, 5), (BEAT, 4), LATE),
        ((WANTED, 5), (WANTED, 4), LATE),
        ((OPENED, 5), (CLOSED, 4), LATE),
        ((CLOSED, 5), (START, 4), LATE),
        ((CLOSED, 5), (END, 4), LATE),
        # What is newer counts, whatever came before.
        ((END, 5), (START, 6), ACCEPTED),
        ((END, 5), (END, 6), ACCEPTED),
        ((CLOSED, 5), (OPENED, 6), ACCEPTED),
        ((CLOSED, 5), (START, 6), ACCEPTED),
        ((START, 5), (BEAT, 6), ACCEPTED),
        # Other clocks: stamps that far apart say nothing.
        ((END, 500), (START, 3), ACCEPTED),
        ((START, 500), (BEAT, 4), ACCEPTED),
        ((CLOSED, 500), (START, 4), ACCEPTED),
        # No stamp: nothing to compare.
        ((END, 5), (START, 0), ACCEPTED),
        ((END, 0), (START, 3), ACCEPTED),
        ((CLOSED, 5), (START, 0), ACCEPTED),
    ],
)
def test_second_event_is_judged_by_the_stamps(
    first: tuple[SessionEvent, float], second: tuple[SessionEvent, float], outcome: Outcome
) -> None:
    assert judged(first, second) == [ACCEPTED, outcome]


def test_other_calls_and_sessions_do_not_matter() -> None:
    other_call = ToolStarted(session_id="s", call_id="d", name="bash")
    other_session = ToolStarted(session_id="t", call_id="c", name="bash")
    assert judged((END, 5), (other_call, 4), (other_session, 4)) == [ACCEPTED] * 3


def test_unique_id_is_used_once_whatever_the_clocks_say() -> None:
    assert judged((START, 1), (END, 2), (START, 9), (PROGRESS, 9), (END, 900), unique=True) == [
        ACCEPTED,
        ACCEPTED,
        LATE,
        LATE,
        DUPLICATE,
    ]


def test_call_told_by_two_sources_counts_once() -> None:
    events = EventOrder()
    assert judged((START, 1), (END, 2), events=events) == [ACCEPTED] * 2
    # A span of the same call, with its own clock.
    assert judged((END, 2.5), unique=True, events=events) == [DUPLICATE]


def test_end_of_one_agent_leaves_the_session() -> None:
    agent_end = SessionEnded(session_id="s", agent="explore")
    assert judged((agent_end, 5), (START, 4)) == [ACCEPTED] * 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "CALLS_MAX", 3)
    monkeypatch.setattr(order, "SESSIONS_MAX", 3)
    events = EventOrder()
    for number in range(10):
        for event in (ToolProgressed, ToolEnded):
            told = event(session_id=f"s{number}", call_id="c")
            assert events.judge(told, S, has_unique_ids=False) is ACCEPTED
    assert (len(events._ends), len(events._told_ns), len(events._sessions)) == (3, 3, 3)
    # The newest is still known.
    last = ToolEnded(session_id="s9", call_id="c")
    assert events.judge(last, S, has_unique_ids=False) is DUPLICATE


def test_recent_keeps_the_latest() -> None:
    recent: Recent[str, int] = Recent(2)
    for key in ("a", "b", "a", "c"):
        recent.put(key, 1)
    assert list(recent) == ["a", "c"]


def test_recent_uids_forget_the_oldest() -> None:
    recent = RecentUids(limit=2)
    assert [recent.is_new(uid) for uid in ("a", "b", "a", "c")] == [True, True, False, True]
    # `b` was the least recently seen when `c` came.
    assert [recent.is_new(uid) for uid in ("a", "c", "b")] == [False, False, True]
    assert len(recent) == 2


def test_empty_uid_is_always_new() -> None:
    recent = RecentUids()
    assert [recent.is_new("") for _ in range(2)] == [True, True]


@given(st.permutations([(START, 1), (PROGRESS, 2), (PROGRESS, 3), (END, 4)]))
def test_call_is_closed_in_every_order_of_arrival(
    arrivals: list[tuple[SessionEvent, float]],
) -> None:
    """The simpler method: a set of open calls, told only what counts."""
    is_open = False
    for (event, _), outcome in zip(arrivals, judged(*arrivals), strict=True):
        if outcome is ACCEPTED:
            is_open = isinstance(event, ToolStarted) or (is_open and event is not END)
    assert not is_open
