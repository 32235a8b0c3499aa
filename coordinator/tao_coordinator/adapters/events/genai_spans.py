"""Spans of tool calls, by the names of the GenAI conventions and of those before them.

A span is sent when it has ended, so it gives an end and a duration, never a start. It may carry no
conversation: then the session is the one that another record or span of its trace has named, and
where there is none its duration is history all the same.
"""

from typing import Final

from tao_client import semconv
from tao_coordinator.adapters.events.attributes import (
    MCP_METHOD,
    SESSION_ID,
    SPAN_CALL_ID_KEYS,
    SPAN_KINDS,
    SPAN_TOOL_NAME_KEYS,
    session_id_in,
    text_in,
)
from tao_coordinator.adapters.events.spans import SpanRow
from tao_coordinator.adapters.events.tao_events import DURATION_S_MAX, NAME_LENGTH_MAX
from tao_coordinator.core.events import ToolEnded

SPAN_NAMES: Final = frozenset({"ai.toolCall", "claude_code.tool", "running tool"})
NAME_PREFIX: Final = "execute_tool "


def is_tool_span(row: SpanRow) -> bool:
    """Whether the span is a call of a tool."""
    operation = row.attributes.get(semconv.OPERATION_NAME)
    if operation is not None:
        return operation == semconv.EXECUTE_TOOL
    return (
        row.name.startswith(NAME_PREFIX)
        or row.name in SPAN_NAMES
        or any(row.attributes.get(key) == value for key, value in SPAN_KINDS)
    )


def is_inner_call(row: SpanRow) -> bool:
    """Whether this may be the MCP request below the span of a tool: the same call once more."""
    return MCP_METHOD in row.attributes


def conversation_of(row: SpanRow) -> str:
    """The session that the span names; empty: none."""
    if row.name.startswith("claude_code."):
        # Its sub-agents name themselves as the conversation.
        return session_id_in(row.attributes, (SESSION_ID,)) or session_id_in(row.attributes)
    return session_id_in(row.attributes)


def end_from(row: SpanRow, session_id: str) -> ToolEnded | None:
    """The end of a tool call; `None` for a span whose times make no sense."""
    duration_s = (row.end_unix_ns - row.start_unix_ns) / 1e9
    if row.start_unix_ns <= 0 or not 0.0 <= duration_s <= DURATION_S_MAX:
        return None
    attributes = row.attributes
    name = text_in(attributes, SPAN_TOOL_NAME_KEYS, NAME_LENGTH_MAX)
    error_type = text_in(attributes, (semconv.ERROR_TYPE,), NAME_LENGTH_MAX)
    return ToolEnded(
        session_id=session_id,
        # As the SDK names calls that have no id of their own.
        call_id=text_in(attributes, SPAN_CALL_ID_KEYS, NAME_LENGTH_MAX)
        or f"span-{row.span_id.hex()}",
        name=name or row.name.removeprefix(NAME_PREFIX)[:NAME_LENGTH_MAX] or "tool",
        key=text_in(attributes, (semconv.TOOL_KEY,), NAME_LENGTH_MAX),
        duration_s=duration_s,
        error_type=error_type or ("_OTHER" if row.is_error else None),
    )
