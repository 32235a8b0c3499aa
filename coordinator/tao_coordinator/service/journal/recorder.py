"""From what enters and leaves the engine to rows of the project's own trace format.

A row is written when its turn or tool call is over; what is still open at a crash is not in the
journal. Memory is bounded: beyond the bounds the oldest open ones are forgotten.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final

from tao_coordinator.core.effects import Effect, Grant, Reject
from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    SessionEnded,
    SessionHeartbeat,
    SessionWaiting,
    ToolEnded,
    ToolStarted,
    TurnAbandoned,
    TurnObserved,
    TurnOutcome,
    TurnRequested,
)

Row = dict[str, object]

OPEN_MAX: Final = 65_536
"""Open turns, and open tool calls, that are remembered."""
WAITS_MAX: Final = 16_384
SWEEP_S: Final = 10.0
"""How often leases are looked for that ended without a word."""
_PERSON: Final = frozenset({"user_input", "approval"})
_MS: Final = 1e3


@dataclass(slots=True)
class _OpenTurn:
    asked: TurnRequested
    asked_s: float
    is_after_person: bool
    granted_s: float = 0.0
    lease_id: str | None = None
    backend_id: str = ""


class _OpenTools:
    """Tool calls whose end has not been told, by session. The oldest sessions give way."""

    def __init__(self) -> None:
        self.number = 0
        self._calls: OrderedDict[str, dict[str, tuple[ToolStarted, float]]] = OrderedDict()

    def open(self, event: ToolStarted, now_s: float, age_s: float) -> None:
        if event.timeout_s is not None:
            # What is left of it when the event arrived.
            event = replace(event, timeout_s=event.timeout_s + age_s)
        calls = self._calls.setdefault(event.session_id, {})
        if event.call_id not in calls:
            calls[event.call_id] = (event, now_s)
            self.number += 1
        while self.number > OPEN_MAX:
            _, oldest = self._calls.popitem(last=False)
            self.number -= len(oldest)

    def close(self, session_id: str, call_id: str) -> tuple[ToolStarted, float] | None:
        calls = self._calls.get(session_id)
        found = None if calls is None else calls.pop(call_id, None)
        if calls is not None and found is not None:
            self.number -= 1
            if not calls:
                del self._calls[session_id]
        return found

    def keep(self, session_id: str, call_ids: tuple[str, ...]) -> None:
        """Calls that are not named ended at a time that nobody knows."""
        named = set(call_ids)
        for call_id in [x for x in self._calls.get(session_id, ()) if x not in named]:
            self.close(session_id, call_id)


class Recorder:
    """Knows what is open, and makes a row of it once it is over."""

    def __init__(
        self,
        begin_s: float,
        begin_unix_s: float,
        has_lease: Callable[[str], bool],
        time_scale: float = 1.0,
    ) -> None:
        """Start with nothing open.

        Args:
            begin_s: Monotonic time of the start.
            begin_unix_s: Wall time of the start. Later ones count from it on the monotonic clock,
                so that a clock that is set bends no duration.
            has_lease: Whether a lease is alive, as of the last step.
            time_scale: Of simulated engines: their seconds are written, from the start on.
        """
        self._begin_s = begin_s
        self._begin_unix_s = begin_unix_s
        self._has_lease = has_lease
        self._ms = _MS * time_scale
        self._turns: OrderedDict[str, _OpenTurn] = OrderedDict()
        self._request_by_lease: dict[str, str] = {}
        self._tools = _OpenTools()
        self._waits: OrderedDict[str, None] = OrderedDict()
        self._leased: OrderedDict[str, None] = OrderedDict()
        """Sessions with leases: what else is told of their calls is the same once more."""
        self._num_observed = 0
        self._next_sweep_s = float("-inf")
        self._over: dict[type, Callable[[Any, float], Row | None]] = {
            LeaseReleased: self._released,
            ToolEnded: self._tool_ended,
            TurnObserved: self._observed,
            SessionEnded: self._ended,
        }
        """Events with which something is over."""

    @property
    def num_open(self) -> int:
        """Turns and tool calls that are remembered."""
        return len(self._turns) + self._tools.number

    def take(
        self,
        now_s: float,
        events: Sequence[Event],
        effects: Iterable[Effect],
        ages_s: Sequence[float] = (),
    ) -> list[Row]:
        """What became complete in one step of the engine.

        Args:
            now_s: Of the step, monotonic.
            events: That it took in.
            effects: That it gave.
            ages_s: How long before `now_s` each event happened; empty: none.
        """
        rows: list[Row] = []
        for event, age_s in zip(events, ages_s or repeat(0.0), strict=False):
            row = self._event(event, now_s - age_s, age_s)
            if row is not None:
                rows.append(row)
        for effect in effects:
            if isinstance(effect, Grant):
                self._granted(effect, now_s)
            elif isinstance(effect, Reject):
                self._forget(effect.request_id)
        if now_s >= self._next_sweep_s:
            self._next_sweep_s = now_s + SWEEP_S
            rows += self._lost(now_s)
        return rows

    def _event(self, event: Event, now_s: float, age_s: float) -> Row | None:
        over = self._over.get(type(event))
        if over is not None:
            return over(event, now_s)
        if isinstance(event, TurnRequested):
            self._asked(event, now_s)
        elif isinstance(event, ToolStarted):
            self._tools.open(event, now_s, age_s)
        elif isinstance(event, TurnAbandoned):
            turn = self._turns.get(event.request_id)
            if turn is not None and (turn.lease_id is None or not self._has_lease(turn.lease_id)):
                self._forget(event.request_id)
        elif isinstance(event, SessionHeartbeat):
            self._tools.keep(event.session_id, event.open_call_ids)
        elif isinstance(event, SessionWaiting) and event.reason in _PERSON:
            self._waits[event.session_id] = None
            if len(self._waits) > WAITS_MAX:
                self._waits.popitem(last=False)
        return None

    # --- turns -----------------------------------------------------------------------------------

    def _asked(self, event: TurnRequested, now_s: float) -> None:
        if event.request_id in self._turns:
            return
        self._leased[event.session_id] = None
        self._leased.move_to_end(event.session_id)
        if len(self._leased) > OPEN_MAX:
            self._leased.popitem(last=False)
        self._turns[event.request_id] = _OpenTurn(event, now_s, self._takes_wait(event.session_id))
        if len(self._turns) > OPEN_MAX:
            self._forget(next(iter(self._turns)))

    def _takes_wait(self, session_id: str) -> bool:
        """Whether the session waited for a person; it does so no more."""
        found = session_id in self._waits
        if found:
            del self._waits[session_id]
        return found

    def _granted(self, grant: Grant, now_s: float) -> None:
        turn = self._turns.get(grant.request_id)
        if turn is None or turn.lease_id is not None:
            return
        turn.granted_s = now_s
        turn.lease_id = grant.lease_id
        turn.backend_id = grant.backend_id
        self._request_by_lease[grant.lease_id] = grant.request_id

    def _forget(self, request_id: str) -> _OpenTurn | None:
        turn = self._turns.pop(request_id, None)
        if turn is not None and turn.lease_id is not None:
            del self._request_by_lease[turn.lease_id]
        return turn

    def _released(self, event: LeaseReleased, now_s: float) -> Row | None:
        request_id = self._request_by_lease.get(event.lease_id)
        turn = None if request_id is None else self._forget(request_id)
        return None if turn is None else self._turn_row(turn, event, now_s)

    def _observed(self, event: TurnObserved, now_s: float) -> Row | None:
        if event.session_id in self._leased:
            return None
        self._num_observed += 1
        began_s = now_s - event.duration_s
        asked = TurnRequested(
            request_id=f"observed-{self._unix_ms(self._begin_s):.0f}-{self._num_observed}",
            session_id=event.session_id,
            agent=event.agent,
            model=event.model,
        )
        report = LeaseReleased(
            lease_id="",
            input_tokens=event.input_tokens,
            cached_tokens=event.cached_tokens,
            output_tokens=event.output_tokens,
            ttft_s=event.ttft_s,
        )
        is_after_person = self._takes_wait(event.session_id)
        turn = _OpenTurn(asked, began_s, is_after_person, granted_s=began_s)
        return self._turn_row(turn, report, now_s)

    def _lost(self, now_s: float) -> list[Row]:
        """Turns whose lease is over though nobody gave it back."""
        rows: list[Row] = []
        for lease_id in [x for x in self._request_by_lease if not self._has_lease(x)]:
            lost = LeaseReleased(lease_id=lease_id, outcome=TurnOutcome.LOST)
            row = self._released(lost, now_s)
            if row is not None:
                rows.append(row)
        return rows

    def _turn_row(self, turn: _OpenTurn, report: LeaseReleased, now_s: float) -> Row:
        asked = turn.asked
        ran_s = now_s - turn.granted_s
        if report.duration_s is not None:
            # By the caller's clock; the word that a reply has ended comes later than its end.
            ran_s = min(ran_s, report.duration_s)
        row: Row = {
            "request_id": asked.request_id,
            "session_id": asked.session_id,
            "timestamp": self._unix_ms(turn.asked_s),
            "hold_ms": self._span_ms(turn.granted_s - turn.asked_s),
            "llm_ms": self._span_ms(ran_s),
            "outcome": report.outcome.value,
        }
        tokens = report.input_tokens
        if tokens is None and asked.input_tokens is not None:
            tokens = asked.input_tokens
            row["input_is_estimate"] = True
        optional = (
            ("backend", turn.backend_id),
            ("agent", asked.agent),
            ("model", asked.model),
            ("parent_session_id", asked.parent_session_id),
            ("gap_kind", "user" if turn.is_after_person else None),
        )
        row.update({name: value for name, value in optional if value})
        numbers = (
            ("input_length", tokens),
            ("cached_length", report.cached_tokens),
            ("output_length", report.output_tokens),
            ("ttft_ms", None if report.ttft_s is None else self._span_ms(report.ttft_s)),
        )
        row.update({name: value for name, value in numbers if value is not None})
        return row

    # --- tools and sessions ----------------------------------------------------------------------

    def _tool_ended(self, event: ToolEnded, now_s: float) -> Row | None:
        started, started_s = self._tools.close(event.session_id, event.call_id) or (None, now_s)
        name = started.name if started is not None else event.name
        duration_s = event.duration_s
        if duration_s is None and started is not None:
            duration_s = now_s - started_s
        if duration_s is None or not name:
            return None
        if started is None:
            started_s = now_s - duration_s
        call: Row = {
            "tool_call_id": event.call_id,
            "tool_class": name,
            # The start may have been on its way for longer than the call took.
            "started_at_unix_ms": self._unix_ms(min(started_s, now_s - duration_s)),
            "duration_ms": self._span_ms(duration_s),
            "status": event.error_type or "ok",
        }
        key = event.key or (started.key if started is not None else "")
        if key:
            call["tool_key"] = key
        row: Row = {"session_id": event.session_id, "tool_events": [call]}
        if started is not None:
            if started.timeout_s is not None:
                call["timeout_ms"] = self._span_ms(started.timeout_s)
            if started.background:
                call["background"] = True
            if started.agent:
                row["agent"] = started.agent
        return row

    def _ended(self, event: SessionEnded, now_s: float) -> Row:
        self._waits.pop(event.session_id, None)
        if not event.agent:
            self._tools.keep(event.session_id, ())
        row: Row = {"session_id": event.session_id, "ended_at_unix_ms": self._unix_ms(now_s)}
        if event.agent:
            row["agent"] = event.agent
        return row

    def _unix_ms(self, at_s: float) -> float:
        return round(self._begin_unix_s * _MS + (at_s - self._begin_s) * self._ms, 3)

    def _span_ms(self, seconds: float) -> float:
        return round(max(0.0, seconds) * self._ms, 3)
