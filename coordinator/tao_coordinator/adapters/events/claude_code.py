"""Claude Code as its users run it: its http hooks, and its `claude_code.*` log records.

The hooks come first: they arrive before the tool runs and know its time-out. The log records need
no hook, but come in batches; both may be on at once, since a call has one id in both.

Facts, tried on 2.1.332: `PostToolUseFailure` takes the place of `PostToolUse` after a non-zero
exit; a background job returns at once with a task id and reports by a `<task-notification>` prompt;
sub-agents share the session id and differ by `agent_id`. Payloads change between releases, so every
field but the session id is optional. Of a command line only its head is kept, of everything else
that a tool takes or gives nothing.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, cast

from tao_coordinator.adapters.events.attributes import (
    SESSION_ID,
    USAGE_KEYS,
    Attributes,
    is_session_id,
    milliseconds_in,
    session_id_in,
    text_in,
    tokens_in,
)
from tao_coordinator.adapters.events.tao_events import DURATION_S_MAX, NAME_LENGTH_MAX
from tao_coordinator.core.command_head import command_head
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

BASH_S: Final = 120.0
"""Time-out of a shell command when the model names none."""
BASH_S_MAX: Final = 600.0
"""The longest that it may name, for a command in the foreground."""
BACKGROUND_S: Final = 600.0
"""Time-out of a background job when the model names none."""

_SHELL_TOOLS: Final = frozenset({"Bash", "PowerShell"})
_TASKS_MAX = 256
_NOTIFICATION = "<task-notification>"
_NOTIFICATION_LENGTH_MAX = 65_536
_TASK_ID = re.compile(r"<task-id>([^<]{1,256})</task-id>")
_STATUS = re.compile(r"<status>(\w{1,32})</status>")

Payload = Mapping[str, object]


# --- log records --------------------------------------------------------------------------------


def _tool_decision(attributes: Attributes, age_s: float) -> SessionEvent | None:
    """The permission was given: the tool runs next."""
    session_id, call_id, name = _call_of(attributes)
    if not (session_id and call_id and name) or attributes.get("decision") == "reject":
        return None
    return ToolStarted(
        session_id=session_id,
        call_id=call_id,
        name=name,
        # The time-out itself is not told here.
        timeout_s=max(0.0, BASH_S_MAX - age_s) if name in _SHELL_TOOLS else None,
    )


def _tool_result(attributes: Attributes, age_s: float) -> SessionEvent | None:
    session_id, call_id, name = _call_of(attributes)
    if not (session_id and call_id):
        return None
    failed = attributes.get("success") in (False, "false")
    error_type = text_in(attributes, ("error_type",), NAME_LENGTH_MAX) or "tool_error"
    return ToolEnded(
        session_id=session_id,
        call_id=call_id,
        name=name,
        duration_s=milliseconds_in(attributes, "duration_ms", DURATION_S_MAX),
        error_type=error_type if failed else None,
    )


def _api_request(attributes: Attributes, age_s: float) -> SessionEvent | None:
    """A model call is over. What was cached is not in its `input_tokens`."""
    session_id = session_id_in(attributes, (SESSION_ID,))
    duration_s = milliseconds_in(attributes, "duration_ms", DURATION_S_MAX)
    new, cached, created, output = (tokens_in(attributes, key) for key in USAGE_KEYS)
    if not session_id or duration_s is None or new is None:
        return None
    return TurnObserved(
        session_id=session_id,
        model=text_in(attributes, ("model",), NAME_LENGTH_MAX),
        input_tokens=new + (cached or 0) + (created or 0),
        cached_tokens=cached,
        output_tokens=output,
        duration_s=duration_s,
        ttft_s=milliseconds_in(attributes, "ttft_ms", DURATION_S_MAX),
    )


READERS: Final[Mapping[str, Callable[[Attributes, float], SessionEvent | None]]] = {
    "claude_code.api_request": _api_request,
    "claude_code.tool_decision": _tool_decision,
    "claude_code.tool_result": _tool_result,
}
"""By event name. The attributes' age is taken off what counts from the record's timestamp."""


def _call_of(attributes: Attributes) -> tuple[str, str, str]:
    # A sub-agent's records carry its own id as conversation, and the session here.
    session_id = session_id_in(attributes, (SESSION_ID,))
    call_id = text_in(attributes, ("tool_use_id",), NAME_LENGTH_MAX)
    return session_id, call_id, text_in(attributes, ("tool_name",), NAME_LENGTH_MAX)


# --- hooks --------------------------------------------------------------------------------------


def events_from_hook(payload: object) -> tuple[SessionEvent, ...]:
    """Translate the body of one hook.

    Args:
        payload: The decoded JSON.

    Returns:
        What it says, in order; nothing for hooks that say nothing about tools or waiting.

    Raises:
        MalformedRequest: No object, or one without a usable session id.
    """
    if not isinstance(payload, dict):
        raise MalformedRequest("a hook's body must be a JSON object")
    fields = cast("Payload", payload)
    session_id = fields.get("session_id")
    if not isinstance(session_id, str) or not is_session_id(session_id):
        raise MalformedRequest("session_id must be 1-128 characters of [A-Za-z0-9._:-]")
    name = fields.get("hook_event_name")
    reader = _HOOKS.get(name) if isinstance(name, str) else None
    return () if reader is None else reader(session_id, fields)


def _session_start(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    return (SessionStarted(session_id=session_id),)


def _session_end(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    return (SessionEnded(session_id=session_id),)


def _subagent_stop(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    agent = _text(fields, "agent_id")
    return (SessionEnded(session_id=session_id, agent=agent),) if agent else ()


def _pre_tool_use(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    call_id, name = _text(fields, "tool_use_id"), _text(fields, "tool_name")
    if not (call_id and name):
        return ()
    given = _object(fields, "tool_input")
    timeout_s = _seconds(given, "timeout")
    if timeout_s is None and name in _SHELL_TOOLS:
        timeout_s = BASH_S
    started = ToolStarted(
        session_id=session_id,
        call_id=call_id,
        name=name,
        key=_key(name, given),
        agent=_text(fields, "agent_id"),
        timeout_s=timeout_s,
    )
    return (started,)


def _post_tool_use(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    ended = _end(session_id, fields, None)
    answer = _object(fields, "tool_response")
    task_id = _text(answer, "backgroundTaskId") or _text(answer, "taskId")
    if not task_id:
        return ended
    given = _object(fields, "tool_input")
    timeout_s = _seconds(answer, "timeoutMs") or _seconds(given, "timeout") or BACKGROUND_S
    name = _text(fields, "tool_name")
    job = ToolStarted(
        session_id=session_id,
        call_id=task_id,
        name=name or "background",
        key=_key(name, given),
        agent=_text(fields, "agent_id"),
        timeout_s=None if answer.get("persistent") is True else timeout_s,
        background=True,
    )
    return (*ended, job)


def _post_tool_use_failure(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    error = fields.get("error")
    if fields.get("is_interrupt") is True:
        error_type = "cancelled"
    elif isinstance(error, str) and "timed out" in error[:1000]:
        error_type = "timeout"
    else:
        error_type = "tool_error"
    return _end(session_id, fields, error_type)


def _end(session_id: str, fields: Payload, error_type: str | None) -> tuple[SessionEvent, ...]:
    call_id, name = _text(fields, "tool_use_id"), _text(fields, "tool_name")
    if not call_id:
        return ()
    ended = ToolEnded(
        session_id=session_id,
        call_id=call_id,
        name=name,
        key=_key(name, _object(fields, "tool_input")),
        duration_s=_seconds(fields, "duration_ms"),
        error_type=error_type,
    )
    return (ended,)


def _user_prompt(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    """A person wrote, or a background job did: either way a model call follows at once."""
    wanted = SessionDeadlineSet(session_id=session_id, remaining_s=0.0)
    prompt = fields.get("prompt")
    if not isinstance(prompt, str) or not prompt.startswith(_NOTIFICATION):
        return (wanted,)
    notification = prompt[:_NOTIFICATION_LENGTH_MAX]
    task = _TASK_ID.search(notification)
    if task is None:
        return (wanted,)
    status = _STATUS.search(notification)
    if status is None:
        return (ToolProgressed(session_id=session_id, call_id=task[1]), wanted)
    error_type = None if status[1] == "completed" else "tool_error"
    return (ToolEnded(session_id=session_id, call_id=task[1], error_type=error_type), wanted)


def _stop(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    """The agent has answered. What still runs in the background is told, and repairs lost ends."""
    tasks = fields.get("background_tasks")
    if not isinstance(tasks, list):
        return (SessionWaiting(session_id=session_id, reason="user_input"),)
    listed = cast("list[object]", tasks)[:_TASKS_MAX]
    ids = tuple(task_id for task in listed if (task_id := _text(_as_object(task), "id")))
    reason = "external" if ids else "user_input"
    return (
        SessionHeartbeat(session_id=session_id, open_call_ids=ids),
        SessionWaiting(session_id=session_id, reason=reason),
    )


def _notification(session_id: str, fields: Payload) -> tuple[SessionEvent, ...]:
    if fields.get("notification_type") != "permission_prompt":
        return ()
    return (SessionWaiting(session_id=session_id, reason="approval"),)


_HOOKS: Final[Mapping[str, Callable[[str, Payload], tuple[SessionEvent, ...]]]] = {
    "SessionStart": _session_start,
    "SessionEnd": _session_end,
    "SubagentStop": _subagent_stop,
    "PreToolUse": _pre_tool_use,
    "PostToolUse": _post_tool_use,
    "PostToolUseFailure": _post_tool_use_failure,
    "UserPromptSubmit": _user_prompt,
    "Stop": _stop,
    "Notification": _notification,
}


def _text(fields: Payload, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) and len(value) <= NAME_LENGTH_MAX else ""


def _object(fields: Payload, key: str) -> Payload:
    return _as_object(fields.get(key))


def _as_object(value: object) -> Payload:
    return cast("Payload", value) if isinstance(value, dict) else {}


def _seconds(fields: Payload, key: str) -> float | None:
    """A duration in seconds from a number of milliseconds; `None`: no sane one."""
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    seconds = value / 1e3
    return seconds if math.isfinite(seconds) and 0.0 <= seconds <= DURATION_S_MAX else None


def _key(tool_name: str, given: Payload) -> str:
    command = given.get("command") if tool_name in _SHELL_TOOLS else None
    return command_head(command) if isinstance(command, str) else ""
