"""What each session waits for right now, from tool and session events.

Duplicates, late and lost events are normal: a second start of an open call is ignored, an end
without a start is only history, a start without an end is dropped by the next heartbeat that does
not list it, or `LATE_S` after its time-out, or after `CALL_S_MAX`.

A *pause* is a stretch in which a session waits for its own harness or for a person instead of a
blocking tool: `after-tool` from the last end to the next turn, `after-turn` from a reply to
whatever comes, `wait` as announced. Pauses are followed like calls, under keys of their own.

Memory: `SESSIONS_MAX` sessions (the longest silent one goes first), `CALLS_MAX` open calls each.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from tao_coordinator.core.events import (
    Event,
    SessionDeadlineSet,
    SessionEnded,
    SessionHeartbeat,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.prediction.history import LifeTable, Path
from tao_coordinator.prediction.remaining import Law, Source
from tao_coordinator.prediction.survival import Curve

SESSIONS_MAX: Final = 16_384
CALLS_MAX: Final = 256
CALL_S_MAX: Final = 7200.0
"""An open call without time-out is forgotten after this."""
LATE_S: Final = 30.0
"""How long after its time-out an end is still believed to come."""
_STATED_S_MAX: Final = 1e8
"""Three years: longer stated times are taken as this."""
_RATIO_MIN: Final = 0.01
"""Below this share done, progress says nothing about the remaining time."""

AFTER_TOOL: Final = "after-tool"
AFTER_TURN: Final = "after-turn"
WAIT: Final = "wait"


@dataclass(frozen=True, slots=True)
class Told:
    """A remaining time that the session or the call itself stated."""

    at_s: float
    remaining_s: float
    by_progress: bool = False
    """From a share done, not from a stated time."""


@dataclass(slots=True)
class Call:
    """One open tool call, or one pause."""

    session_id: str
    path: Path
    """(tool, key) of a call, (kind, reason) of a pause."""
    started_s: float
    is_pause: bool = False
    timeout_s: float = math.inf
    """Age at which the harness kills it."""
    told: Told | None = None
    is_open: bool = True
    # Working memory of the predictor that follows the call.
    levels: tuple[LifeTable, ...] = ()
    passed: int = 0
    """Buckets already counted as survived."""
    forecasts: list[tuple[float, float, Source]] = field(
        default_factory=list[tuple[float, float, Source]]
    )
    """Unresolved (due age, probability, source)."""
    curve: tuple[Curve, tuple[int, ...], Curve] | None = None
    """Latest (key's curve, session's durations, the two blended)."""
    stated: Law | None = None
    """What was said of its duration at its start."""

    @property
    def believed_s(self) -> float:
        """Age up to which an end is expected at all."""
        return min(self.timeout_s + LATE_S, CALL_S_MAX)


@dataclass(slots=True)
class SessionTrack:
    """What one session id waits for."""

    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    """Open blocking calls."""
    background: set[str] = field(default_factory=set[str])
    pause: Call | None = None
    deadline: Told | None = None
    in_turn: bool = False
    recent: dict[Path, tuple[int, ...]] = field(default_factory=dict[Path, tuple[int, ...]])
    """Working memory of the predictor: buckets of the latest durations per path."""


class Listener(Protocol):
    """Is told what begins and ends; learns from it."""

    def call_started(self, track: SessionTrack, call: Call) -> None:
        """A blocking call or a pause has begun."""
        ...

    def call_over(self, track: SessionTrack, call: Call, duration_s: float, ended: bool) -> None:
        """It is over after `duration_s`.

        Args:
            track: its session.
            call: what is over.
            duration_s: how long it lasted.
            ended: False: it was cut short by something else.
        """
        ...

    def told_over(self, tool: str, told: Told, now_s: float) -> None:
        """What a session stated about itself has come true at `now_s`."""
        ...


class Tracker:
    """Sessions and their open calls."""

    def __init__(self, listener: Listener) -> None:
        """Start empty.

        Args:
            listener: is told of every begin and end.
        """
        self._listener = listener
        self._sessions: OrderedDict[str, SessionTrack] = OrderedDict()
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            ToolStarted: self._tool_started,
            ToolEnded: self._tool_ended,
            ToolProgressed: self._tool_progressed,
            TurnRequested: self._turn_requested,
            SessionWaiting: self._waiting,
            SessionDeadlineSet: self._deadline_set,
            SessionHeartbeat: self._heartbeat,
            SessionEnded: self._session_ended,
        }

    def __len__(self) -> int:
        """Sessions followed."""
        return len(self._sessions)

    def get(self, session_id: str) -> SessionTrack | None:
        """What is known of a session."""
        return self._sessions.get(session_id)

    def forget(self, session_id: str) -> None:
        """Drop a session."""
        track = self._sessions.pop(session_id, None)
        if track is not None:
            for call in track.calls.values():
                call.is_open = False
            if track.pause is not None:
                track.pause.is_open = False

    def observe(self, event: Event, now_s: float) -> None:
        """Take in one event; kinds that say nothing about readiness are ignored."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event, now_s)

    def turn_ended(self, session_id: str, now_s: float) -> None:
        """A reply is complete: the session goes on by itself, with tools or a new turn."""
        track = self._touch(session_id)
        track.in_turn = False
        if not track.calls and track.pause is None:
            self._begin_pause(session_id, track, (AFTER_TURN,), now_s)

    def drop_expired(self, track: SessionTrack, now_s: float) -> None:
        """Close calls whose end was lost; how long they really ran is unknown."""
        if not track.calls:
            return
        gone = [i for i, c in track.calls.items() if now_s - c.started_s >= c.believed_s]
        for call_id in gone:
            track.calls.pop(call_id).is_open = False

    # --- events ----------------------------------------------------------------------------------

    def _touch(self, session_id: str) -> SessionTrack:
        track = self._sessions.get(session_id)
        if track is None:
            if len(self._sessions) >= SESSIONS_MAX:
                self.forget(next(iter(self._sessions)))
            track = self._sessions[session_id] = SessionTrack()
        else:
            self._sessions.move_to_end(session_id)
        return track

    def _tool_started(self, event: ToolStarted, now_s: float) -> None:
        track = self._touch(event.session_id)
        if event.background:
            if len(track.background) < CALLS_MAX:
                track.background.add(event.call_id)
            return
        if event.call_id in track.calls or len(track.calls) >= CALLS_MAX:
            return
        self._end_pause(track, now_s, came_back=False)
        track.deadline = None
        track.in_turn = False  # who waits for a tool has its reply, even if its end was lost
        call = Call(
            event.session_id,
            (event.name, event.key) if event.key else (event.name,),
            now_s,
            timeout_s=math.inf if event.timeout_s is None else max(0.0, event.timeout_s),
            told=None if event.remaining_s is None else _told(now_s, event.remaining_s),
        )
        track.calls[event.call_id] = call
        self._listener.call_started(track, call)

    def _tool_progressed(self, event: ToolProgressed, now_s: float) -> None:
        track = self._touch(event.session_id)
        self._end_wait(track, now_s)
        call = track.calls.get(event.call_id)
        if call is None:
            return
        if event.remaining_s is not None:
            call.told = _told(now_s, event.remaining_s)
        elif event.ratio is not None and event.ratio >= _RATIO_MIN:
            left = 1.0 / min(1.0, event.ratio) - 1.0
            call.told = Told(now_s, (now_s - call.started_s) * left, by_progress=True)

    def _tool_ended(self, event: ToolEnded, now_s: float) -> None:
        track = self._touch(event.session_id)
        self._end_wait(track, now_s)
        if event.call_id in track.background:
            track.background.discard(event.call_id)
            return
        call = track.calls.pop(event.call_id, None)
        told_s = event.duration_s
        if told_s is not None and not 0.0 <= told_s < math.inf:
            told_s = None
        if call is None:
            if told_s is None or not event.name:
                return
            path = (event.name, event.key) if event.key else (event.name,)
            call = Call(event.session_id, path, now_s - told_s)
        call.is_open = False
        duration_s = now_s - call.started_s if told_s is None else told_s
        self._listener.call_over(track, call, max(0.0, duration_s), True)
        if not track.calls and track.pause is None and not track.in_turn:
            self._begin_pause(event.session_id, track, (AFTER_TOOL,), now_s)

    def _turn_requested(self, event: TurnRequested, now_s: float) -> None:
        track = self._touch(event.session_id)
        if track.in_turn:
            return
        track.in_turn = True
        if track.deadline is not None:
            self._listener.told_over("", track.deadline, now_s)
            track.deadline = None
        self._end_pause(track, now_s, came_back=True)

    def _waiting(self, event: SessionWaiting, now_s: float) -> None:
        track = self._touch(event.session_id)
        self._end_pause(track, now_s, came_back=False)
        track.in_turn = False  # nor does it wait for its reply
        self._begin_pause(event.session_id, track, (WAIT, event.reason), now_s)
        assert track.pause is not None
        if event.expected_duration_s is not None:
            track.pause.told = _told(now_s, event.expected_duration_s)

    def _heartbeat(self, event: SessionHeartbeat, now_s: float) -> None:
        track = self._touch(event.session_id)
        listed = set(event.open_call_ids)
        for call_id in [i for i in track.calls if i not in listed]:
            # It ended at some time since the last sign of it: no duration to learn from.
            track.calls.pop(call_id).is_open = False
        track.background &= listed
        if not track.calls and track.pause is None and not track.in_turn:
            self._begin_pause(event.session_id, track, (AFTER_TOOL,), now_s)

    def _deadline_set(self, event: SessionDeadlineSet, now_s: float) -> None:
        self._touch(event.session_id).deadline = _told(now_s, event.remaining_s)

    def _session_ended(self, event: SessionEnded, now_s: float) -> None:
        if not event.agent:
            self.forget(event.session_id)

    # --- pauses ----------------------------------------------------------------------------------

    def _begin_pause(self, session_id: str, track: SessionTrack, path: Path, now_s: float) -> None:
        track.pause = Call(session_id, path, now_s, is_pause=True)
        self._listener.call_started(track, track.pause)

    def _end_pause(self, track: SessionTrack, now_s: float, *, came_back: bool) -> None:
        pause, track.pause = track.pause, None
        if pause is None:
            return
        pause.is_open = False
        # Any sign of life ends an announced wait; the others last until the session comes back.
        ended = came_back or pause.path[0] == WAIT
        self._listener.call_over(track, pause, max(0.0, now_s - pause.started_s), ended)

    def _end_wait(self, track: SessionTrack, now_s: float) -> None:
        if track.pause is not None and track.pause.path[0] == WAIT:
            self._end_pause(track, now_s, came_back=True)


def _told(now_s: float, remaining_s: float) -> Told:
    # In this order NaN becomes 0.
    return Told(now_s, min(max(0.0, remaining_s), _STATED_S_MAX))
