"""Codex's log records as events."""

import pytest

from tao_coordinator.adapters.events import codex
from tao_coordinator.adapters.events.attributes import Attributes
from tao_coordinator.core.events import SessionEvent, SessionStarted, ToolEnded, ToolStarted

RECORD: Attributes = {"conversation.id": "s", "call_id": "c", "tool_name": "exec_command"}


def read(name: str, attributes: Attributes) -> SessionEvent | None:
    return codex.READERS[f"codex.{name}"](attributes, 0.0)


def test_conversation_starts() -> None:
    started = SessionStarted(session_id="s", model="gpt-5")
    assert read("conversation_starts", {**RECORD, "model": "gpt-5"}) == started
    assert read("conversation_starts", {}) is None


def test_decision_is_a_start() -> None:
    started = ToolStarted(session_id="s", call_id="c", name="exec_command")
    assert read("tool_decision", {**RECORD, "decision": "approved_for_session"}) == started


@pytest.mark.parametrize("decision", ["denied", "abort", "timed_out"])
def test_refusal_is_no_start(decision: str) -> None:
    assert read("tool_decision", {**RECORD, "decision": decision}) is None


@pytest.mark.parametrize(
    ("success", "error_type"), [("true", None), (True, None), ("false", "tool_error")]
)
def test_result_is_an_end(success: bool | str, error_type: str | None) -> None:
    assert read("tool_result", {**RECORD, "success": success, "duration_ms": "1200"}) == ToolEnded(
        session_id="s", call_id="c", name="exec_command", duration_s=1.2, error_type=error_type
    )


@pytest.mark.parametrize("name", ["tool_decision", "tool_result"])
@pytest.mark.parametrize("missing", ["conversation.id", "call_id"])
def test_record_without_session_or_call_is_ignored(name: str, missing: str) -> None:
    assert read(name, {k: v for k, v in RECORD.items() if k != missing}) is None
