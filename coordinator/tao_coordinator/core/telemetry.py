"""What tool and session events change. They never grant and never take: they only inform.

Duplicates, late and lost records are normal: a second start of an open call is ignored, an end
without a start is history, a start without an end expires (`core.expiry`) or is dropped by the next
heartbeat that does not list it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnObserved,
)
from tao_coordinator.core.model import SessionKey, ToolCall
from tao_coordinator.core.state import State

OPEN_TOOLS_MAX = 256
"""Open calls remembered per session id; a harness that leaks starts must not eat the memory."""


def session_started(state: State, event: SessionStarted, now_s: float) -> None:
    """Make the session known and take over its priority.

    Its first turn may have come first and made it known under its model, which the SDK's event
    does not say.
    """
    found = [
        session
        for session in state.of_id(event.session_id)
        if not event.model and event.agent in ("", session.key.agent)
    ]
    found = found or [state.session(SessionKey(event.session_id, event.agent, event.model), now_s)]
    for session in found:
        session.root_id = event.root_session_id or session.root_id
        session.parent_id = event.parent_session_id or session.parent_id
        session.priority = event.priority
        session.last_activity_s = now_s


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
        started_s=now_s,
        expires_s=now_s + limit_s,
        background=event.background,
    )
    if not event.background:
        activity.waiting_for = ""
    state.totals.tool_starts += 1


def alive(state: State, event: ToolProgressed | SessionDeadlineSet, now_s: float) -> None:
    """A record that only the predictor understands still shows that the session lives."""
    _touch(state, event.session_id, now_s)


def tool_ended(state: State, event: ToolEnded, now_s: float) -> None:
    """Close a tool call."""
    _touch(state, event.session_id, now_s, creates=False)
    activity = state.activities.get(event.session_id)
    call = None if activity is None else activity.open_tools.pop(event.call_id, None)
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


def overheard(state: State, event: TurnObserved, now_s: float) -> None:
    """A call that is over, told by its harness, moves nothing: its lease did, if it had one."""


def _touch(state: State, session_id: str, now_s: float, *, creates: bool = True) -> None:
    for session in state.of_id(session_id):
        session.last_activity_s = now_s
    if session_id not in state.keys_by_id and creates:
        # A tool before the first turn: the session exists from now on, and is forgotten when idle.
        state.session(SessionKey(session_id, "", ""), now_s)


HANDLERS: Final[Mapping[type, Callable[[State, Any, float], None]]] = {
    SessionStarted: session_started,
    SessionWaiting: session_waiting,
    SessionDeadlineSet: alive,
    SessionHeartbeat: heartbeat,
    ToolStarted: tool_started,
    ToolProgressed: alive,
    ToolEnded: tool_ended,
    TurnObserved: overheard,
}
"""What each of these events does."""
