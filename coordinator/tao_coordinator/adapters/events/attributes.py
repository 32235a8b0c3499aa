"""Attribute values of records and spans, and the names that any reader here looks at.

Only the names below are ever taken out of a body: a record's cost does not depend on what else its
emitter attached, and arguments, outputs and prompts are not even copied.
"""

import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, cast

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tao_client import semconv


class Unreadable(Enum):
    """The value of an attribute whose type this receiver does not take."""

    VALUE = "unreadable"


AttributeValue = str | bool | int | float | tuple[str, ...] | Unreadable
Attributes = Mapping[str, AttributeValue]

EVENT_NAME: Final = "event.name"
"""Where emitters older than the `event_name` field put the name."""
SESSION_ID: Final = "session.id"
MCP_METHOD: Final = "mcp.method.name"
SPAN_KINDS: Final = (("openinference.span.kind", "TOOL"), ("traceloop.span.kind", "tool"))
CONVERSATION_KEYS: Final = (
    semconv.CONVERSATION_ID,
    SESSION_ID,
    "conversation.id",
    "gcp.vertex.agent.session_id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.sessionId",
)
"""Where emitters put the session, best first."""
SPAN_TOOL_NAME_KEYS: Final = (
    semconv.TOOL_NAME,
    "tool.name",
    "traceloop.entity.name",
    "ai.toolCall.name",
)
SPAN_CALL_ID_KEYS: Final = (semconv.TOOL_CALL_ID, "ai.toolCall.id", "tool_call.id")

USAGE_KEYS: Final = (
    "input_tokens",
    "cache_read_tokens",
    "cache_creation_tokens",
    "output_tokens",
)
"""Of Claude Code's model calls."""

KNOWN_ATTRIBUTES: Final = frozenset(
    {
        EVENT_NAME,
        MCP_METHOD,
        *CONVERSATION_KEYS,
        *SPAN_TOOL_NAME_KEYS,
        *SPAN_CALL_ID_KEYS,
        *(key for key, _ in SPAN_KINDS),
        semconv.OPERATION_NAME,
        semconv.AGENT_NAME,
        semconv.REQUEST_MODEL,
        semconv.ERROR_TYPE,
        semconv.RECORD_UID,
        semconv.ROOT_SESSION_ID,
        semconv.PARENT_SESSION_ID,
        semconv.SESSION_PRIORITY,
        semconv.WAIT_REASON,
        semconv.WAIT_EXPECTED,
        semconv.DEADLINE_REMAINING,
        semconv.TOOL_KEY,
        semconv.TOOL_TIMEOUT,
        semconv.TOOL_BACKGROUND,
        semconv.TOOL_PROGRESS_RATIO,
        semconv.TOOL_REMAINING,
        semconv.TOOL_DURATION,
        semconv.OPEN_CALL_IDS,
        # Claude Code and Codex.
        "tool_name",
        "tool_use_id",
        "call_id",
        "decision",
        "success",
        "duration_ms",
        "error_type",
        "model",
        *USAGE_KEYS,
        "ttft_ms",
    }
)

_SESSION_ID_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def is_session_id(value: object) -> bool:
    """Whether the lease API would take this as a session id."""
    return isinstance(value, str) and _SESSION_ID_PATTERN.fullmatch(value) is not None


def session_id_in(attributes: Attributes, keys: Iterable[str] = CONVERSATION_KEYS) -> str:
    """The first usable session id under `keys`; empty: none."""
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and _SESSION_ID_PATTERN.fullmatch(value):
            return value
    return ""


def text_in(attributes: Attributes, keys: Iterable[str], longest: int) -> str:
    """The first non-empty string of at most `longest` characters under `keys`; empty: none."""
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and 0 < len(value) <= longest:
            return value
    return ""


def tokens_in(attributes: Attributes, key: str) -> int | None:
    """A token count, number or text; `None`: no sane one."""
    value = attributes.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 9:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= semconv.TOKENS_MAX else None


def milliseconds_in(attributes: Attributes, key: str, longest_s: float) -> float | None:
    """A duration in seconds from one in milliseconds, number or text; `None`: no sane one."""
    value = attributes.get(key)
    if isinstance(value, str) and len(value) <= 32:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    seconds = float(value) / 1e3
    return seconds if math.isfinite(seconds) and 0.0 <= seconds <= longest_s else None


# --- protobuf -----------------------------------------------------------------------------------


def from_protobuf(pairs: Iterable[KeyValue]) -> dict[str, AttributeValue]:
    """The known attributes among `pairs`."""
    attributes: dict[str, AttributeValue] = {}
    for pair in pairs:
        key = pair.key
        if key in KNOWN_ATTRIBUTES:
            value = pair.value
            # Strings are most of them; asking for the kind first would cost as much again.
            attributes[key] = value.string_value or _protobuf_value(value)
    return attributes


def _protobuf_value(value: AnyValue) -> AttributeValue:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return ""
    if kind == "double_value":
        return value.double_value
    if kind == "int_value":
        return value.int_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "array_value":
        items = value.array_value.values
        if all(item.WhichOneof("value") == "string_value" for item in items):
            return tuple(item.string_value for item in items)
    return Unreadable.VALUE


# --- JSON ---------------------------------------------------------------------------------------


def from_json(pairs: object) -> dict[str, AttributeValue]:
    """The known attributes of a JSON array of key-value objects; anything else in it is skipped."""
    attributes: dict[str, AttributeValue] = {}
    if not isinstance(pairs, list):
        return attributes
    for pair in cast("list[object]", pairs):
        if not isinstance(pair, dict):
            continue
        fields = cast("dict[str, object]", pair)
        key = fields.get("key")
        if isinstance(key, str) and key in KNOWN_ATTRIBUTES:
            value = fields.get("value")
            attributes[key] = (
                _json_value(cast("dict[str, object]", value))
                if isinstance(value, dict)
                else Unreadable.VALUE
            )
    return attributes


def json_integer(value: object) -> int | None:
    """A 64-bit integer; JSON emitters write it as a string or as a number."""
    if isinstance(value, str) and value.isascii() and value.lstrip("-").isdigit():
        # 20 characters hold every 64-bit number; int() of a longer one is quadratic.
        return int(value) if len(value) <= 20 and value.count("-") <= 1 else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def _json_value(value: Mapping[str, object]) -> AttributeValue:
    for kind, content in value.items():
        if kind == "stringValue" and isinstance(content, str):
            return content
        if kind == "boolValue" and isinstance(content, bool):
            return content
        if kind == "intValue":
            number = json_integer(content)
            return Unreadable.VALUE if number is None else number
        if kind == "doubleValue":
            return _json_double(content)
        if kind == "arrayValue":
            return _json_strings(content)
    return Unreadable.VALUE


def _json_strings(array: object) -> AttributeValue:
    items = cast("dict[str, object]", array).get("values", []) if isinstance(array, dict) else None
    if not isinstance(items, list):
        return Unreadable.VALUE
    strings: list[str] = []
    for item in cast("list[object]", items):
        text = (
            cast("dict[str, object]", item).get("stringValue") if isinstance(item, dict) else None
        )
        if not isinstance(text, str):
            return Unreadable.VALUE
        strings.append(text)
    return tuple(strings)


def _json_double(value: object) -> AttributeValue:
    """A double; protobuf's JSON writes the special values as strings."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(cast("str", value))
    return Unreadable.VALUE
