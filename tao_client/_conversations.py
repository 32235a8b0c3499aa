"""Sessions that somebody else opened and named: in OpenTelemetry's baggage, or on spans.

A framework that puts `gen_ai.conversation.id` into the baggage (Pydantic AI does) thereby says to
which session the model calls and tool calls inside belong, where no `tao.session` is open. The
coordinator is not told when such a session ends, since nobody here knows.
"""

import threading
from collections import OrderedDict

from tao_client import _ancestry, _connection
from tao_client._session import Session, current_session

SESSION_LIMIT = 1024
"""What is learned of a prompt is kept for as many; the least recently used is forgotten."""

_sessions: "OrderedDict[str, Session]" = OrderedDict()
# Re-entrant, because a destructor may end a span on the thread that is inside.
_lock = threading.RLock()


def current_conversation() -> Session | None:
    """The open `tao.session`, else the conversation that the baggage names; None without either."""
    session = current_session()
    if session is not None:
        return session
    conversation_id = _ancestry.conversation_in_baggage()
    return None if conversation_id is None else named_conversation(conversation_id)


def named_conversation(conversation_id: str) -> Session:
    """The session of that name: the same object for the same name."""
    with _lock:
        session = _sessions.pop(conversation_id, None) or Session(conversation_id)
        _sessions[conversation_id] = session
        if len(_sessions) > SESSION_LIMIT:
            _sessions.popitem(last=False)
    return session


def forget_conversations() -> None:
    """Know none any more, as at the start of the process."""
    with _lock:
        _sessions.clear()


def _forget_parent_process() -> None:
    global _lock
    _lock = threading.RLock()
    forget_conversations()


_connection.after_fork(_forget_parent_process)
