"""A predictor that exists only in simulation: it knows every end beforehand.

It reads the scripts that the simulated agents will follow. No product could have it; it says what
perfect readiness would be worth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tao_coordinator.core.events import Event, TurnRequested
from tao_coordinator.prediction.calibration import Calibration, Coverage, Reliability
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.prediction.remaining import READY, Point, Remaining, Source
from tao_coordinator.simulation.agent_script import SessionScript


@dataclass(slots=True)
class _Whereabouts:
    turn: int
    replied_s: float | None = None
    """`None`: the turn is requested or running."""


class Oracle(ReadinessPredictor):
    """Knows from the scripts when each session comes back, to the last bit."""

    def __init__(self, sessions: Sequence[SessionScript]) -> None:
        """Look ahead in these; of anybody else it says that they are back."""
        self._scripts = {script.session_id: script for script in sessions}
        self._now: dict[str, _Whereabouts] = {}

    def observe(self, event: Event, now_s: float) -> None:
        """A simulated agent's request says which turn it asks for: `SESSION/TURN.ATTEMPT`."""
        if isinstance(event, TurnRequested) and event.session_id in self._scripts:
            turn = int(event.request_id.rpartition("/")[2].partition(".")[0])
            self._now[event.session_id] = _Whereabouts(turn)

    def turn_ended(self, session_id: str, now_s: float) -> None:
        """From now on its tools run."""
        if session_id in self._now:
            self._now[session_id].replied_s = now_s

    def forget(self, session_id: str) -> None:
        """It is gone."""
        self._now.pop(session_id, None)

    def remaining(self, session_id: str, now_s: float, *, call_id: str | None = None) -> Remaining:
        """The true time; of an open call alone (`TURN.NUMBER`), to its end."""
        known = self._now.get(session_id)
        if known is None or known.replied_s is None:
            return READY
        turn = self._scripts[session_id].turns[known.turn]
        end_s = known.replied_s + turn.idle_s
        if call_id is not None:
            end_s = known.replied_s + turn.tools[int(call_id.partition(".")[2])].end_s
        return Remaining(Point(max(0.0, end_s - now_s)), Source.DEADLINE, "")

    def calibration(self) -> Calibration:
        """It makes no forecasts that would have to be checked."""
        return Calibration(
            horizon_s=1.0, by_source={"total": Reliability().report()}, coverage=Coverage().report()
        )

    def export(self) -> dict[str, object]:
        """Nothing was learned."""
        return {}

    def merge(self, exported: Mapping[str, object]) -> None:
        """Nothing is learned."""
