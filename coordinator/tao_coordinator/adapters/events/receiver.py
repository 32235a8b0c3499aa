"""From rows to events: who sent them, which session, how old, seen before or too late.

One receiver per coordinator. It is given the wall clock by its caller; what it remembers is bounded
(`order`). A large request may be given in parts, so that its caller can pause in between.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tao_client import semconv
from tao_coordinator.adapters.events import claude_code, codex, genai_spans
from tao_coordinator.adapters.events.attributes import Attributes, session_id_in
from tao_coordinator.adapters.events.log_records import LogRow
from tao_coordinator.adapters.events.order import (
    TRACES_MAX,
    EventOrder,
    Outcome,
    Recent,
    RecentUids,
)
from tao_coordinator.adapters.events.spans import SpanRow
from tao_coordinator.adapters.events.tao_events import READERS as TAO_READERS
from tao_coordinator.adapters.events.tao_events import InvalidRecord
from tao_coordinator.core.events import SessionEvent

AGE_S_MAX: Final = 30.0
"""A record that seems older was stamped by another clock: its age is not believed."""
RECORDS_MAX: Final = 20_000
"""Records read of one request; further ones are rejected."""

_UID_LENGTH_MAX = 256
_TRACE_ID_LENGTH = 16
_FOREIGN_READERS: Final = {**claude_code.READERS, **codex.READERS}

FOREIGN_NAMES: Final = frozenset(_FOREIGN_READERS)
"""Names of other emitters' records that become events."""


class Received(NamedTuple):
    """One event that counts."""

    name: str
    """Of the record; `execute_tool` for a span, `hook` for a hook."""
    event: SessionEvent
    age_s: float
    source: str
    """`event` (ours), `foreign` (another emitter's record), `span` or `hook`."""


@dataclass(slots=True)
class Tally:
    """What became of the records of one request that are no event for the engine."""

    rejected: Counter[str] = field(default_factory=Counter[str])
    """Invalid records by event name."""
    first_message: str = ""
    """What was wrong with the first of them."""
    dropped: Counter[Outcome] = field(default_factory=Counter[Outcome])
    num_ignored: int = 0
    """Records that say nothing to a scheduler."""


