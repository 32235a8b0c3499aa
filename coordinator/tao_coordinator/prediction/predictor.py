"""What the engine needs from a readiness predictor, and which ones there are."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from tao_coordinator.core.events import Event
from tao_coordinator.prediction.calibration import Calibration
from tao_coordinator.prediction.hazard import HazardPredictor
from tao_coordinator.prediction.paper import PaperPredictor
from tao_coordinator.prediction.remaining import Remaining


class ReadinessPredictor(Protocol):
    """Facts in, answers out. Time never goes back; a question changes no later answer."""

    def observe(self, event: Event, now_s: float) -> None:
        """Take in an event; kinds that say nothing about readiness are ignored.

        Args:
            event: any event of the engine, once (of a polled `TurnRequested` the first).
            now_s: the engine's monotonic time.
        """
        ...

    def turn_ended(self, session_id: str, now_s: float) -> None:
        """The session's reply is complete (no event carries its session id)."""
        ...

    def forget(self, session_id: str) -> None:
        """The session is gone; what it taught is kept."""
        ...

    def remaining(self, session_id: str, now_s: float, *, call_id: str | None = None) -> Remaining:
        """When does the session want its backend again?

        Args:
            session_id: any; of an unknown one the answer is what is true of all.
            now_s: the engine's monotonic time.
            call_id: ask for the end of this open call alone.
        """
        ...

    def calibration(self) -> Calibration:
        """How far the answers can be trusted, by what happened after them."""
        ...

    def export(self) -> dict[str, object]:
        """Everything learned, as plain values (JSON); no session, no argument, no output."""
        ...

    def merge(self, exported: Mapping[str, object]) -> None:
        """Add what another run has learned.

        Raises:
            ValueError: not an export of this predictor; nothing is changed then.
        """
        ...


PREDICTORS: Final[Mapping[str, Callable[[], ReadinessPredictor]]] = {
    "hazard": HazardPredictor,
    "paper": PaperPredictor,
}
"""Factories by name; `hazard` is the default."""
