"""Claude Code's hooks and log records as events."""

import pytest

from tao_coordinator.adapters.events import claude_code
from tao_coordinator.adapters.events.attributes import Attributes
from tao_coordinator.adapters.events.claude_code import events_from_hook
from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionEnded,
    SessionEvent,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnObserved,
)
from tao_coordinator.errors import MalformedRequest

WANTED = SessionDeadlineSet(session_id="s", remaining_s=0.0)


def hook(name: str, **fields: object) -> tuple[SessionEvent, ...]:
    common = {"session_id": "s", "transcript_path": "/x", "cwd": "/x", "permission_mode": "default"}
    return events_from_hook({**common, "hook_event_name": name, **fields})


@pytest.mark.parametrize(
    ("tool_name", "tool_input", "key", "timeout_s"),
    [
        ("Bash", {"command": "cd /repo && python -m pytest -q secret.py"}, "python -m pytest", 120),
        ("Bash", {"command": "sleep 5", "timeout": 7_000}, "sleep", 7),
        ("Bash", {"command": 5, "timeout": "soon"}, "", 120),
        ("Read", {"file_path": "/etc/passwd"}, "", None),
        ("mcp__db__query", None, "", None),
    ],
)
def test_pre_tool_use_is_a_start(
    tool_name: str, tool_input: object, key: str, timeout_s: float | None
) -> None:
    (event,) = hook(
        "PreToolUse", tool_name=tool_name, tool_input=tool_input, tool_use_id="t", agent_id="a1"
    )
    assert event == ToolStarted(
        session_id="s", call_id="t", name=tool_name, key=key, agent="a1", timeout_s=timeout_s
    )


def test_post_tool_use_is_an_end() -> None:
    (event,) = hook(
        "PostToolUse",
        tool_name="Bash",
        tool_use_id="t",
        tool_input={"command": "git status"},
        tool_response={"stdout": "x" * 1000, "interrupted": False},
        duration_ms=1500,
    )
    assert event == ToolEnded(
        session_id="s", call_id="t", name="Bash", key="git status", duration_s=1.5
    )


@pytest.mark.parametrize(
    ("fields", "error_type"),
    [
        ({"error": "Exit code 143\nCommand timed out after 1s"}, "timeout"),
        ({"error": "Exit code 1"}, "tool_error"),
        ({"error": "Exit code 1", "is_interrupt": True}, "cancelled"),
        ({}, "tool_error"),
    ],
)
def test_failure_is_an_end_too(fields: dict[str, object], error_type: str) -> None:
    (event,) = hook("PostToolUseFailure", tool_name="Bash", tool_use_id="t", **fields)
    assert event == ToolEnded(session_id="s", call_id="t", name="Bash", error_type=error_type)


@pytest.mark.parametrize(
    ("tool_input", "tool_response", "timeout_s"),
    [
        ({"command": "make", "run_in_background": True}, {"backgroundTaskId": "b7"}, 600),
        ({"command": "make", "timeout": 9_000}, {"backgroundTaskId": "b7"}, 9),
        ({"command": "make"}, {"taskId": "b7", "timeoutMs": 5_000, "persistent": False}, 5),
        ({"command": "make"}, {"taskId": "b7", "timeoutMs": 5_000, "persistent": True}, None),
    ],
)
def test_background_job_opens_as_its_call_returns(
    tool_input: object, tool_response: object, timeout_s: float | None
) -> None:
    ended, job = hook(
        "PostToolUse",
        tool_name="Bash",
        tool_use_id="t",
        tool_input=tool_input,
        tool_response=tool_response,
    )
    assert isinstance(ended, ToolEnded)
    assert job == ToolStarted(
        session_id="s", call_id="b7", name="Bash", key="make", timeout_s=timeout_s, background=True
    )


@pytest.mark.parametrize(
    ("notification", "event"),
    [
        (
            "<task-id>b7</task-id><status>completed</status>",
            ToolEnded(session_id="s", call_id="b7"),
        ),
        (
            "<task-id>b7</task-id><status>failed</status>",
            ToolEnded(session_id="s", call_id="b7", error_type="tool_error"),
        ),
        (
            "<task-id>b7</task-id><event>line</event>",
            ToolProgressed(session_id="s", call_id="b7"),
        ),
    ],
)
def test_task_notification_tells_of_the_job_and_wakes_the_session(
    notification: str, event: SessionEvent
) -> None:
    prompt = f"<task-notification>\n{notification}\n</task-notification>"
    assert hook("UserPromptSubmit", prompt=prompt) == (event, WANTED)


@pytest.mark.parametrize(
    "prompt", ["fix it", "", None, "<task-notification>", "<task-id>b</task-id>"]
)
def test_prompt_wakes_the_session(prompt: object) -> None:
    assert hook("UserPromptSubmit", prompt=prompt) == (WANTED,)


def test_stop_waits_for_the_user() -> None:
    assert hook("Stop") == (SessionWaiting(session_id="s", reason="user_input"),)
    assert hook("Stop", background_tasks=[]) == (
        SessionHeartbeat(session_id="s", open_call_ids=()),
        SessionWaiting(session_id="s", reason="user_input"),
    )


