"""Leases of clients that were redirected to a backend: nobody tells when such a turn ends.

The session's own next step does: it asks for its next turn, starts a tool, waits or ends. Until
then the lease lives as long as one that nobody renews.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    SessionEnded,
    SessionWaiting,
    ToolStarted,
    TurnRequested,
)

SESSIONS_MAX: Final = 16_384

_Turns = dict[tuple[str, str], str]
"""Lease by agent and model."""


class HandedOver:
    """Knows which event ends which lease. Bounded: the oldest are left to expire."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, _Turns] = OrderedDict()

    def __bool__(self) -> bool:
        """True while any lease waits for an event."""
        return bool(self._turns)

    def add(self, lease_id: str, turn: TurnRequested) -> None:
        """From now on the next event of this turn's session and agent ends the lease."""
        self._turns.setdefault(turn.session_id, {})[turn.agent, turn.model] = lease_id
        if len(self._turns) > SESSIONS_MAX:
            self._turns.popitem(last=False)

    def ended_by(self, events: Iterable[Event]) -> list[Event]:
        """Releases of what these events end; each is told once."""
        releases: list[Event] = []
        for event in events:
            if not isinstance(event, TurnRequested | ToolStarted | SessionWaiting | SessionEnded):
                continue
            turns = self._turns.get(event.session_id)
            if turns is None:
                continue
            ended = [key for key in turns if _ends(event, *key)]
            releases += [LeaseReleased(lease_id=turns.pop(key)) for key in ended]
            if not turns:
                del self._turns[event.session_id]
        return releases


def _ends(
    event: TurnRequested | ToolStarted | SessionWaiting | SessionEnded, agent: str, model: str
) -> bool:
    """Whether this event can only come when the agent's reply is there."""
    if isinstance(event, TurnRequested):
        return (event.agent, event.model) == (agent, model)
    if isinstance(event, ToolStarted):
        return event.agent == agent
    return isinstance(event, SessionWaiting) or event.agent in ("", agent)
