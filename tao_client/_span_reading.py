"""What a span says of a tool call, in the words of each framework. No state, no OpenTelemetry.

The names are those of the GenAI conventions, of OpenInference, Traceloop, Google ADK and the Vercel
AI SDK. Arguments and results are never read, but for the head of a shell tool's command line.
"""

import json
from collections.abc import Mapping
from typing import cast

from tao_client import semconv
from tao_client._commands import SHELL_NAMES

Attributes = Mapping[str, object]

_SPAN_NAMES = frozenset({"ai.toolCall", "claude_code.tool", "running tool"})
_NAME_PREFIX = "execute_tool "
_KINDS = (("openinference.span.kind", "TOOL"), ("traceloop.span.kind", "tool"))
_TOOL_NAME_KEYS = (semconv.TOOL_NAME, "tool.name", "traceloop.entity.name", "ai.toolCall.name")
_CALL_ID_KEYS = (semconv.TOOL_CALL_ID, "ai.toolCall.id", "tool_call.id")
_CONVERSATION_KEYS = (
    semconv.CONVERSATION_ID,
    "session.id",
    "conversation.id",
    "gcp.vertex.agent.session_id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.sessionId",
)
_ARGUMENTS_KEY = "gen_ai.tool.call.arguments"
LONGEST_ARGUMENTS = 65_536
LONGEST_NAME = 128


def is_tool_span(span_name: str, attributes: Attributes) -> bool:
    """Whether a span is known, by now, to be a call of a tool."""
    operation = attributes.get(semconv.OPERATION_NAME)
    if operation is not None:
        return operation == semconv.EXECUTE_TOOL
    return (
        span_name.startswith(_NAME_PREFIX)
        or span_name in _SPAN_NAMES
        or any(attributes.get(key) == value for key, value in _KINDS)
    )


def is_still_open(attributes: Attributes) -> bool:
    """Whether attributes that come after the start could still make it a tool's span."""
    return semconv.OPERATION_NAME not in attributes and not any(
        key in attributes for key, _ in _KINDS
    )


def tool_name_of(span_name: str, attributes: Attributes) -> str:
    """Name of the tool."""
    found = _first_text(attributes, _TOOL_NAME_KEYS)
    return (found or span_name.removeprefix(_NAME_PREFIX) or "tool")[:LONGEST_NAME]


def call_id_of(attributes: Attributes) -> str | None:
    """The model's own id of the call."""
    return _first_text(attributes, _CALL_ID_KEYS)


def conversation_id_of(attributes: Attributes) -> str | None:
    """The session, as the framework calls it."""
    return _first_text(attributes, _CONVERSATION_KEYS)


def timeout_of(attributes: Attributes) -> float | None:
    """Hard limit of the call in seconds, where somebody has set ours."""
    value = attributes.get(semconv.TOOL_TIMEOUT)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def command_of(tool_name: str, attributes: Attributes) -> str | None:
    """A shell tool's command line, if the framework records arguments; only its head is used."""
    arguments = attributes.get(_ARGUMENTS_KEY) if tool_name in SHELL_NAMES else None
    if not isinstance(arguments, str) or len(arguments) > LONGEST_ARGUMENTS:
        return None
    try:
        document: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    fields = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    command = fields.get("command")
    return command if isinstance(command, str) else None


def error_type_of(
    attributes: Attributes, is_error: bool, exception_types: tuple[str, ...]
) -> str | None:
    """How a call failed, from its span's status and recorded exceptions; None: it did not."""
    given = attributes.get(semconv.ERROR_TYPE)
    if not given and not is_error:
        return None
    name = str(given or (exception_types[-1] if exception_types else "_OTHER"))
    name = name.rsplit(".", 1)[-1]
    return {"TimeoutError": "timeout", "CancelledError": "cancelled"}.get(name, name)


def _first_text(attributes: Attributes, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value:
            return value
    return None
