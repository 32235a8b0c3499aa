"""Which events come too late to be true, and which came before: the memory of the receiver.

OTLP delivers at least once and in no order, and one call may be told by several sources (hook, log
record, span, SDK). Everything here is compared by the records' own timestamps, never by arrival.
Stamps that lie further apart than `SAME_CLOCK_S` were made by different clocks and compare as
nothing. All memories are bounded; the oldest entry goes first.
"""

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionEnded,
    SessionEvent,
    SessionHeartbeat,
    SessionStarted,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnObserved,
)

UIDS_MAX: Final = 65_536
"""Remembered record ids. A retry comes within seconds; this many last for minutes."""
CALLS_MAX: Final = 65_536
"""Remembered ends of calls."""
SESSIONS_MAX: Final = 16_384
"""Sessions whose latest stamps are remembered."""
TRACES_MAX: Final = 16_384
"""Traces whose session is remembered."""
SAME_CLOCK_S: Final = 30.0
_SAME_CLOCK_NS: Final = int(SAME_CLOCK_S * 1e9)

Key = TypeVar("Key")
Value = TypeVar("Value")


class Outcome(StrEnum):
    """What becomes of an event; the values are a metric's label."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    LATE = "late"


class Recent(OrderedDict[Key, Value], Generic[Key, Value]):
    """A dictionary that keeps its latest `limit` entries."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def put(self, key: Key, value: Value) -> None:
        """Set or replace an entry and make it the newest."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)


class RecentUids:
    """Remembers the last record ids."""

    def __init__(self, limit: int = UIDS_MAX) -> None:
        self._uids: Recent[str, None] = Recent(limit)

    def __len__(self) -> int:
        return len(self._uids)

    def is_new(self, uid: str) -> bool:
        """Remember `uid`; false when it was seen before. An empty one is always new."""
        if not uid:
            return True
        if uid in self._uids:
            self._uids.move_to_end(uid)
            return False
        self._uids.put(uid, None)
        return True


@dataclass(slots=True)
class _Stamps:
    """Latest stamps of one session, nanoseconds; 0: none."""

    started_ns: int = 0
    """Of the session or of one of its calls."""
    listed_ns: int = 0
    """Of a heartbeat."""
    deadline_ns: int = 0
    ended_ns: int = 0


class EventOrder:
    """Judges events by what has been seen of their call and their session."""

    def __init__(self) -> None:
        self._ends: Recent[tuple[str, str], tuple[int, bool]] = Recent(CALLS_MAX)
        """By session and call: stamp of the end, and whether its source has unique ids."""
        self._told_ns: Recent[tuple[str, str], int] = Recent(SESSIONS_MAX)
        """By session and call: stamp of the latest progress."""
        self._sessions: Recent[str, _Stamps] = Recent(SESSIONS_MAX)

    def judge(self, event: SessionEvent, time_ns: int, *, has_unique_ids: bool) -> Outcome:
        """Take note of an event and say whether it still counts.

        Args:
            event: Any event of a session.
            time_ns: Its own timestamp; 0: it has none.
            has_unique_ids: Its source never uses a call id twice in a session.
        """
        if isinstance(event, TurnObserved):
            # It tells of what is over, and nothing overtakes that.
            return Outcome.ACCEPTED
        session_id = event.session_id
        stamps = self._sessions.get(session_id)
        if stamps is None:
            stamps = _Stamps()
            self._sessions.put(session_id, stamps)
        elif _is_before(time_ns, stamps.ended_ns):
            return Outcome.LATE
        else:
            self._sessions.move_to_end(session_id)
        if isinstance(event, ToolStarted):
            return self._started(event, time_ns, has_unique_ids, stamps)
        if isinstance(event, ToolEnded):
            return self._ended(event, time_ns, has_unique_ids)
        if isinstance(event, ToolProgressed):
            return self._progressed(event, time_ns, has_unique_ids)
        return _judge_session(event, time_ns, stamps)

    def _started(
        self, event: ToolStarted, time_ns: int, has_unique_ids: bool, stamps: _Stamps
    ) -> Outcome:
        key = (event.session_id, event.call_id)
        end = self._ends.get(key)
        if end is not None:
            if has_unique_ids or end[1] or _is_before(time_ns, end[0]):
                return Outcome.LATE
            del self._ends[key]
        stamps.started_ns = max(stamps.started_ns, time_ns)
        return Outcome.ACCEPTED

    def _ended(self, event: ToolEnded, time_ns: int, has_unique_ids: bool) -> Outcome:
        key = (event.session_id, event.call_id)
        end = self._ends.get(key)
        # A second end under a reused id is the end of a later call, whose start was lost.
        if end is not None and (has_unique_ids or end[1] or 0 < time_ns <= end[0]):
            return Outcome.DUPLICATE
        self._ends.put(key, (time_ns, has_unique_ids))
        return Outcome.ACCEPTED

    def _progressed(self, event: ToolProgressed, time_ns: int, has_unique_ids: bool) -> Outcome:
        key = (event.session_id, event.call_id)
        end = self._ends.get(key)
        if end is not None and (has_unique_ids or end[1] or _is_before(time_ns, end[0])):
            return Outcome.LATE
        if _is_before(time_ns, self._told_ns.get(key, 0)):
            return Outcome.LATE
        self._told_ns.put(key, time_ns)
        return Outcome.ACCEPTED


def _judge_session(event: SessionEvent, time_ns: int, stamps: _Stamps) -> Outcome:
    if isinstance(event, SessionStarted):
        stamps.started_ns = max(stamps.started_ns, time_ns)
        stamps.ended_ns = 0
        return Outcome.ACCEPTED
    if isinstance(event, SessionDeadlineSet):
        if _is_before(time_ns, stamps.deadline_ns):
            return Outcome.LATE
        stamps.deadline_ns = time_ns
        return Outcome.ACCEPTED
    # What these say was overtaken by a start: a list without it, a wait or an end before it.
    if _is_before(time_ns, stamps.started_ns):
        return Outcome.LATE
    if isinstance(event, SessionHeartbeat):
        if _is_before(time_ns, stamps.listed_ns):
            return Outcome.LATE
        stamps.listed_ns = time_ns
    elif isinstance(event, SessionEnded) and not event.agent:
        stamps.ended_ns = time_ns
    return Outcome.ACCEPTED


def _is_before(time_ns: int, other_ns: int) -> bool:
    """Whether the first stamp was made before the second, as far as they can be compared."""
    return 0 < time_ns <= other_ns and other_ns - time_ns <= _SAME_CLOCK_NS
