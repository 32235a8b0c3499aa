"""Whose turn a relayed call is: session, agent and rank from what the harness sends anyway.

The first source that says something counts (`docs/protocol.md` lists them in this order). A call
that says nothing is a session of its own with this one turn, never part of a shared "default".
"""

import hashlib
import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson

from tao_coordinator.errors import MalformedRequest
from tao_coordinator.service.schemas import NAME_LENGTH_MAX, PRIORITY_MAX

Headers = Mapping[bytes, bytes]

SESSION_HEADERS: Final = (
    b"x-tao-session",
    b"x-claude-code-session-id",
    b"x-session-id",
    b"x-session-affinity",
    b"session-id",
    b"x-dynamo-session-id",
    b"x-opencode-session",
    b"x-litellm-session-id",
)
PARENT_HEADERS: Final = (
    b"x-tao-parent-session",
    b"x-parent-session-id",
    b"x-dynamo-parent-session-id",
)
ROOT_HEADER: Final = b"x-tao-root-session"
AGENT_HEADERS: Final = (b"x-tao-agent", b"x-claude-code-agent-id")
THREAD_HEADER: Final = b"thread-id"
"""Codex: threads of one session have prompts of their own, as agents have."""
PRIORITY_HEADER: Final = b"x-tao-priority"
TENANT_HEADER: Final = b"x-tao-tenant"
TIMEOUT_HEADERS: Final = (b"x-stainless-read-timeout", b"x-stainless-timeout")
"""The time-out of OpenAI's and Anthropic's clients, seconds."""

ROOTS_MAX: Final = 65_536
TIMEOUT_S_MAX: Final = 86_400.0

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_SECONDS = re.compile(rb"\d{1,6}(?:\.\d{1,9})?")
_INTEGER = re.compile(rb"-?\d{1,7}")


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls."""

    session_id: str
    root_session_id: str | None
    parent_session_id: str | None
    agent: str
    priority: int
    tenant: str
    timeout_s: float | None
    is_single: bool
    """Nothing told the session: this call is one of its own, over with its reply."""


class Identities:
    """Reads identities; remembers roots, since harnesses tell the parent only."""

    def __init__(self) -> None:
        self._roots: OrderedDict[str, str] = OrderedDict()

    def read(
        self, headers: Headers, document: Mapping[str, object], *, is_single: bool = False
    ) -> Identity:
        """Who sent this call.

        Args:
            headers: Of the request, names in lower case.
            document: Its body.
            is_single: Whatever the session, this call leaves nothing behind in it.

        Raises:
            MalformedRequest: A `x-tao-` header makes no sense.
        """
        told = _first(headers, SESSION_HEADERS) or _session_in(document)
        session_id = _as_id(told) if told else ""
        parent = _first(headers, PARENT_HEADERS)
        root = _first(headers, (ROOT_HEADER,))
        parent_id = _as_id(parent) if parent else None
        root_id = _as_id(root) if root else None
        if session_id and root_id is None and parent_id is not None and parent_id != session_id:
            root_id = self._roots.get(parent_id, parent_id)
        if root_id is not None and session_id:
            self._remember(session_id, root_id)
        is_single = is_single or not session_id
        if is_single:
            root_id = root_id or session_id or None
            session_id = f"relay-{uuid.uuid4().hex}"
        return Identity(
            session_id=session_id,
            root_session_id=root_id,
            parent_session_id=parent_id,
            agent=_agent(headers),
            priority=_priority(headers),
            tenant=_first(headers, (TENANT_HEADER,))[:NAME_LENGTH_MAX],
            timeout_s=_timeout_s(headers),
            is_single=is_single,
        )

    def _remember(self, session_id: str, root_id: str) -> None:
        self._roots[session_id] = root_id
        self._roots.move_to_end(session_id)
        if len(self._roots) > ROOTS_MAX:
            self._roots.popitem(last=False)


def _first(headers: Headers, names: tuple[bytes, ...]) -> str:
    for name in names:
        value = headers.get(name)
        if value:
            return value.decode("latin-1").strip()
    return ""


def _session_in(document: Mapping[str, object]) -> str:
    """A session in the body: Claude Code's, then Codex's, then OpenAI's cache key."""
    user_id = _mapping(document.get("metadata")).get("user_id")
    if isinstance(user_id, str) and user_id.startswith("{") and len(user_id) <= 4096:
        try:
            named: object = _mapping(orjson.loads(user_id)).get("session_id")
        except orjson.JSONDecodeError:
            named = None
        if isinstance(named, str) and named:
            return named
    named = _mapping(document.get("client_metadata")).get("session_id")
    if isinstance(named, str) and named:
        return named
    named = document.get("prompt_cache_key")
    return named if isinstance(named, str) else ""


def _agent(headers: Headers) -> str:
    agent = _first(headers, AGENT_HEADERS)
    if not agent:
        thread = _first(headers, (THREAD_HEADER,))
        agent = thread if thread != _first(headers, (b"session-id",)) else ""
    return agent[:NAME_LENGTH_MAX]


def _priority(headers: Headers) -> int:
    value = headers.get(PRIORITY_HEADER, b"").strip()
    if not value:
        return 0
    if not _INTEGER.fullmatch(value) or abs(int(value)) > PRIORITY_MAX:
        raise MalformedRequest(f"x-tao-priority must be an integer up to {PRIORITY_MAX}")
    return int(value)


def _timeout_s(headers: Headers) -> float | None:
    for name in TIMEOUT_HEADERS:
        value = headers.get(name, b"")
        if _SECONDS.fullmatch(value) and 0.0 < float(value) <= TIMEOUT_S_MAX:
            return float(value)
    return None


def _as_id(text: str) -> str:
    """An id of the protocol; one that harnesses spell otherwise stands under its digest."""
    if _ID.fullmatch(text):
        return text
    return f"sha-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
