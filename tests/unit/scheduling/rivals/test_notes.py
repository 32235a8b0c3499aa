"""Notes live as long as their session, and no longer."""

from engine_driver import EngineDriver

from tao_coordinator.core.model import SessionKey
from tao_coordinator.scheduling.rivals.notes import SessionNotes


def test_notes_are_forgotten_with_their_sessions() -> None:
    d = EngineDriver(400_000)
    notes: SessionNotes[int] = SessionNotes()
    for n in range(5):
        d.turn(f"s{n}")
        notes.put(d.engine.state.sessions[SessionKey(f"s{n}", "", "")], n)
    d.end("s1")
    d.end("s3")
    notes.sweep(d.engine.state)
    assert [note for _, note in notes] == [0, 2, 4]
    assert len(notes) == 3


def test_new_session_under_an_old_key_has_no_note() -> None:
    d = EngineDriver(100_000)
    key = SessionKey("s", "", "")
    notes: SessionNotes[int] = SessionNotes()
    d.turn("s")
    old = d.engine.state.sessions[key]
    notes.put(old, 1)
    d.end("s")
    d.turn("s")
    new = d.engine.state.sessions[key]
    assert notes.get(old) == 1
    assert notes.get(new) is None
    notes.sweep(d.engine.state)
    assert len(notes) == 0
