"""Which session a process was started by: told to child processes through their environment.

By the conventions of OpenTelemetry's environment carriers (`TRACEPARENT`, `BAGGAGE`), so that
frameworks which propagate baggage say the same, and OpenTelemetry itself is not needed for it.
"""

import os
import sys
from collections.abc import Mapping
from urllib.parse import quote, unquote_plus

from tao_client import _events, semconv

BAGGAGE_VARIABLE = "BAGGAGE"
TRACEPARENT_VARIABLE = "TRACEPARENT"
LONGEST_BAGGAGE = 8192
"""Characters of a whole baggage string, as W3C has it."""
MOST_MEMBERS = 180


def environment_for_child(session_id: str, root_id: str) -> dict[str, str]:
    """The variables that tell a child process of a session, and of the current span if any."""
    # Ours first: if the limit cuts something off, it is not this. No secrets belong here, for
    # instrumented clients send baggage along with every request.
    members = {
        semconv.CONVERSATION_ID: quote(session_id, safe=""),
        semconv.ROOT_SESSION_ID: quote(root_id, safe=""),
    }
    for key, value in _context_baggage().items():
        members.setdefault(quote(key, safe=""), quote(str(value), safe=""))
    for key, value in _read_members().items():
        members.setdefault(key, value)
    environment = {BAGGAGE_VARIABLE: _written(members)}
    traceparent = _events.current_traceparent()
    if traceparent is not None:
        environment[TRACEPARENT_VARIABLE] = traceparent
    return environment


def inherited_ancestry() -> tuple[str | None, str | None]:
    """Ids of the session that started this process, and of the outermost one; None if unknown."""
    if BAGGAGE_VARIABLE not in os.environ:
        return None, None
    members = _read_members()
    parent, root = (
        unquote_plus(members.get(key, "").partition(";")[0]).strip() or None
        for key in (semconv.CONVERSATION_ID, semconv.ROOT_SESSION_ID)
    )
    return parent, (root or parent) if parent else None


def conversation_in_baggage() -> str | None:
    """The conversation that the baggage of the current OpenTelemetry context names."""
    named = _context_baggage().get(semconv.CONVERSATION_ID)
    return named if isinstance(named, str) and named else None


def _read_members() -> dict[str, str]:
    """The baggage of this process's environment; values stay encoded, with their properties."""
    text = os.environ.get(BAGGAGE_VARIABLE, "")
    if len(text) > LONGEST_BAGGAGE:
        return {}
    pairs = (member.partition("=") for member in text.split(",") if "=" in member)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _context_baggage() -> Mapping[str, object]:
    # Not imported here: without an import elsewhere there is none.
    get_all = getattr(sys.modules.get("opentelemetry.baggage"), "get_all", None)
    return {} if get_all is None else get_all()


def _written(members: Mapping[str, str]) -> str:
    text = ""
    for count, (key, value) in enumerate(members.items()):
        longer = f"{text},{key}={value}" if text else f"{key}={value}"
        if count >= MOST_MEMBERS or len(longer) > LONGEST_BAGGAGE:
            break
        text = longer
    return text
