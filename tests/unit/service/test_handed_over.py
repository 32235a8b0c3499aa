"""Which event of a session ends the turn that it was redirected with."""

import pytest

from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    SessionEnded,
    SessionHeartbeat,
    SessionWaiting,
    ToolEnded,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.service import handed_over
from tao_coordinator.service.handed_over import HandedOver


def turn(session_id: str = "s", agent: str = "", model: str = "m") -> TurnRequested:
    return TurnRequested(request_id="r", session_id=session_id, agent=agent, model=model)


@pytest.mark.parametrize(
    ("event", "ends"),
    [
        (turn(), True),
        (turn(session_id="other"), False),
        (turn(agent="title"), False),
        (turn(model="small"), False),
        (ToolStarted(session_id="s", call_id="c", name="bash"), True),
        (ToolStarted(session_id="s", call_id="c", name="bash", agent="sub"), False),
        (SessionWaiting(session_id="s"), True),
        (SessionEnded(session_id="s"), True),
        (SessionEnded(session_id="s", agent="sub"), False),
        # A call in the background may end while the model writes.
        (ToolEnded(session_id="s", call_id="c"), False),
        (SessionHeartbeat(session_id="s", open_call_ids=()), False),
        (LeaseReleased(lease_id="l1"), False),
    ],
)
def test_what_ends_a_turn(event: Event, ends: bool) -> None:
    over = HandedOver()
    over.add("l1", turn())
    assert over.ended_by([event]) == ([LeaseReleased(lease_id="l1")] if ends else [])
    assert bool(over) is not ends
    # Told once.
    assert over.ended_by([event]) == []


def test_every_agent_ends_with_its_session() -> None:
    over = HandedOver()
    over.add("l1", turn())
    over.add("l2", turn(agent="sub"))
    over.add("l3", turn(session_id="other"))
    assert over.ended_by([SessionEnded(session_id="s")]) == [
        LeaseReleased(lease_id="l1"),
        LeaseReleased(lease_id="l2"),
    ]
    assert over


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_over, "SESSIONS_MAX", 2)
    over = HandedOver()
    for number in range(5):
        over.add(f"l{number}", turn(session_id=f"s{number}"))
    events = [turn(session_id=f"s{number}") for number in range(5)]
    assert over.ended_by(events) == [LeaseReleased(lease_id="l3"), LeaseReleased(lease_id="l4")]
