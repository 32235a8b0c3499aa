import pytest

from tao_client import _span_reading as reading


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("anything", {"gen_ai.operation.name": "execute_tool"}),
        ("execute_tool search", {}),
        ("search", {"openinference.span.kind": "TOOL"}),
        ("search.tool", {"traceloop.span.kind": "tool"}),
        ("ai.toolCall", {}),
        ("claude_code.tool", {}),
        ("running tool", {}),
    ],
)
def test_tool_spans_of_each_framework_are_known(name: str, attributes: dict[str, object]) -> None:
    assert reading.is_tool_span(name, attributes)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("chat m", {"gen_ai.operation.name": "chat"}),
        ("execute_tool search", {"gen_ai.operation.name": "chat"}),
        ("GET /tools", {}),
        ("search", {"openinference.span.kind": "CHAIN"}),
        ("execute_toolbox", {}),
    ],
)
def test_other_spans_are_no_tools(name: str, attributes: dict[str, object]) -> None:
    assert not reading.is_tool_span(name, attributes)


def test_only_spans_that_say_nothing_yet_are_worth_a_second_look() -> None:
    assert reading.is_still_open({"http.route": "/"})
    assert not reading.is_still_open({"gen_ai.operation.name": "chat"})
    assert not reading.is_still_open({"openinference.span.kind": "CHAIN"})


def test_name_and_ids_are_found_under_each_frameworks_keys() -> None:
    assert reading.tool_name_of("x", {"gen_ai.tool.name": "a", "tool.name": "b"}) == "a"
    assert reading.tool_name_of("x", {"tool.name": "b"}) == "b"
    assert reading.tool_name_of("execute_tool search", {}) == "search"
    assert reading.tool_name_of("execute_tool ", {}) == "tool"
    assert len(reading.tool_name_of("y" * 1000, {})) == reading.LONGEST_NAME
    assert reading.call_id_of({"ai.toolCall.id": "c1"}) == "c1"
    assert reading.call_id_of({"gen_ai.tool.call.id": 7}) is None
    both = {"session.id": "web", "gen_ai.conversation.id": "conversation"}
    assert reading.conversation_id_of(both) == "conversation"
    assert reading.conversation_id_of({"gcp.vertex.agent.session_id": "adk"}) == "adk"
    assert reading.conversation_id_of({"langsmith.trace.session_id": "a project"}) is None


@pytest.mark.parametrize(("value", "expected"), [(30, 30.0), (1.5, 1.5), (True, None), ("9", None)])
def test_time_limit_is_a_number(value: object, expected: float | None) -> None:
    assert reading.timeout_of({"tao.tool.timeout": value}) == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("bash", '{"command": "pytest -q"}', "pytest -q"),
        ("search", '{"command": "pytest -q"}', None),
        ("bash", '{"command": ["pytest"]}', None),
        ("bash", '["pytest"]', None),
        ("bash", "pytest", None),
        ("bash", '{"command": "' + "x" * reading.LONGEST_ARGUMENTS + '"}', None),
        ("bash", None, None),
    ],
)
def test_command_line_is_read_of_shell_tools_only(
    tool: str, arguments: object, expected: str | None
) -> None:
    assert reading.command_of(tool, {"gen_ai.tool.call.arguments": arguments}) == expected


@pytest.mark.parametrize(
    ("attributes", "is_error", "exceptions", "expected"),
    [
        ({}, False, (), None),
        ({}, False, ("builtins.ValueError",), None),
        ({}, True, (), "_OTHER"),
        ({}, True, ("KeyError", "json.decoder.JSONDecodeError"), "JSONDecodeError"),
        ({}, True, ("TimeoutError",), "timeout"),
        ({"error.type": "asyncio.exceptions.CancelledError"}, True, (), "cancelled"),
        ({"error.type": "tool_error"}, False, (), "tool_error"),
    ],
)
def test_failure_is_named(
    attributes: dict[str, object],
    is_error: bool,
    exceptions: tuple[str, ...],
    expected: str | None,
) -> None:
    assert reading.error_type_of(attributes, is_error, exceptions) == expected
