r"""Proportional-integral control of the capacity estimate: theta * gamma * C may be committed.

CONCUR controls how many agents run by feedback from the cache. Here the budget already says how
many fit; what feedback corrects is the *capacity* that the budget is computed from, since engines
misreport it (hybrid models, memory shared with others, other traffic). Per backend and window:

    e      = surplus / prompts        (`core.evidence`, private tokens)
    I'     = clip(I + K_i * clip(e, -s, s), gamma_min, gamma_max)     only where |e| >= dead zone
    gamma' = clip(I' + K_p * clip(e, -s, s), gamma_min, gamma_max)

    symbol                  setting                            default
    K_i                     `capacity_integral_gain`           0.3 per window
    K_p                     `capacity_proportional_gain`       0 (it would only add a bump)
    window                  `capacity_window_tokens`           200,000 prompt tokens
    dead zone               `capacity_dead_zone`               0.02
    s                       `capacity_error_max`               0.3
    gamma_min, gamma_max    `capacity_factor_min`, `..._max`   0.4, 1.6

The window is counted in tokens, not seconds: a slow backend gives evidence slowly and is moved
slowly. Anti-windup is structural: the integral is clipped to the actuator's own range, and without
evictions there is no evidence, hence no integration. The start is bumpless: gamma = 1 and no
evidence. Where predictions are wrong altogether (`quality` below one half: prompts are rewritten,
not evicted) the estimate returns to 1, because then misses say nothing about capacity.

Sign and stability: with capacity over-reported by x > 1 the oldest chains are predicted to be
resident but are gone; e < 0 and gamma falls until gamma * C is the true pool, where e = 0. A window
of evidence moves gamma by at most K_i * s = 0.09. Predictions made with an older gamma die out only
as their sessions come back, so gamma passes the truth (measured: by at most 0.13) and turns once.
Source: policy study section 5, where no gain in 0.1-1.0 oscillated; departures: the P term as a
setting, one window per backend. `tests/simulation/test_capacity_control.py` measures 0.7x, 1.3x and
2x, `test_control_disturbances.py` what must not move it.
"""

from dataclasses import dataclass

from tao_coordinator.core.evidence import CacheEvidence
from tao_coordinator.core.parameters import Parameters

QUALITY_MIN = 0.5
"""Share of predicted tokens found, below which misses say nothing about capacity."""


@dataclass(slots=True)
class CapacityEstimate:
    """Controller of one backend."""

    integral: float = 1.0

    def correct(
        self, evidence: CacheEvidence, quality: float, parameters: Parameters
    ) -> float | None:
        """The new factor gamma once a window of evidence is full, else `None`.

        Args:
            evidence: this backend's sums; taken when the window is full.
            quality: share of shallow predictions that came true, 0..1, over all backends.
            parameters: gains and limits.
        """
        if evidence.prompt_tokens < parameters.capacity_window_tokens:
            return None
        surplus, prompts = evidence.take()
        if quality < QUALITY_MIN:
            self.integral = 1.0
            return 1.0
        error = surplus / prompts
        if abs(error) < parameters.capacity_dead_zone:
            return self._limit(self.integral, parameters)
        limit = parameters.capacity_error_max
        error = max(-limit, min(limit, error))
        step = parameters.capacity_integral_gain * error
        self.integral = self._limit(self.integral + step, parameters)
        proportional = parameters.capacity_proportional_gain * error
        return self._limit(self.integral + proportional, parameters)

    @staticmethod
    def _limit(factor: float, parameters: Parameters) -> float:
        return max(parameters.capacity_factor_min, min(parameters.capacity_factor_max, factor))
