"""The control loop of the default policy: one capacity estimate per backend and one gate."""

from dataclasses import dataclass

from tao_coordinator.core.evidence import CacheEvidence
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.control import pass_through
from tao_coordinator.scheduling.control.capacity_estimate import CapacityEstimate


@dataclass(frozen=True, slots=True)
class Corrections:
    """What the loop wants changed; the engine carries it out."""

    capacity_factors: dict[str, float]
    """New gamma by backend id, only where a window of evidence was full."""
    passes_through: bool


class ControlLoop:
    """Feedback from what replies found cached; called once per tick."""

    def __init__(self) -> None:
        """Start with every estimate at 1."""
        self._estimates: dict[str, tuple[CacheEvidence, CapacityEstimate]] = {}
        """By backend id, for the evidence that it was made from."""

    def correct(self, state: State) -> Corrections:
        """Look at the evidence since the last tick."""
        typical = state.typical
        factors: dict[str, float] = {}
        for gone in self._estimates.keys() - state.backends.keys():
            del self._estimates[gone]
        for backend in state.backends.values():
            evidence, estimate = self._estimates.get(backend.backend_id, (None, None))
            if estimate is None or evidence is not backend.evidence:
                estimate = CapacityEstimate()
                self._estimates[backend.backend_id] = backend.evidence, estimate
            factor = estimate.correct(
                backend.evidence, typical.prediction_quality, state.parameters
            )
            if factor is not None:
                factors[backend.backend_id] = factor
        return Corrections(
            capacity_factors=factors,
            passes_through=pass_through.is_open(
                typical.passes_through, typical.p_continues, typical.prediction_quality
            ),
        )
