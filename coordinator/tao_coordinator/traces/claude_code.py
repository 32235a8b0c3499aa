"""Claude Code session transcripts (`~/.claude/projects`): JSON lines with ISO time stamps.

Only times, names, sizes and command heads are taken over; no prompt, argument or output leaves the
reader. A model call is one `message.id`: Claude Code writes one line per content block, and repeats
the usage. A tool call runs from its `tool_use` line to the line with its `tool_result`. The turn
before it counts as over at its last block.
"""

from dataclasses import dataclass, field
from typing import Final

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
)

NAME: Final = "claude-code"
_MS: Final = 1000.0


@dataclass(slots=True)
class _Message:
    """One model call, collected from its lines."""

    message_id: str
    asked_s: float
    """When what it answers was complete: the latest line of another role before it."""
    last_s: float
    by_person: bool
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""


@dataclass(slots=True)
class _OpenTool:
    tool: str
    key: str
    start_s: float
    timeout_s: float | None
    background: bool


@dataclass(slots=True)
class _Chain:
    """One prompt that grows: the main session, or one sub-agent."""

    session_id: str
    parent_id: str | None
    messages: list[_Message] = field(default_factory=list[_Message])
    open_tools: dict[str, _OpenTool] = field(default_factory=dict[str, _OpenTool])
    finished: list[ToolRecord] = field(default_factory=list[ToolRecord])
    last_input_s: float | None = None
    last_input_is_person: bool = True


def read(text: str, name: str) -> Trace:
    """Read one transcript; sub-agents (`isSidechain`) become sessions of their own.

    Args:
        text: JSON lines.
        name: of the file: the session's id where the lines do not say.

    Raises:
        MalformedTrace: not one model call.
    """
    skipped = SkippedRows()
    chains: dict[str, _Chain] = {}
    for where, line in fields.lines_of(text):
        try:
            row = fields.parse_row(line)
            if row.get("type") in ("assistant", "user"):
                _take(_chain_of(row, name, chains), row)
        except FieldError as error:
            skipped.add(where, str(error))
    sessions = [_session(chain) for chain in chains.values() if chain.messages]
    if not sessions:
        reason = skipped.to_value().first_reason()
        raise MalformedTrace(f"{name}: no model call of Claude Code{reason}")
    return Trace(format=NAME, sessions=tuple(sessions), skipped=skipped.to_value())


def _chain_of(row: Row, name: str, chains: dict[str, _Chain]) -> _Chain:
    session_id = fields.text(row, "sessionId", "") or name
    parent_id = None
    if fields.flag(row, "isSidechain"):
        parent_id = session_id
        session_id = f"{session_id}/{fields.text(row, 'agentId', 'sidechain')}"
    return chains.setdefault(session_id, _Chain(session_id, parent_id))


def _take(chain: _Chain, row: Row) -> None:
    time_s = fields.timestamp_s(row, "timestamp")
    if time_s is None:
        raise FieldError("timestamp is missing")
    message = fields.row(row, "message")
    if row.get("type") == "assistant":
        _take_reply(chain, message, time_s)
    else:
        _take_input(chain, message, time_s)


def _take_reply(chain: _Chain, message: Row, time_s: float) -> None:
    message_id = fields.text(message, "id")
    current = chain.messages[-1] if chain.messages else None
    if current is None or current.message_id != message_id:
        asked_s = time_s if chain.last_input_s is None else chain.last_input_s
        current = _Message(message_id, asked_s, time_s, chain.last_input_is_person)
        chain.messages.append(current)
    current.last_s = max(current.last_s, time_s)
    current.model = fields.text(message, "model", "") or current.model
    usage = fields.row(message, "usage")
    parts = [
        fields.tokens(usage, part)
        for part in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    if any(part is not None for part in parts):
        current.input_tokens = sum(part or 0 for part in parts)
        current.cached_tokens = parts[-1]
    current.output_tokens = fields.tokens(usage, "output_tokens") or current.output_tokens
    for item in _blocks(message):
        if item.get("type") == "tool_use":
            arguments = fields.row(item, "input")
            command = arguments.get("command")
            chain.open_tools[fields.text(item, "id")] = _OpenTool(
                tool=fields.text(item, "name"),
                key=command_head(command) if isinstance(command, str) else "",
                start_s=time_s,
                timeout_s=fields.seconds(arguments, "timeout", per_second=_MS),
                background=fields.flag(arguments, "run_in_background"),
            )


def _take_input(chain: _Chain, message: Row, time_s: float) -> None:
    results = [item for item in _blocks(message) if item.get("type") == "tool_result"]
    for item in results:
        call_id = fields.text(item, "tool_use_id")
        started = chain.open_tools.pop(call_id, None)
        if started is None:
            continue
        chain.finished.append(
            ToolRecord(
                call_id=call_id,
                tool=started.tool,
                key=started.key,
                start_s=started.start_s,
                duration_s=max(0.0, time_s - started.start_s),
                timeout_s=started.timeout_s,
                background=started.background,
                is_error=fields.flag(item, "is_error"),
            )
        )
    chain.last_input_s = time_s
    chain.last_input_is_person = not results


def _blocks(message: Row) -> list[Row]:
    content = message.get("content")
    if isinstance(content, str) or content is None:
        return []
    return [
        fields.as_row(item, "content block")
        for item in fields.items(message, "content")
        if not isinstance(item, str)
    ]


def _session(chain: _Chain) -> SessionRecord:
    zero_s = min(chain.messages[0].asked_s, chain.messages[0].last_s)
    tools = sorted(chain.finished, key=lambda tool: tool.start_s)
    turns: list[TurnRecord] = []
    taken = 0
    over_s = zero_s
    for message in sorted(chain.messages, key=lambda found: found.asked_s):
        own: list[ToolRecord] = []
        while taken < len(tools) and tools[taken].end_s <= message.asked_s + 1e-6:
            own.append(tools[taken])
            taken += 1
        busy_s = max((tool.end_s for tool in own), default=over_s)
        turns.append(
            TurnRecord(
                request_id=message.message_id,
                arrival_s=max(0.0, message.asked_s - zero_s),
                duration_s=max(0.0, message.last_s - message.asked_s),
                input_tokens=message.input_tokens,
                cached_tokens=message.cached_tokens,
                output_tokens=message.output_tokens,
                tools=tuple(_moved(tool, zero_s) for tool in own),
                gap_s=max(0.0, message.asked_s - busy_s),
                gap_is_person=message.by_person and bool(turns),
            )
        )
        over_s = message.last_s
    return SessionRecord(
        session_id=chain.session_id,
        turns=tuple(turns),
        arrival_s=zero_s,
        parent_session_id=chain.parent_id,
        harness=NAME,
        model=chain.messages[-1].model,
        # The transcript's output count is that of the first streamed block.
        output_tokens_are_reliable=False,
    )


def _moved(tool: ToolRecord, zero_s: float) -> ToolRecord:
    return ToolRecord(
        call_id=tool.call_id,
        tool=tool.tool,
        key=tool.key,
        start_s=max(0.0, tool.start_s - zero_s),
        duration_s=tool.duration_s,
        timeout_s=tool.timeout_s,
        background=tool.background,
        is_error=tool.is_error,
    )
