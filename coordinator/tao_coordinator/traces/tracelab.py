"""TraceLab round traces (github.com/uw-syfi/TraceLab): JSON lines, one model call each.

A row has what Claude Code or Codex logged of one call: token counts, `timing_events` with ISO
times, and `tools`, those that its own reply asked for. What counts of a tool is the agent's wait,
from `emitted_at` to `result_at` (`tool_wall_latency_ms`), approval included, not what the tool says
of itself. Released traces hold no arguments, and their sub-agents are sessions like any other;
traces of one's own have both: command heads are taken over, and whose sub-agent a session is.
"""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from tao_coordinator.core.command_head import command_head
from tao_coordinator.traces import fields
from tao_coordinator.traces.fields import FieldError, Row
from tao_coordinator.traces.records import (
    MalformedTrace,
    SessionRecord,
    SkippedRows,
    ToolRecord,
    Trace,
    TurnRecord,
    told_apart,
)

NAME: Final = "tracelab"
EVENTS_FIELD: Final = "timing_events"
_MS: Final = 1000.0
_CLOCK_STEP_S: Final = 0.001
_INPUTS: Final = ("user_message", "tool_result")
_OUTPUTS: Final = ("reasoning", "text", "tool_call")
_SUB_AGENTS: Final = "/subagents/"
_HARNESSES: Final = {"claude": "claude-code", "codex": "codex"}


class _Key(NamedTuple):
    """What one session has to itself: ids alone come again in other projects and files."""

    session_id: str
    project: str
    session_file: str


@dataclass(frozen=True, slots=True)
class _Span:
    """When a call was asked for and over; Unix times."""

    asked_s: float
    over_s: float
    is_timed: bool
    """False: nothing says when it was asked for, only when its first output was there."""
    by_person: bool


@dataclass(frozen=True, slots=True)
class _Round:
    """One row."""

    where: str
    """For messages."""
    request_id: str
    span: _Span
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    tools: tuple[ToolRecord, ...]
    """Asked for by its reply; Unix times."""