class EventReceiver:
    """Turns what emitters send into events, each once."""

    def __init__(self) -> None:
        self._uids = RecentUids()
        self._order = EventOrder()
        self._session_of_trace: Recent[bytes, str] = Recent(TRACES_MAX)

    def logs(self, rows: Iterable[LogRow], now_unix_s: float, tally: Tally) -> list[Received]:
        """Translate log records.

        Args:
            rows: The records.
            now_unix_s: The receiver's wall clock, for the ages of the records.
            tally: Counts what is not returned.
        """
        received: list[Received] = []
        for row in rows:
            name, time_ns, attributes, trace_id = row
            age_s = age_of(time_ns, now_unix_s)
            reader = TAO_READERS.get(name)
            is_ours = reader is not None
            try:
                if trace_id:
                    attributes = self._with_session(attributes, trace_id, is_ours)
                reader = reader or _FOREIGN_READERS.get(name)
                event = None if reader is None else reader(attributes, age_s)
            except InvalidRecord as error:
                tally.rejected[name] += 1
                tally.first_message = tally.first_message or f"{name}: {error}"
                continue
            if event is None:
                tally.num_ignored += 1
                continue
            if not self._uids.is_new(_uid(name, time_ns, attributes, event)):
                outcome = Outcome.DUPLICATE
            else:
                outcome = self._order.judge(event, time_ns, has_unique_ids=not is_ours)
            if outcome is Outcome.ACCEPTED:
                source = "event" if is_ours else "foreign"
                received.append(Received(name, event, age_s, source))
            else:
                tally.dropped[outcome] += 1
        return received

    def look_over(self, rows: Iterable[SpanRow]) -> frozenset[bytes]:
        """Look at all spans of a request before any is translated.

        A tool's span ends before that of the agent, which alone may name the conversation.

        Returns:
            Ids of those that are calls of tools.
        """
        tool_spans: list[bytes] = []
        for row in rows:
            session_id = genai_spans.conversation_of(row)
            if session_id and len(row.trace_id) == _TRACE_ID_LENGTH:
                self._session_of_trace.put(row.trace_id, session_id)
            if genai_spans.is_tool_span(row):
                tool_spans.append(row.span_id)
        return frozenset(tool_spans)

    def spans(
        self,
        rows: Iterable[SpanRow],
        tool_spans: frozenset[bytes],
        now_unix_s: float,
        tally: Tally,
    ) -> list[Received]:
        """Translate spans, in any order.

        Args:
            rows: Some of a request's spans.
            tool_spans: What `look_over` said of all of them.
            now_unix_s: The receiver's wall clock.
            tally: Counts what is not returned.
        """
        received: list[Received] = []
        for row in rows:
            if not genai_spans.is_tool_span(row):
                tally.num_ignored += 1
                continue
            if row.parent_span_id in tool_spans and genai_spans.is_inner_call(row):
                tally.dropped[Outcome.DUPLICATE] += 1
                continue
            event = genai_spans.end_from(row, self._session_of_span(row))
            if event is None:
                tally.num_ignored += 1
                continue
            outcome = self._order.judge(event, row.end_unix_ns, has_unique_ids=True)
            if outcome is Outcome.ACCEPTED:
                age_s = age_of(row.end_unix_ns, now_unix_s)
                received.append(Received(semconv.EXECUTE_TOOL, event, age_s, "span"))
            else:
                tally.dropped[outcome] += 1
        return received

    def hook(
        self, events: Sequence[SessionEvent], now_unix_s: float, tally: Tally
    ) -> list[Received]:
        """Judge the events of one hook, which carries no timestamp: it is sent at once.

        Args:
            events: What it says.
            now_unix_s: The receiver's wall clock.
            tally: Counts what is not returned.
        """
        received: list[Received] = []
        if not events:
            tally.num_ignored += 1
        for event in events:
            outcome = self._order.judge(event, int(now_unix_s * 1e9), has_unique_ids=True)
            if outcome is Outcome.ACCEPTED:
                received.append(Received("hook", event, 0.0, "hook"))
            else:
                tally.dropped[outcome] += 1
        return received

    def _with_session(self, attributes: Attributes, trace_id: bytes, is_ours: bool) -> Attributes:
        """Learn whose trace this is; put in whose it is where a record of ours does not say."""
        session_id = session_id_in(attributes)
        if session_id:
            if len(trace_id) == _TRACE_ID_LENGTH:
                self._session_of_trace.put(trace_id, session_id)
        elif is_ours and trace_id in self._session_of_trace:
            return {**attributes, semconv.CONVERSATION_ID: self._session_of_trace[trace_id]}
        return attributes

    def _session_of_span(self, row: SpanRow) -> str:
        known = genai_spans.conversation_of(row) or self._session_of_trace.get(row.trace_id)
        # A name that no session has: the call is history, and opens or closes nothing.
        return known or f"trace:{row.trace_id[:_TRACE_ID_LENGTH].hex()}"


def age_of(time_unix_ns: int, now_unix_s: float) -> float:
    """Seconds since a record's timestamp, 0 where the clocks cannot be the same."""
    if time_unix_ns <= 0:
        return 0.0
    age_s = now_unix_s - time_unix_ns / 1e9
    return age_s if 0.0 < age_s <= AGE_S_MAX else 0.0


def _uid(name: str, time_ns: int, attributes: Attributes, event: SessionEvent) -> str:
    """The record's own id, else what makes two records the same occurrence; empty: neither."""
    uid = attributes.get(semconv.RECORD_UID)
    if isinstance(uid, str) and 0 < len(uid) <= _UID_LENGTH_MAX:
        return uid
    if time_ns <= 0:
        return ""
    call_id = getattr(event, "call_id", "")
    return f"{event.session_id}\n{call_id}\n{name}\n{time_ns}"
