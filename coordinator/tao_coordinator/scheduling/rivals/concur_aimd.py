"""CONCUR as published: additive increase, multiplicative decrease of the number of active agents.

Original: "CONCUR: High-Throughput Agentic Batch Inference of LLM via Congestion-Based Concurrency
Control" (arXiv 2601.22705). No code is public. W is the window of `session_window`, U the KV usage
and H the hit rate of a backend:

    W <- W + alpha                        if U < U_low
    W <- max(W_min, floor(beta * W))      if U > U_high and H < H_thresh
    W <- W                                otherwise

*Published*: signals, shape of the law, alpha = 2, beta = 0.5, U_low = 0.2, U_high = 0.5,
H_thresh = 0.2, agents as the unit, pauses only between calls (constants as readers of the full text
report them).
*Reconstructed*: interval 5 s and trailing 60 s hit rate (a third-party transplant), W_0 = 8 and
W_min = 1 per backend, newest paused first, one window per backend, and increase only while the
window binds (at most alpha places free), without which W would grow without limit in quiet times.

U counts what running calls reference and H counts the shared prompt: with a shared prompt that
alone gives H >= 0.2 the decrease never fires and W only climbs.
"""

from dataclasses import dataclass

from tao_coordinator.core.model import Backend
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.pacing import engine_second_s
from tao_coordinator.scheduling.rivals.sensors import TrailingHitRate, kv_usage_ratio
from tao_coordinator.scheduling.rivals.session_window import Gate, SessionWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurAimdParameters:
    """First five: published. The rest: reconstruction."""

    alpha: int = 2
    """Sessions added."""
    beta: float = 0.5
    """Factor of a cut."""
    usage_low: float = 0.2
    """U_low."""
    usage_high: float = 0.5
    """U_high."""
    hit_rate_low: float = 0.2
    """H_thresh."""
    interval_s: float = 5.0
    hit_window_s: float = 60.0
    window_initial: int = 8
    window_min: int = 1


class ConcurAimd(SessionWindows):
    """The published law, one window per backend."""

    name = "concur-aimd"

    def __init__(self, parameters: ConcurAimdParameters | None = None) -> None:
        """Decide by `parameters`."""
        self.parameters = parameters or ConcurAimdParameters()
        super().__init__(
            interval_s=self.parameters.interval_s, window_initial=self.parameters.window_initial
        )
        self._hit_rates: dict[str, TrailingHitRate] = {}

    def adjust(self, state: State, backend: Backend, gate: Gate, now_s: float) -> None:
        """One step of the law."""
        parameters = self.parameters
        second_s = engine_second_s(state.parameters)
        hits = self._hit_rates.get(backend.backend_id)
        if hits is None:
            self._hit_rates = {k: v for k, v in self._hit_rates.items() if k in state.backends}
            hits = TrailingHitRate(parameters.hit_window_s * second_s)
            self._hit_rates[backend.backend_id] = hits
        hits.sample(backend, now_s)
        usage = kv_usage_ratio(backend, now_s, parameters.interval_s * second_s)
        if usage is None:
            return
        if usage < parameters.usage_low:
            if len(gate.active) >= gate.window - parameters.alpha:
                gate.window += parameters.alpha
        elif usage > parameters.usage_high and self._is_thrashing(hits):
            gate.window = max(parameters.window_min, int(parameters.beta * gate.window))

    def _is_thrashing(self, hits: TrailingHitRate) -> bool:
        ratio = hits.ratio
        return ratio is not None and ratio < self.parameters.hit_rate_low
