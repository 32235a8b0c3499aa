"""`agent-trace v1`, the project's own format: JSON lines, one model call each.

A superset of Mooncake's and Dynamo's rows; tool calls sit on the row that consumed their results.
Times are milliseconds. Unknown fields are ignored. Reference: `docs/readiness.md` section Traces.

Release times follow the row's own words: `arrival_ms` where given (observed, on the session's
clock), `timestamp` for open-loop arrivals, else the end of the rows in `wait_for` + `delay` +
`tool_wait_ms`.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final

from tao_coordinator.traces import fields
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    SkippedRows,
    ToolRecord,
    Trace,
    TurnRecord,
)

NAME: Final = "agent-trace"
_MS: Final = 1000.0
_CLOCK_SLACK_S: Final = 1.0


def read(text: str, name: str) -> Trace:
    """Read all sessions.

    Args:
        text: JSON lines.
        name: of the file, for messages.

    Raises:
        MalformedTrace: not one usable row.
    """
    skipped = SkippedRows()
    rows: dict[str, list[_Parsed]] = defaultdict(list)
    seen: set[str] = set()
    for where, line in fields.lines_of(text):
        try:
            parsed = _parse(fields.parse_row(line))
        except FieldError as error:
            skipped.add(where, str(error))
            continue
        if parsed.request_id in seen:
            skipped.add(where, f"request_id {parsed.request_id!r} was there before")
            continue
        seen.add(parsed.request_id)
        rows[parsed.session_id].append(parsed)
    if not rows:
        raise MalformedTrace(f"{name}: no usable agent-trace row")
    sessions = tuple(_session(key, parsed) for key, parsed in rows.items())
    return Trace(format=NAME, sessions=sessions, skipped=skipped.to_value())


@dataclass(slots=True)
class _Parsed:
    """One row, its release time not yet resolved."""

    request_id: str
    session_id: str
    turn: int
    arrival_s: float | None
    timestamp_s: float | None
    wait_for: tuple[str, ...]
    delay_s: float
    tool_wait_s: float
    duration_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    tools: tuple[ToolRecord, ...]
    block_size: int | None
    block_runs: tuple[tuple[int, int], ...]
    gap_is_person: bool
    meta: Row
    parent_session_id: str | None


def _parse(row: Row) -> _Parsed:
    session_id = fields.text(row, "session_id")
    turn = fields.number(row, "turn")
    gap_s = fields.seconds(row, "gap_before_ms", per_second=_MS)
    gap_kind = row.get("gap_kind")
    waits = fields.items(row, "wait_for")
    delay_s = fields.seconds(row, "delay", per_second=_MS) or 0.0
    tools = tuple(
        _tool(fields.as_row(item, "tool event")) for item in fields.items(row, "tool_events")
    )
    return _Parsed(
        request_id=fields.text(row, "request_id"),
        session_id=session_id,
        turn=int(turn or 0),
        arrival_s=fields.seconds(row, "arrival_ms", per_second=_MS),
        timestamp_s=fields.instant_s(row, "timestamp", per_second=_MS),
        wait_for=tuple(wait for wait in waits if isinstance(wait, str)),
        delay_s=delay_s + (gap_s or 0.0),
        tool_wait_s=fields.seconds(row, "tool_wait_ms", per_second=_MS) or 0.0,
        duration_s=fields.seconds(row, "llm_ms", per_second=_MS),
        input_tokens=fields.tokens(row, "input_length"),
        output_tokens=fields.tokens(row, "output_length"),
        tools=tools,
        block_size=fields.tokens(row, "block_size"),
        block_runs=fields.block_runs(row),
        gap_is_person=gap_kind in ("user", "person"),
        meta=fields.row(row, "meta"),
        parent_session_id=fields.text(row, "parent_session_id", "") or None,
    )


def _tool(event: Row) -> ToolRecord:
    start_s = fields.instant_s(event, "started_at_ms", per_second=_MS)
    if start_s is None:
        start_s = fields.instant_s(event, "started_at_unix_ms", per_second=_MS)
    duration_s = fields.seconds(event, "duration_ms", per_second=_MS)
    if duration_s is None:
        raise FieldError("a tool event has no duration_ms")
    if start_s is None:
        raise FieldError("a tool event has no started_at_ms")
    return ToolRecord(
        call_id=fields.text(event, "tool_call_id", ""),
        tool=fields.text(event, "tool_class"),
        key=fields.text(event, "tool_key", ""),
        start_s=start_s,
        duration_s=duration_s,
        timeout_s=fields.seconds(event, "timeout_ms", per_second=_MS),
        background=fields.flag(event, "background"),
        is_error=fields.text(event, "status", "ok") not in ("ok", "succeeded"),
    )


def _session(session_id: str, rows: list[_Parsed]) -> SessionRecord:
    rows.sort(key=lambda row: row.turn)
    ends: dict[str, float] = {}
    turns: list[TurnRecord] = []
    first_s = rows[0].timestamp_s
    earliest_s = 0.0
    for row in rows:
        known_s = row.arrival_s
        if known_s is None and row.timestamp_s is not None:
            known_s = row.timestamp_s - (first_s or 0.0)
        previous_s = max((ends.get(wait, 0.0) for wait in row.wait_for), default=0.0)
        if not row.wait_for and turns:
            previous_s = max(ends.values())
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


def _turn(row: _Parsed, earliest_s: float, arrival_s: float) -> TurnRecord:
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
