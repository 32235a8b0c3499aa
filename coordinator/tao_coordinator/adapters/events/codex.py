"""Codex CLI: its `codex.*` log records.

`tool_decision` is written when a call is approved, just before it runs, and `tool_result` when it
returns to the model: for a command that goes on in the background that is before its end. Results
carry arguments and output; neither is read.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tao_coordinator.adapters.events.attributes import (
    Attributes,
    milliseconds_in,
    session_id_in,
    text_in,
)
from tao_coordinator.adapters.events.tao_events import DURATION_S_MAX, NAME_LENGTH_MAX
from tao_coordinator.core.events import SessionEvent, SessionStarted, ToolEnded, ToolStarted

_REFUSALS: Final = frozenset({"denied", "abort", "timed_out"})


def _conversation_starts(attributes: Attributes, age_s: float) -> SessionEvent | None:
    session_id = session_id_in(attributes)
    if not session_id:
        return None
    return SessionStarted(
        session_id=session_id, model=text_in(attributes, ("model",), NAME_LENGTH_MAX)
    )


def _tool_decision(attributes: Attributes, age_s: float) -> SessionEvent | None:
    session_id, call_id, name = _call_of(attributes)
    if not (session_id and call_id and name) or attributes.get("decision") in _REFUSALS:
        return None
    # Commands have no hard limit: the model polls those that take long.
    return ToolStarted(session_id=session_id, call_id=call_id, name=name)


def _tool_result(attributes: Attributes, age_s: float) -> SessionEvent | None:
    session_id, call_id, name = _call_of(attributes)
    if not (session_id and call_id):
        return None
    failed = attributes.get("success") in (False, "false")
    return ToolEnded(
        session_id=session_id,
        call_id=call_id,
        name=name,
        duration_s=milliseconds_in(attributes, "duration_ms", DURATION_S_MAX),
        error_type="tool_error" if failed else None,
    )


READERS: Final[Mapping[str, Callable[[Attributes, float], SessionEvent | None]]] = {
    "codex.conversation_starts": _conversation_starts,
    "codex.tool_decision": _tool_decision,
    "codex.tool_result": _tool_result,
}
"""By event name."""


def _call_of(attributes: Attributes) -> tuple[str, str, str]:
    call_id = text_in(attributes, ("call_id",), NAME_LENGTH_MAX)
    name = text_in(attributes, ("tool_name",), NAME_LENGTH_MAX)
    return session_id_in(attributes), call_id, name