def test_stop_with_jobs_comes_back_by_itself() -> None:
    tasks = [{"id": "b7", "type": "shell", "command": "make"}, {"id": 5}, 7, {}]
    assert hook("Stop", background_tasks=tasks) == (
        SessionHeartbeat(session_id="s", open_call_ids=("b7",)),
        SessionWaiting(session_id="s", reason="external"),
    )


def test_session_and_agents_begin_and_end() -> None:
    assert hook("SessionStart", source="startup") == (SessionStarted(session_id="s"),)
    assert hook("SessionEnd", reason="other") == (SessionEnded(session_id="s"),)
    assert hook("SubagentStop", agent_id="a1") == (SessionEnded(session_id="s", agent="a1"),)
    assert hook("SubagentStop") == ()


def test_permission_prompt_is_a_wait() -> None:
    waiting = SessionWaiting(session_id="s", reason="approval")
    assert hook("Notification", notification_type="permission_prompt") == (waiting,)
    assert hook("Notification", notification_type="idle_prompt") == ()


@pytest.mark.parametrize("name", ["PreCompact", "PostToolBatch", "HookOfNextYear", ""])
def test_other_hooks_say_nothing(name: str) -> None:
    assert hook(name, tool_use_id="t", tool_name="Bash") == ()


@pytest.mark.parametrize("name", ["PreToolUse", "PostToolUse", "PostToolUseFailure"])
@pytest.mark.parametrize("call_id", [None, "", 5, "x" * 257])
def test_tool_hook_without_call_says_nothing(name: str, call_id: object) -> None:
    assert hook(name, tool_use_id=call_id, tool_name="Bash") == ()


@pytest.mark.parametrize(
    "payload", [None, [], 5, {}, {"session_id": ""}, {"session_id": "a b"}, {"session_id": 5}]
)
def test_payload_without_session_is_refused(payload: object) -> None:
    with pytest.raises(MalformedRequest):
        events_from_hook(payload)


def test_payload_without_hook_name_says_nothing() -> None:
    assert events_from_hook({"session_id": "s", "hook_event_name": ["x"]}) == ()


# --- log records --------------------------------------------------------------------------------

RECORD: Attributes = {
    "session.id": "s",
    "gen_ai.conversation.id": "agent-of-s",
    "tool_use_id": "t",
    "tool_name": "Bash",
}


def read(name: str, attributes: Attributes, age_s: float = 0.0) -> SessionEvent | None:
    return claude_code.READERS[f"claude_code.{name}"](attributes, age_s)


def test_decision_is_a_start() -> None:
    accepted = {**RECORD, "decision": "accept"}
    assert read("tool_decision", accepted, age_s=5.0) == ToolStarted(
        session_id="s", call_id="t", name="Bash", timeout_s=595.0
    )
    assert read("tool_decision", {**accepted, "tool_name": "Read"}) == ToolStarted(
        session_id="s", call_id="t", name="Read"
    )


def test_refusal_is_no_start() -> None:
    assert read("tool_decision", {**RECORD, "decision": "reject"}) is None


@pytest.mark.parametrize("duration_ms", [250, "250", 250.0])
def test_result_is_an_end(duration_ms: str | float) -> None:
    attributes = {**RECORD, "success": "true", "duration_ms": duration_ms}
    assert read("tool_result", attributes) == ToolEnded(
        session_id="s", call_id="t", name="Bash", duration_s=0.25
    )


@pytest.mark.parametrize("success", [False, "false"])
@pytest.mark.parametrize("duration_ms", ["soon", "nan", -1, True, "9" * 40, 1e300])
def test_failed_result_with_a_broken_duration_is_still_an_end(
    success: bool | str, duration_ms: str | float
) -> None:
    attributes = {**RECORD, "success": success, "duration_ms": duration_ms}
    assert read("tool_result", attributes) == ToolEnded(
        session_id="s", call_id="t", name="Bash", error_type="tool_error"
    )


@pytest.mark.parametrize("name", ["tool_decision", "tool_result"])
@pytest.mark.parametrize("missing", ["session.id", "tool_use_id"])
def test_record_without_session_or_call_is_ignored(name: str, missing: str) -> None:
    assert read(name, {k: v for k, v in RECORD.items() if k != missing}) is None


def test_model_call_is_told_with_its_whole_prompt() -> None:
    attributes: Attributes = {
        "session.id": "s", "model": "sonnet", "input_tokens": "3", "cache_read_tokens": 100,
        "cache_creation_tokens": 20, "output_tokens": 7, "duration_ms": 1500, "ttft_ms": 200,
    }  # fmt: skip
    assert read("api_request", attributes) == TurnObserved(
        session_id="s", model="sonnet", input_tokens=123, cached_tokens=100, output_tokens=7,
        duration_s=1.5, ttft_s=0.2,
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"session.id": "no id!"},
        {"duration_ms": -1},
        {"input_tokens": True},
        {"input_tokens": "1e3"},
    ],
)
def test_model_call_that_makes_no_sense_is_ignored(change: Attributes) -> None:
    attributes: Attributes = {"session.id": "s", "input_tokens": 3, "duration_ms": 1500, **change}
    assert read("api_request", attributes) is None
