"""What tool and session events change. They never grant and never take: they only inform.

Duplicates, late and lost records are normal: a second start of an open call is ignored, an end
without a start is history, a start without an end expires (`core.expiry`) or is dropped by the next
heartbeat that does not list it.
"""

from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from tao_coordinator.core.model import SessionKey, ToolCall
from tao_coordinator.core.state import State

OPEN_TOOLS_MAX = 256
"""Open calls remembered per session id; a harness that leaks starts must not eat the memory."""
_PROGRESS_MIN = 0.01
"""Below this share done, progress says nothing about the remaining time."""


def session_started(state: State, event: SessionStarted, now_s: float) -> None:
    """Make the session known and take over its priority."""
    session = state.session(
        SessionKey(event.session_id, event.agent, event.model),
        now_s,
        root_id=event.root_session_id,
        parent_id=event.parent_session_id,
        priority=event.priority,
    )
    session.priority = event.priority


def tool_started(state: State, event: ToolStarted, now_s: float) -> None:
    """Open a tool call; a repeated start of an open call changes nothing."""
    _touch(state, event.session_id, now_s)
    activity = state.activity(event.session_id)
    if event.call_id in activity.open_tools or len(activity.open_tools) >= OPEN_TOOLS_MAX:
        return
    limit_s = state.parameters.tool_s_max
    if event.timeout_s is not None:
        limit_s = min(limit_s, event.timeout_s)
    activity.open_tools[event.call_id] = ToolCall(
        call_id=event.call_id,
        name=event.name,
        key=event.key or event.name,
        started_s=now_s,
        expires_s=now_s + limit_s,
        expected_end_s=None if event.remaining_s is None else now_s + event.remaining_s,
        background=event.background,
    )
    if not event.background:
        activity.last_tool_key = event.key or event.name
        activity.return_s = None
        activity.waiting_for = ""
    state.totals.tool_starts += 1


def tool_progressed(state: State, event: ToolProgressed, now_s: float) -> None:
    """Turn a share done or a remaining time into an expected end."""
    _touch(state, event.session_id, now_s)
    call = state.activity(event.session_id).open_tools.get(event.call_id)
    if call is None:
        return
    if event.remaining_s is not None:
        call.expected_end_s = now_s + event.remaining_s
    elif event.ratio is not None and event.ratio >= _PROGRESS_MIN:
        elapsed_s = now_s - call.started_s
        call.expected_end_s = call.started_s + elapsed_s / min(1.0, event.ratio)


def tool_ended(state: State, event: ToolEnded, now_s: float) -> None:
    """Close a tool call."""
    _touch(state, event.session_id, now_s)
    call = state.activity(event.session_id).open_tools.pop(event.call_id, None)
    if call is not None:
        state.totals.tool_ends += 1


def heartbeat(state: State, event: SessionHeartbeat, now_s: float) -> None:
    """Close every call that the agent does not list: its end was lost."""
    _touch(state, event.session_id, now_s)
    open_tools = state.activity(event.session_id).open_tools
    for call_id in set(open_tools) - set(event.open_call_ids):
        del open_tools[call_id]
        state.totals.tools_expired += 1


def session_waiting(state: State, event: SessionWaiting, now_s: float) -> None:
    """The session waits for a person or a schedule: its own distribution of idle times."""
    _touch(state, event.session_id, now_s)
    activity = state.activity(event.session_id)
    activity.waiting_for = event.reason or "wait"
    activity.last_tool_key = f"wait:{activity.waiting_for}"
    if event.expected_duration_s is not None:
        activity.return_s = now_s + event.expected_duration_s


def session_deadline(state: State, event: SessionDeadlineSet, now_s: float) -> None:
    """The session says when it wants its backend again."""
    _touch(state, event.session_id, now_s)
    state.activity(event.session_id).return_s = now_s + event.remaining_s


def known_idle_s(state: State, session_id: str, now_s: float) -> float | None:
    """Remaining idle time that the session itself announced; `None`: it did not.

    The session returns when its *last* blocking call ends, so one call without a known end makes
    the whole unknown, unless the session gave a deadline of its own.
    """
    activity = state.activities.get(session_id)
    if activity is None:
        return None
    if activity.return_s is not None:
        return max(0.0, activity.return_s - now_s)
    blocking = [call for call in activity.open_tools.values() if not call.background]
    if not blocking:
        return None
    latest_s = now_s
    for call in blocking:
        if call.expected_end_s is None:
            return None
        latest_s = max(latest_s, min(call.expected_end_s, call.expires_s))
    return latest_s - now_s


def latest_end_s(state: State, session_id: str, now_s: float) -> float | None:
    """Seconds until the harness will have killed every blocking call; `None`: none open."""
    calls = state.blocking_tools(session_id)
    return max(call.expires_s for call in calls) - now_s if calls else None


def _touch(state: State, session_id: str, now_s: float) -> None:
    for session in state.of_id(session_id):
        session.last_activity_s = now_s
    if session_id not in state.keys_by_id:
        # A tool before the first turn: the session exists from now on, and is forgotten when idle.
        state.session(SessionKey(session_id, "", ""), now_s)
