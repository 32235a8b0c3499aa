"""Rows of an `agent-trace`, not yet put together: model calls, loose tool calls, ends."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tao_coordinator.traces import fields
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import MalformedTrace, SkippedRows, ToolRecord

VERSION: Final = 1
VERSION_FIELD: Final = "agent_trace"
"""On the first line of a journal: the version of the format."""
LINE_CHARS_MAX: Final = 4 << 20
"""Longer lines are no rows."""
_MS: Final = 1000.0
_NO_ID: Final = "(no text)"
_NO_REPLY: Final = ("error", "cancelled")


class Key(NamedTuple):
    """What has one growing prompt."""

    session_id: str
    agent: str
    model: str


@dataclass(slots=True)
class CallRow:
    """One model call, its release time not yet resolved."""

    request_id: str
    key: Key
    turn: int | None
    arrival_s: float | None
    timestamp_s: float | None
    wait_for: tuple[str, ...]
    delay_s: float
    tool_wait_s: float
    hold_s: float | None
    """Set by a journal, whose calls have wall times and whose gaps are what lies between them."""
    duration_s: float | None
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    tools: tuple[ToolRecord, ...]
    block_size: int | None
    block_runs: tuple[tuple[int, int], ...]
    gap_is_person: bool
    meta: Row
    parent_session_id: str | None

    @property
    def release_is_told(self) -> bool:
        """Whether it says itself when it was asked for; else `wait_for` does."""
        return self.arrival_s is not None or self.timestamp_s is not None


@dataclass(frozen=True, slots=True)
class LeftOutRow:
    """A row that cannot be used, or tells of no reply; others may wait for it all the same."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ToolRow:
    """Tool calls told apart from the model call that consumed their results; Unix times."""

    session_id: str
    agent: str
    tools: tuple[ToolRecord, ...]


@dataclass(frozen=True, slots=True)
class EndRow:
    """A session was over; what its id does later is another session."""

    session_id: str
    agent: str
    """Empty: all agents."""
    ended_s: float


def rows_of(
    text: str, name: str, skipped: SkippedRows
) -> Iterator[tuple[str, CallRow | LeftOutRow | ToolRow | EndRow]]:
    """Every row that can be used or named, with its place, for messages.

    Args:
        text: JSON lines.
        name: of the file, for messages.
        skipped: is told what is wrong with the others.

    Raises:
        MalformedTrace: the text says that it is of another version.
    """
    for where, line in fields.lines_of(text):
        row = fields.EMPTY
        try:
            if len(line) > LINE_CHARS_MAX:
                raise FieldError(f"longer than {LINE_CHARS_MAX >> 20} Mi characters")
            row = fields.parse_row(line)
            if VERSION_FIELD in row:
                _check_version(row, name)
                continue
            yield where, _parse(row)
        except FieldError as error:
            skipped.add(where, str(error))
            request_id = row.get("request_id")
            if isinstance(request_id, str):
                yield where, LeftOutRow(request_id)


def is_journal(text: str) -> bool:
    """Whether a coordinator wrote it: several such texts may tell of the same session."""
    return text[:64].lstrip().startswith(f'{{"{VERSION_FIELD}":')


def _check_version(row: Row, name: str) -> None:
    version = row[VERSION_FIELD]
    if version != VERSION:
        raise MalformedTrace(
            f"{name}: version {str(version)[:20]} of the format; this tao reads version {VERSION}"
        )


def _parse(row: Row) -> CallRow | LeftOutRow | ToolRow | EndRow:
    """A row as what it is."""
    if row.get("request_id") is not None:
        if row.get("outcome") in _NO_REPLY and not row.get("output_length"):
            return LeftOutRow(fields.text(row, "request_id"))
        return _call(row)
    session_id, agent = fields.text(row, "session_id"), fields.text(row, "agent", "")
    ended_s = fields.instant_s(row, "ended_at_unix_ms", per_second=_MS)
    if ended_s is not None:
        return EndRow(session_id, agent, ended_s)
    if row.get("tool_events") is None:
        raise FieldError("neither request_id nor tool_events")
    return ToolRow(session_id, agent, _tools(row))


def _call(row: Row) -> CallRow:
    turn = fields.number(row, "turn")
    gap_s = fields.seconds(row, "gap_before_ms", per_second=_MS)
    hold_s = fields.seconds(row, "hold_ms", per_second=_MS)
    key = Key(fields.text(row, "session_id"), "", "")
    if hold_s is not None:
        key = Key(key.session_id, fields.text(row, "agent", ""), fields.text(row, "model", ""))
    input_tokens, block_size = fields.tokens(row, "input_length"), fields.tokens(row, "block_size")
    return CallRow(
        request_id=fields.text(row, "request_id"),
        key=key,
        turn=None if turn is None else int(turn),
        arrival_s=fields.seconds(row, "arrival_ms", per_second=_MS),
        timestamp_s=fields.instant_s(row, "timestamp", per_second=_MS),
        wait_for=tuple(
            wait if isinstance(wait, str) else _NO_ID for wait in fields.items(row, "wait_for")
        ),
        delay_s=(fields.seconds(row, "delay", per_second=_MS) or 0.0) + (gap_s or 0.0),
        tool_wait_s=fields.seconds(row, "tool_wait_ms", per_second=_MS) or 0.0,
        hold_s=hold_s,
        duration_s=fields.seconds(row, "llm_ms", per_second=_MS),
        input_tokens=input_tokens,
        cached_tokens=fields.tokens(row, "cached_length"),
        output_tokens=fields.tokens(row, "output_length"),
        tools=_tools(row),
        block_size=block_size,
        block_runs=_blocks(row, input_tokens, block_size),
        gap_is_person=row.get("gap_kind") in ("user", "person"),
        meta=fields.row(row, "meta"),
        parent_session_id=fields.text(row, "parent_session_id", "") or None,
    )


def _blocks(
    row: Row, input_tokens: int | None, block_size: int | None
) -> tuple[tuple[int, int], ...]:
    """Blocks of the prompt; the last one may be left out where the prompt does not fill it.

    Engines cache whole blocks only, so recorded prompts often tell of no other.
    """
    runs = fields.block_runs(row)
    if runs and input_tokens is not None and block_size:
        told, whole = sum(count for _, count in runs), input_tokens // block_size
        if not whole <= told <= -(-input_tokens // block_size):
            raise FieldError(
                f"{told} blocks of {block_size} tokens do not fit input_length {input_tokens}"
            )
    return runs


def _tools(row: Row) -> tuple[ToolRecord, ...]:
    events = fields.items(row, "tool_events")
    return tuple(_tool(fields.as_row(event, "tool event")) for event in events)


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
