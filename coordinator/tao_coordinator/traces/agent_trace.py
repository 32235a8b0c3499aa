"""`agent-trace v1`, the project's own format: JSON lines, one model call each.

A superset of Mooncake's and Dynamo's rows; tool calls sit on the row that consumed their results.
Times are milliseconds. Unknown fields are ignored. Reference: `docs/readiness.md` section Traces.

Release times follow the row's own words: `arrival_ms` where given (observed, on the session's
clock), `timestamp` for open-loop arrivals, else the end of the rows in `wait_for` + `delay` +
`tool_wait_ms`. What a coordinator's journal says in rows of its own (tool calls, ends of sessions)
is put where it belongs by `journal_sessions`.
"""

from collections import defaultdict
from dataclasses import replace
from typing import Final

from tao_coordinator.traces import agent_rows, journal_sessions
from tao_coordinator.traces.agent_rows import CallRow, EndRow, Key, LeftOutRow, ToolRow
from tao_coordinator.traces.fields import Row
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    Skipped,
    SkippedRows,
    ToolRecord,
    Trace,
    TurnRecord,
)

NAME: Final = "agent-trace"
_CLOCK_SLACK_S: Final = 1.0


def read(text: str, name: str) -> Trace:
    """Read all sessions.

    Args:
        text: JSON lines.
        name: of the file, for messages.

    Raises:
        MalformedTrace: not one usable row, or a version that is not known here.
    """
    reader = Reader()
    reader.take(text, name)
    return reader.trace(name)


