"""What a policy remembers of sessions: one note each, gone when the session is gone.

A policy never writes to the state, so its pause flags and homes live here. A note belongs to the
session *object*: a new session under an old key starts without one.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from tao_coordinator.core.model import Session, SessionKey
from tao_coordinator.core.state import State

NoteT = TypeVar("NoteT")


def is_live(state: State, session: Session) -> bool:
    """The session is known and has not ended, or still waits for a turn."""
    if state.sessions.get(session.key) is not session:
        return False
    return not session.ended or bool(session.held_ids)


class SessionNotes(Generic[NoteT]):
    """Notes by session, in the order in which they were first made."""

    def __init__(self) -> None:
        self._entries: dict[SessionKey, tuple[Session, NoteT]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Session, NoteT]]:
        return iter(self._entries.values())

    def get(self, session: Session) -> NoteT | None:
        """The session's note; `None`: nothing is known of it."""
        entry = self._entries.get(session.key)
        return entry[1] if entry is not None and entry[0] is session else None

    def put(self, session: Session, note: NoteT) -> NoteT:
        """Make or replace the session's note."""
        self._entries[session.key] = (session, note)
        return note

    def sweep(self, state: State) -> None:
        """Forget sessions that are gone; O(notes)."""
        gone = [key for key, (session, _) in self._entries.items() if not is_live(state, session)]
        for key in gone:
            del self._entries[key]
