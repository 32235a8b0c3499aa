"""Which spans are calls of tools, in the words of each framework, and what they say."""

import pytest

from tao_client import _span_reading, semconv
from tao_coordinator.adapters.events import attributes as names
from tao_coordinator.adapters.events import genai_spans
from tao_coordinator.adapters.events.attributes import Attributes
from tao_coordinator.adapters.events.spans import SpanRow
from tao_coordinator.core.events import ToolEnded

S = 1_000_000_000


def span(
    name: str = "execute_tool bash",
    attributes: Attributes | None = None,
    *,
    start_ns: int = S,
    end_ns: int = 3 * S,
    is_error: bool = False,
) -> SpanRow:
    return SpanRow(name, b"t" * 16, b"s" * 8, b"", start_ns, end_ns, is_error, attributes or {})


@pytest.mark.parametrize(
    ("name", "attributes", "is_tool"),
    [
        ("execute_tool bash", {}, True),
        ("call tool", {semconv.OPERATION_NAME: "execute_tool"}, True),
        ("running tool", {}, True),
        ("ai.toolCall", {}, True),
        ("claude_code.tool", {}, True),
        ("search", {"openinference.span.kind": "TOOL"}, True),
        ("search.tool", {"traceloop.span.kind": "tool"}, True),
        ("execute_tool bash", {semconv.OPERATION_NAME: "chat"}, False),
        ("chat gpt", {}, False),
        ("chain", {"openinference.span.kind": "CHAIN"}, False),
    ],
)
def test_tool_span_is_known_in_the_words_of_each_framework(
    name: str, attributes: Attributes, is_tool: bool
) -> None:
    assert genai_spans.is_tool_span(span(name, attributes)) == is_tool
    assert _span_reading.is_tool_span(name, attributes) == is_tool, "the SDK's rule is the same"


def test_names_are_the_sdks() -> None:
    assert genai_spans.SPAN_NAMES == _span_reading._SPAN_NAMES
    assert names.SPAN_TOOL_NAME_KEYS == _span_reading._TOOL_NAME_KEYS
    assert names.SPAN_CALL_ID_KEYS == _span_reading._CALL_ID_KEYS
    assert names.CONVERSATION_KEYS == _span_reading._CONVERSATION_KEYS


def test_end_says_what_the_span_says() -> None:
    attributes: Attributes = {
        semconv.TOOL_NAME: "bash",
        semconv.TOOL_CALL_ID: "c",
        semconv.TOOL_KEY: "make test",
        semconv.ERROR_TYPE: "timeout",
    }
    assert genai_spans.end_from(span("x", attributes), "s") == ToolEnded(
        session_id="s",
        call_id="c",
        name="bash",
        key="make test",
        duration_s=2.0,
        error_type="timeout",
    )


def test_span_without_attributes_still_has_a_name_and_an_id() -> None:
    assert genai_spans.end_from(span(is_error=True), "s") == ToolEnded(
        session_id="s",
        call_id="span-" + (b"s" * 8).hex(),
        name="bash",
        duration_s=2.0,
        error_type="_OTHER",
    )


@pytest.mark.parametrize(
    ("start_ns", "end_ns"), [(0, S), (2 * S, S), (S, 2**63), (-S, S)], ids=repr
)
def test_span_of_impossible_times_is_none(start_ns: int, end_ns: int) -> None:
    assert genai_spans.end_from(span(start_ns=start_ns, end_ns=end_ns), "s") is None


def test_conversation_of_a_claude_code_span_is_the_session_not_the_agent() -> None:
    both: Attributes = {semconv.CONVERSATION_ID: "agent", "session.id": "s"}
    assert genai_spans.conversation_of(span("claude_code.tool", both)) == "s"
    assert genai_spans.conversation_of(span("execute_tool x", both)) == "agent"
    alone: Attributes = {semconv.CONVERSATION_ID: "s"}
    assert genai_spans.conversation_of(span("claude_code.tool", alone)) == "s"