class Reader:
    """Reads one or more texts that may tell of the same sessions: the files of a journal."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self._calls: dict[Key, list[CallRow]] = defaultdict(list)
        self._tools: list[ToolRow] = []
        self._ends: list[EndRow] = []
        self._seen: set[str] = set()
        self._left_out: set[str] = set()
        self._skipped = Skipped()
        self._is_journal = False

    def take(self, text: str, name: str, prefix: str = "") -> None:
        """Read a text.

        Args:
            text: JSON lines.
            name: of the file, for errors.
            prefix: for messages about damaged rows.

        Raises:
            MalformedTrace: its version is not known here.
        """
        skipped = SkippedRows(prefix)
        self._is_journal |= agent_rows.is_journal(text)
        fresh: list[tuple[str, CallRow]] = []
        # All of them first: of a text that is not read to its end nothing is kept.
        for where, row in list(agent_rows.rows_of(text, name, skipped)):
            if isinstance(row, ToolRow):
                self._tools.append(row)
            elif isinstance(row, EndRow):
                self._ends.append(row)
            elif isinstance(row, LeftOutRow):
                self._left_out.add(row.request_id)
            elif row.request_id in self._seen:
                skipped.add(where, f"request_id {row.request_id!r} was there before")
            else:
                self._seen.add(row.request_id)
                fresh.append((where, row))
        self._keep_releasable(fresh, skipped)
        self._skipped = self._skipped + skipped.to_value()

    def _keep_releasable(self, fresh: list[tuple[str, CallRow]], skipped: SkippedRows) -> None:
        """Take over the calls of a text, but for those that wait for what cannot have been.

        Rows that say when they were asked for do not need what they wait for: a piece cut out of a
        trace is read as it is. Clocks of two sessions cannot be compared, so a row of another one
        has only to be there.
        """
        places = {row.request_id: (number, row) for number, (_, row) in enumerate(fresh)}
        for where, row in fresh:
            for wait in () if row.release_is_told else row.wait_for:
                if wait not in self._seen and wait not in self._left_out:
                    skipped.add(where, f"wait_for: there is no row {wait[:80]!r}")
                    break
                if wait in places and _is_no_earlier(places[wait], places[row.request_id]):
                    skipped.add(where, f"wait_for: row {wait[:80]!r} does not come before it")
                    break
            else:
                self._calls[row.key].append(row)

    def trace(self, name: str) -> Trace:
        """Everything that was read.

        Args:
            name: of the file or folder, for messages.

        Raises:
            MalformedTrace: not one usable row.
        """
        if not self._calls:
            what = "no model call in it yet" if self._is_journal else "no usable agent-trace row"
            raise MalformedTrace(f"{name}: {what}{self._skipped.first_reason()}")
        journal = {k: v for k, v in self._calls.items() if all(map(journal_sessions.is_timed, v))}
        sessions = [
            _session(key.session_id, rows)
            for key, rows in self._calls.items()
            if key not in journal
        ]
        if journal:
            sessions += journal_sessions.put_together(journal, self._tools, self._ends)
        return Trace(format=NAME, sessions=tuple(sessions), skipped=self._skipped)


def _is_no_earlier(other: tuple[int, CallRow], one: tuple[int, CallRow]) -> bool:
    """Whether a row of the same session, with its place in the file, does not precede another."""
    (its_place, its_row), (place, row) = other, one
    if its_row.key != row.key:
        return False
    if its_row.turn is not None and row.turn is not None:
        return (its_row.turn, its_place) >= (row.turn, place)
    return its_place >= place


def _in_order(rows: list[CallRow]) -> list[CallRow]:
    """By turn; a row that does not tell it stays behind the one before it in the file."""
    turns: list[int] = []
    for row in rows:
        turns.append(row.turn if row.turn is not None else turns[-1] if turns else 0)
    return [rows[number] for number in sorted(range(len(rows)), key=turns.__getitem__)]


def _session(session_id: str, rows: list[CallRow]) -> SessionRecord:
    rows = _in_order(rows)
    ends: dict[str, float] = {}
    turns: list[TurnRecord] = []
    first_s = rows[0].timestamp_s
    earliest_s = 0.0
    for row in rows:
        known_s = row.arrival_s
        if known_s is None and row.timestamp_s is not None:
            known_s = row.timestamp_s - (first_s or 0.0)
        waits_s = [ends[wait] for wait in row.wait_for if wait in ends]
        previous_s = max(waits_s or ends.values(), default=0.0)
        arrival_s = previous_s + row.delay_s + row.tool_wait_s if known_s is None else known_s
        ends[row.request_id] = arrival_s + (row.duration_s or 0.0)
        turns.append(_turn(row, earliest_s, arrival_s))
        earliest_s = arrival_s
    turns.sort(key=lambda turn: turn.arrival_s)
    meta = rows[0].meta
    return SessionRecord(
        session_id=session_id,
        turns=tuple(turns),
        parent_session_id=rows[0].parent_session_id,
        arrival_s=first_s,
        harness=_word(meta, "harness"),
        model=_word(meta, "model"),
        source=_word(meta, "source"),
        output_tokens_are_reliable=meta.get("output_length_reliable") is not False,
    )


def _turn(row: CallRow, earliest_s: float, arrival_s: float) -> TurnRecord:
    return TurnRecord(
        request_id=row.request_id,
        arrival_s=arrival_s,
        duration_s=row.duration_s,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        tools=_on_session_clock(row.tools, earliest_s, arrival_s, row.delay_s),
        gap_s=row.delay_s,
        gap_is_person=row.gap_is_person,
        block_size=row.block_size,
        block_runs=row.block_runs,
    )


def _on_session_clock(
    tools: tuple[ToolRecord, ...], earliest_s: float, arrival_s: float, delay_s: float
) -> tuple[ToolRecord, ...]:
    """Bring tool times that are on another clock (Unix, or their own 0) to the session's.

    The last end is followed by `delay_s` and the turn; that fixes the offset.
    """
    if not tools:
        return tools
    start_s = min(tool.start_s for tool in tools)
    end_s = max(tool.end_s for tool in tools)
    if earliest_s - _CLOCK_SLACK_S <= start_s and end_s <= arrival_s + _CLOCK_SLACK_S:
        return tools
    shift_s = arrival_s - delay_s - end_s
    return tuple(replace(tool, start_s=max(0.0, tool.start_s + shift_s)) for tool in tools)


def _word(meta: Row, name: str) -> str:
    value = meta.get(name)
    return value if isinstance(value, str) else ""
