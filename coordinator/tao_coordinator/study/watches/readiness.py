"""How good a readiness predictor was, and what it changed.

*Error*: at the start of each tool call, the predicted duration (the median of a distribution; the
deadline D where the predictor claims one number) beside what the call then lasted. *Brier*: the
predictor's claim at the same moment that the call ends within the second, checked like the error.
*Changed*: each joint plan of `tao-paper` is made a second time with r = 0 for everybody; a plan
counts as changed where the two differ in what they are worth. A tie broken otherwise is no change.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from tao_coordinator.core.events import Event, ToolEnded, ToolStarted
from tao_coordinator.prediction.calibration import Calibration
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.prediction.remaining import Remaining
from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.scheduling.placement.plan import objective_of
from tao_coordinator.scheduling.rivals.grid_decision import Decide, Decision
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.watches.watch import Watch

HORIZON_S: Final = 1.0
CLOSE_S: Final = 0.5
"""The paper counts predictions at most this far off."""


class _Heard(ReadinessPredictor):
    """Passes everything on and writes down what was said about each call at its start."""

    def __init__(self, inner: ReadinessPredictor) -> None:
        self._inner = inner
        self._said: dict[tuple[str, str], tuple[float, float, float]] = {}
        self.errors_s: list[float] = []
        self.squares: list[float] = []

    def observe(self, event: Event, now_s: float) -> None:
        self._inner.observe(event, now_s)
        if isinstance(event, ToolStarted) and not event.background:
            answer = self._inner.remaining(event.session_id, now_s, call_id=event.call_id)
            said = (now_s, answer.median_s, answer.p_ready_by(HORIZON_S))
            self._said[event.session_id, event.call_id] = said
        elif isinstance(event, ToolEnded):
            said = self._said.pop((event.session_id, event.call_id), None)
            if said is not None:
                lasted_s = now_s - said[0] if event.duration_s is None else event.duration_s
                self.errors_s.append(abs(said[1] - lasted_s))
                self.squares.append((said[2] - (lasted_s <= HORIZON_S)) ** 2)

    def turn_ended(self, session_id: str, now_s: float) -> None:
        self._inner.turn_ended(session_id, now_s)

    def forget(self, session_id: str) -> None:
        self._inner.forget(session_id)

    def remaining(self, session_id: str, now_s: float, *, call_id: str | None = None) -> Remaining:
        return self._inner.remaining(session_id, now_s, call_id=call_id)

    def calibration(self) -> Calibration:
        return self._inner.calibration()

    def export(self) -> dict[str, object]:
        return self._inner.export()

    def merge(self, exported: Mapping[str, object]) -> None:
        self._inner.merge(exported)


class ReadinessWatch(Watch):
    """Checks predictions, and makes each plan again without readiness."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._heard: _Heard | None = None
        self.num_plans = 0
        self.num_changed = 0

    def readiness(self, predictor: ReadinessPredictor) -> ReadinessPredictor:
        """See `Watch`."""
        self._heard = _Heard(predictor)
        return self._heard

    def decide(self, decide: Decide) -> Decide:
        """See `Watch`."""

        def watched(problem: PlacementProblem, quantum_tokens: int, states_max: int) -> Decision:
            found = decide(problem, quantum_tokens, states_max)
            self.num_plans += 1
            if found.used_fallback or not problem.ready.any():
                return found  # nothing in it depends on readiness
            blind = replace(problem, ready=np.zeros_like(problem.ready))
            without = decide(blind, quantum_tokens, states_max)
            both = (objective_of(problem, one.backend_of) for one in (found, without))
            self.num_changed += len(set(both)) > 1
            return found

        return watched

    def measures(self, record: RunRecord) -> dict[str, float]:
        """Seconds, shares; what was never asked is left out."""
        found: dict[str, float] = {}
        if self._heard is not None and self._heard.errors_s:
            errors_s = np.array(self._heard.errors_s)
            errors_s = errors_s[np.isfinite(errors_s)]
            if len(errors_s):
                found["prediction_error_s_mean"] = float(errors_s.mean())
                found["prediction_error_s_p50"] = float(np.percentile(errors_s, 50))
                found["prediction_error_s_p90"] = float(np.percentile(errors_s, 90))
                found["prediction_close"] = float((errors_s <= CLOSE_S).mean())
            found["prediction_brier"] = float(np.mean(self._heard.squares))
            found["predictions"] = float(len(self._heard.squares))
        if self.num_plans:
            found["decisions_changed"] = self.num_changed / self.num_plans
        return found
