"""What sessions wait for: duplicates, lost ends, background calls, pauses, bounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tao_coordinator.core.events import (
    Event,
    LeaseRenewed,
    SessionDeadlineSet,
    SessionEnded,
    SessionHeartbeat,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.prediction import tracking as module
from tao_coordinator.prediction.tracking import Call, SessionTrack, Told, Tracker


@dataclass
class Log:
    """Remembers what the tracker tells."""

    over: list[tuple[tuple[str, ...], float, bool]] = field(
        default_factory=list[tuple[tuple[str, ...], float, bool]]
    )
    told: list[tuple[Told, float]] = field(default_factory=list[tuple[Told, float]])
    num_started: int = 0

    def call_started(self, track: SessionTrack, call: Call) -> None:
        self.num_started += not call.is_pause

    def call_over(self, track: SessionTrack, call: Call, duration_s: float, ended: bool) -> None:
        assert not call.is_open
        self.over.append((call.path, duration_s, ended))

    def told_over(self, tool: str, told: Told, now_s: float) -> None:
        self.told.append((told, now_s))


def started(call_id: str = "c", *, key: str = "ls", background: bool = False) -> ToolStarted:
    return ToolStarted(session_id="s", call_id=call_id, name="Bash", key=key, background=background)


def ended(call_id: str = "c", duration_s: float | None = None) -> ToolEnded:
    return ToolEnded(session_id="s", call_id=call_id, name="Bash", key="ls", duration_s=duration_s)


def turn() -> TurnRequested:
    return TurnRequested(request_id="r", session_id="s")


def replay(events: Sequence[tuple[float, Event]]) -> tuple[Tracker, Log]:
    log = Log()
    tracker = Tracker(log)
    for now_s, event in events:
        tracker.observe(event, now_s)
    return tracker, log


def track_of(tracker: Tracker) -> SessionTrack:
    track = tracker.get("s")
    assert track is not None
    return track


def test_call_lasts_from_start_to_end() -> None:
    _, log = replay([(10.0, started()), (13.5, ended())])
    assert log.over == [(("Bash", "ls"), 3.5, True)]


def test_duration_of_the_emitter_wins_over_arrival_times() -> None:
    _, log = replay([(10.0, started()), (13.5, ended(duration_s=3.1))])
    assert log.over == [(("Bash", "ls"), 3.1, True)]


@pytest.mark.parametrize("duration_s", [-1.0, float("nan"), float("inf")])
def test_absurd_duration_falls_back_to_arrival_times(duration_s: float) -> None:
    _, log = replay([(10.0, started()), (13.5, ended(duration_s=duration_s))])
    assert log.over == [(("Bash", "ls"), 3.5, True)]


def test_call_without_key_is_known_by_its_tool() -> None:
    _, log = replay([(0.0, started(key="")), (1.0, ended())])
    assert log.over[0][0] == ("Bash",)


def test_second_start_and_second_end_change_nothing() -> None:
    tracker, log = replay([(0.0, started()), (2.0, started()), (5.0, ended()), (6.0, ended())])
    assert log.over == [(("Bash", "ls"), 5.0, True)]
    assert not track_of(tracker).calls


def test_end_without_start_is_history_only_when_it_says_how_long() -> None:
    tracker, log = replay([(0.0, ended("lost", 4.0)), (1.0, ended("vague"))])
    assert log.over == [(("Bash", "ls"), 4.0, True)]
    assert log.num_started == 0
    assert not track_of(tracker).calls


def test_background_call_is_neither_waited_for_nor_learned() -> None:
    tracker, log = replay([(0.0, started(background=True)), (0.05, ended(duration_s=0.05))])
    assert log.over == []
    assert track_of(tracker).background == set()


def test_heartbeat_closes_what_it_does_not_list_without_a_duration() -> None:
    tracker, log = replay(
        [
            (0.0, started("a")),
            (0.0, started("b")),
            (9.0, SessionHeartbeat(session_id="s", open_call_ids=("b",))),
        ]
    )
    assert list(track_of(tracker).calls) == ["b"]
    assert log.over == []


def test_lost_end_is_given_up_some_time_after_the_time_out() -> None:
    event = ToolStarted(session_id="s", call_id="c", name="Bash", timeout_s=10.0)
    tracker, _ = replay([(0.0, event)])
    track = track_of(tracker)
    tracker.drop_expired(track, 10.0 + module.LATE_S - 0.1)
    assert track.calls
    tracker.drop_expired(track, 10.0 + module.LATE_S)
    assert not track.calls


def test_lost_end_without_time_out_is_given_up_after_hours() -> None:
    tracker, _ = replay([(0.0, started())])
    track = track_of(tracker)
    tracker.drop_expired(track, module.CALL_S_MAX - 1.0)
    assert track.calls
    tracker.drop_expired(track, module.CALL_S_MAX)
    assert not track.calls


def test_progress_becomes_a_stated_remaining_time() -> None:
    tracker, _ = replay(
        [(0.0, started()), (6.0, ToolProgressed(session_id="s", call_id="c", ratio=0.75))]
    )
    # A quarter is left of what took 6 s for three.
    told = track_of(tracker).calls["c"].told
    assert told == Told(6.0, pytest.approx(2.0), by_progress=True)  # pyright: ignore[reportArgumentType]


def test_stated_remaining_time_of_a_progress_record_is_taken_as_a_deadline() -> None:
    tracker, _ = replay(
        [(0.0, started()), (6.0, ToolProgressed(session_id="s", call_id="c", remaining_s=9.0))]
    )
    assert track_of(tracker).calls["c"].told == Told(6.0, 9.0)


def test_progress_near_zero_says_nothing() -> None:
    tracker, _ = replay(
        [(0.0, started()), (6.0, ToolProgressed(session_id="s", call_id="c", ratio=0.001))]
    )
    assert track_of(tracker).calls["c"].told is None


def test_pause_after_the_last_end_lasts_until_the_turn() -> None:
    _, log = replay(
        [
            (0.0, started("a")),
            (0.0, started("b")),
            (1.0, ended("a")),
            (3.0, ended("b")),
            (3.25, turn()),
        ]
    )
    assert log.over[-1] == (("after-tool",), 0.25, True)
    assert len(log.over) == 3


def test_pause_after_a_reply_is_cut_short_by_a_tool() -> None:
    log = Log()
    tracker = Tracker(log)
    tracker.observe(turn(), 0.0)
    tracker.turn_ended("s", 5.0)
    tracker.observe(started(), 5.5)
    assert log.over == [(("after-turn",), 0.5, False)]


def test_poll_of_a_held_turn_is_no_second_turn() -> None:
    tracker, log = replay([(0.0, started()), (1.0, ended()), (2.0, turn()), (9.0, turn())])
    assert log.over[-1] == (("after-tool",), 1.0, True)
    assert track_of(tracker).in_turn


@pytest.mark.parametrize("sign_of_life", [turn(), started("d"), ended("c")])
def test_any_sign_of_life_ends_a_wait(sign_of_life: Event) -> None:
    _, log = replay(
        [
            (0.0, started()),
            (1.0, SessionWaiting(session_id="s", reason="approval")),
            (31.0, sign_of_life),
        ]
    )
    assert (("wait", "approval"), 30.0, True) in log.over


def test_deadline_is_settled_by_the_turn_and_voided_by_a_tool() -> None:
    told = SessionDeadlineSet(session_id="s", remaining_s=10.0)
    _, log = replay([(0.0, told), (12.0, turn())])
    assert log.told == [(Told(0.0, 10.0), 12.0)]
    tracker, log = replay([(0.0, told), (1.0, started())])
    assert track_of(tracker).deadline is None
    assert log.told == []


def test_ended_session_is_forgotten_unless_only_one_agent_of_it_ended() -> None:
    tracker, _ = replay([(0.0, started()), (1.0, SessionEnded(session_id="s", agent="helper"))])
    assert len(tracker) == 1
    call = track_of(tracker).calls["c"]
    tracker.observe(SessionEnded(session_id="s"), 2.0)
    assert len(tracker) == 0
    assert not call.is_open


def test_events_without_a_session_are_ignored() -> None:
    tracker, _ = replay([(0.0, LeaseRenewed(lease_id="l"))])
    assert len(tracker) == 0


def test_memory_is_bounded_by_silent_sessions_and_open_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 10)
    monkeypatch.setattr(module, "CALLS_MAX", 5)
    tracker = Tracker(Log())
    for number in range(50):
        tracker.observe(ToolStarted(session_id="busy", call_id=str(number), name="x"), 0.0)
        other = f"s{number}"
        tracker.observe(ToolStarted(session_id=other, call_id="c", name="x"), 0.0)
    assert len(tracker) == 10
    busy = tracker.get("busy")
    assert busy is not None
    assert len(busy.calls) == 5
    assert tracker.get("s0") is None


def test_lost_end_of_a_turn_is_made_up_for_by_the_next_tool() -> None:
    tracker, log = replay([(0.0, turn()), (5.0, started()), (6.0, ended()), (6.5, turn())])
    assert log.over[-1] == (("after-tool",), 0.5, True)
    assert track_of(tracker).in_turn


def test_wait_ends_with_the_turn_even_if_the_end_of_the_last_one_was_lost() -> None:
    wait = SessionWaiting(session_id="s", reason="approval")
    _, log = replay([(0.0, turn()), (5.0, wait), (65.0, turn())])
    assert log.over == [(("wait", "approval"), 60.0, True)]