@dataclass(slots=True)
class _Chain:
    """One session, or one sub-agent."""

    session_id: str
    harness: str
    model: str = ""
    rounds: list[_Round] = field(default_factory=list[_Round])

    def leave_strays_out(self, skipped: SkippedRows) -> None:
        """Only rows of one age are of one session: the middle one says of which."""
        middle_s = sorted(found.span.asked_s for found in self.rounds)[len(self.rounds) // 2]
        kept: list[_Round] = []
        for found in self.rounds:
            off_s = abs(found.span.asked_s - middle_s)
            if off_s <= fields.DURATION_S_MAX / 2:
                kept.append(found)
            else:
                why = f"{EVENTS_FIELD} lie {off_s:.0f} s from most of the session"
                skipped.add(found.where, why)
        self.rounds = kept


def read(text: str, name: str) -> Trace:
    """Read all sessions; sub-agents that can be told are sessions with a parent.

    Args:
        text: JSON lines.
        name: of the file, for messages.

    Raises:
        MalformedTrace: not one usable row.
    """
    skipped = SkippedRows()
    chains: dict[_Key, _Chain] = {}
    seen: set[tuple[_Key, str]] = set()
    for where, line in fields.lines_of(text):
        try:
            row = fields.parse_row(line)
            round_id = _round_id(row)
            found = _round(row, round_id, where, skipped)
            key = _Key(
                fields.text(row, "session_id"),
                fields.text(row, "project", ""),
                fields.text(row, "session_file", ""),
            )
            if (key, round_id) in seen:
                raise FieldError(f"round {found.request_id[:80]!r} was there before")
            model, provider = fields.text(row, "model", ""), fields.text(row, "provider", "")
            fresh = _Chain(key.session_id, _HARNESSES.get(provider, provider))
            chain = chains.get(key, fresh)
        except FieldError as error:
            skipped.add(where, str(error))
            continue
        seen.add((key, round_id))
        chain.model = model or chain.model
        chain.rounds.append(found)
        chains[key] = chain
    if not chains:
        raise MalformedTrace(f"{name}: no usable TraceLab row{skipped.to_value().first_reason()}")
    for chain in chains.values():
        chain.leave_strays_out(skipped)
    sessions = told_apart([_session(chain) for chain in chains.values()])
    return Trace(format=NAME, sessions=sessions, skipped=skipped.to_value())


def _round_id(row: Row) -> str:
    """A text, or a number as one."""
    value = row.get("round_id")
    return str(value) if type(value) is int else fields.text(row, "round_id")


def _round(row: Row, round_id: str, where: str, skipped: SkippedRows) -> _Round:
    cached_tokens = fields.tokens(row, "prefix_tokens")
    fresh_tokens = fields.tokens(row, "newly_append_tokens")
    input_tokens = fields.tokens(row, "input_tokens_total")
    if input_tokens is None and cached_tokens is not None and fresh_tokens is not None:
        input_tokens = cached_tokens + fresh_tokens
    if input_tokens is not None and (cached_tokens or 0) > input_tokens:
        raise FieldError("prefix_tokens is more than input_tokens_total")
    request_id = f"{fields.text(row, 'session_id')}:{round_id}"
    output_tokens = fields.tokens(row, "output_tokens")
    span = _span(row)
    tools: list[ToolRecord] = []
    for number, item in enumerate(fields.items(row, "tools")):
        try:
            tool = _tool(fields.as_row(item, "tool call"))
        except FieldError as error:
            skipped.add(f"{where} tool call {number}", str(error))
            continue
        if tool is not None:
            tools.append(tool)
    return _Round(where, request_id, span, input_tokens, cached_tokens, output_tokens, tuple(tools))


def _span(row: Row) -> _Span:
    """From the last input before the first output to the last output."""
    inputs: list[tuple[float, bool]] = []
    outputs: list[float] = []
    reports: list[float] = []
    for item in fields.items(row, EVENTS_FIELD):
        event = fields.as_row(item, "timing event")
        time_s = fields.timestamp_s(event, "timestamp")
        kind = fields.text(event, "event_type", "")
        if time_s is None:
            continue
        if kind in _INPUTS:
            inputs.append((time_s, kind == "user_message"))
        else:
            (outputs if kind in _OUTPUTS else reports).append(time_s)
    if not (inputs or outputs or reports):
        raise FieldError(f"{EVENTS_FIELD} has no time")
    ends = outputs or reports or [max(inputs)[0]]
    first_s, over_s = min(ends), max(ends)
    before = [(time_s, by_person) for time_s, by_person in inputs if time_s <= first_s]
    # A prompt and a result of the same instant: the result was what was waited for.
    asked_s = max((time_s for time_s, _ in before), default=first_s)
    if over_s - asked_s > fields.DURATION_S_MAX:
        raise FieldError(f"{EVENTS_FIELD} lie {over_s - asked_s:.0f} s apart")
    if not before:
        return _Span(first_s, over_s, is_timed=False, by_person=False)
    by_person = all(is_person for time_s, is_person in before if time_s == asked_s)
    return _Span(asked_s, over_s, is_timed=bool(outputs or reports), by_person=by_person)


def _tool(item: Row) -> ToolRecord | None:
    """A call; `None`: its result never came."""
    start_s = fields.timestamp_s(item, "emitted_at")
    result_s = fields.timestamp_s(item, "result_at")
    duration_s = fields.seconds(item, "tool_wall_latency_ms", per_second=_MS)
    if duration_s is None and result_s is None:
        return None
    if start_s is None:
        raise FieldError("emitted_at is missing")
    if duration_s is None:
        duration_s = (result_s or 0.0) - start_s
    if not 0.0 <= duration_s <= fields.DURATION_S_MAX:
        raise FieldError(f"result_at lies {duration_s:g} s after emitted_at")
    arguments = _arguments(item)
    command = arguments.get("command", arguments.get("cmd"))
    return ToolRecord(
        call_id=fields.text(item, "tool_call_id", ""),
        tool=fields.text(item, "tool_name"),
        key=command_head(command) if isinstance(command, str) else "",
        start_s=start_s,
        duration_s=duration_s,
        timeout_s=fields.seconds(arguments, "timeout", per_second=_MS),
        background=fields.flag(arguments, "run_in_background"),
        is_error=fields.flag(item, "is_error"),
    )


def _arguments(item: Row) -> Row:
    """Arguments of a call: an object of Claude Code, JSON in a string of Codex."""
    value = item.get("input")
    if not isinstance(value, str):
        return fields.row(item, "input")
    try:
        return fields.parse_row(value)
    except FieldError:  # Codex has tools that take plain text.
        return fields.EMPTY


def _session(chain: _Chain) -> SessionRecord:
    rounds = sorted(chain.rounds, key=lambda found: found.span.asked_s)
    zero_s = rounds[0].span.asked_s
    before = _tools_by_turn(rounds)
    turns: list[TurnRecord] = []
    over_s = zero_s
    for found, tools in zip(rounds, before, strict=True):
        span = found.span
        busy_s = max([over_s, *(tool.end_s for tool in tools if not tool.background)])
        turns.append(
            TurnRecord(
                request_id=found.request_id,
                arrival_s=span.asked_s - zero_s,
                duration_s=span.over_s - span.asked_s if span.is_timed else None,
                input_tokens=found.input_tokens,
                cached_tokens=found.cached_tokens,
                output_tokens=found.output_tokens,
                tools=tuple(
                    replace(tool, start_s=max(0.0, tool.start_s - zero_s)) for tool in tools
                ),
                gap_s=max(0.0, span.asked_s - busy_s),
                gap_is_person=span.by_person and bool(turns),
            )
        )
        over_s = max(over_s, span.over_s)
    parent_id, middle, _ = chain.session_id.partition(_SUB_AGENTS)
    return SessionRecord(
        session_id=chain.session_id,
        turns=tuple(turns),
        parent_session_id=parent_id or None if middle else None,
        arrival_s=zero_s,
        harness=chain.harness,
        model=chain.model,
        source=NAME,
    )


def _tools_by_turn(rounds: list[_Round]) -> list[list[ToolRecord]]:
    """Calls by the turn that follows their start; those after the last one are left out.

    A call whose result came after that turn was asked for did not hold it: it is in the background.
    """
    asked_s = [found.span.asked_s for found in rounds]
    tools: list[list[ToolRecord]] = [[] for _ in rounds]
    for number, found in enumerate(rounds):
        for tool in found.tools:
            turn = max(number + 1, bisect_left(asked_s, tool.start_s))
            if turn == len(rounds):
                continue
            is_late = tool.end_s > asked_s[turn] + _CLOCK_STEP_S
            tools[turn].append(replace(tool, background=True) if is_late else tool)
    for calls in tools:
        calls.sort(key=lambda tool: tool.start_s)
    return tools
