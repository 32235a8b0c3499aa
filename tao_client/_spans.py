"""Standard GenAI spans of sessions and tool calls, for the tracing backend of the agent itself.

Off unless `connect(spans=True)` asks for them. They are made on the global tracer provider, which
is the agent's own and never set here: `invoke_agent {agent}` around a session,
`execute_tool {tool}` around a tool call. Where a framework has its own span around the same thing,
none is made. No prompt, argument, output or error message is on them.
"""

import contextlib
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from tao_client import _connection, _span_reading, semconv
from tao_client._events import AttributeValue
from tao_client._version import __version__

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span

logger = logging.getLogger("tao_client")


class OwnSpan:
    """One span of ours, from its start on."""

    def __init__(self, span: "Span") -> None:
        self._span = span
        self._token: Token[Context] | None = None

    def attach(self) -> None:
        """Make it the current span, until it ends."""
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span))

    def end(self, error_type: str | None) -> None:
        """End it, with this error or well. Never raises."""
        try:
            self._end(error_type)
        except Exception:
            # A boundary: the span processors are the agent's, and may fail; its work must go on.
            logger.debug("a span did not end well", exc_info=True)

    def _end(self, error_type: str | None) -> None:
        from opentelemetry.context import _RUNTIME_CONTEXT  # `context.detach` logs what is normal
        from opentelemetry.trace import StatusCode

        if self._token is not None:
            # A generator may be closed in another context than it was started in.
            with contextlib.suppress(ValueError):
                _RUNTIME_CONTEXT.detach(self._token)
        if error_type is not None:
            self._span.set_attribute(semconv.ERROR_TYPE, error_type)
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def open_session_span(session_id: str, agent: str) -> OwnSpan | None:
    """A span around a session; None if spans are off, or the current one is that already."""
    if not _is_on():
        return None
    _, attributes = _current_span()
    if attributes.get(semconv.OPERATION_NAME) == semconv.INVOKE_AGENT and (
        not agent or attributes.get(semconv.AGENT_NAME) == agent
    ):
        return None
    own = {
        semconv.OPERATION_NAME: semconv.INVOKE_AGENT,
        semconv.AGENT_NAME: agent,
        semconv.CONVERSATION_ID: session_id,
    }
    return _open(f"{semconv.INVOKE_AGENT} {agent}".rstrip(), own)


def open_tool_span(session_id: str, tool_name: str, call_id: str) -> OwnSpan | None:
    """A span around a tool call; None if spans are off, or the current one is that already."""
    if not _is_on():
        return None
    name, attributes = _current_span()
    if (
        _span_reading.is_tool_span(name, attributes)
        and _span_reading.tool_name_of(name, attributes) == tool_name
    ):
        return None
    own = {
        semconv.OPERATION_NAME: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: tool_name,
        semconv.TOOL_CALL_ID: call_id,
        semconv.TOOL_TYPE: "function",
        semconv.CONVERSATION_ID: session_id,
    }
    return _open(f"{semconv.EXECUTE_TOOL} {tool_name}", own)


def _is_on() -> bool:
    connection = _connection.active()
    return connection is not None and connection.config.spans


def _open(name: str, attributes: Mapping[str, AttributeValue]) -> OwnSpan | None:
    try:
        from opentelemetry import trace

        tracer = trace.get_tracer(semconv.SCOPE_NAME, __version__)
        given = {key: value for key, value in attributes.items() if value != ""}
        return OwnSpan(tracer.start_span(name, attributes=given))
    except Exception:
        # A boundary: as above.
        logger.debug("a span was not made", exc_info=True)
        return None


def _current_span() -> tuple[str, _span_reading.Attributes]:
    get_span = getattr(sys.modules.get("opentelemetry.trace"), "get_current_span", None)
    span: object = None if get_span is None else get_span()
    name = getattr(span, "name", "")
    attributes = cast("_span_reading.Attributes | None", getattr(span, "attributes", None))
    return str(name), attributes or {}
