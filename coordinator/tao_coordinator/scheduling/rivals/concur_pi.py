r"""Proportional-integral control of the number of active sessions by projected occupancy.

The digest of CONCUR that circulates describes a PI regulator; the paper has none. This one is ours:
the same actuator as `concur-aimd`, with the controller that control theory suggests for it.

Sensor, per backend, each interval (committed: tokens of the seats of active sessions, idle ones
included, and the shared prefix; C: capacity; g_i: growth of session i's context, smoothed):

    U    = committed / C + L * sum(g_i) / C                                             [1]
    e    = U_set - U                                                                    [1]

Velocity form, W in sessions:

    dW   = K_p * (e_k - e_{k-1}) + K_i * dt * e_k                                       [sessions]
    W    = clip(W + dW, W_min, W_max)

Plant: one session more raises U by k = (committed / active) / C, much of it at once (its first
prompt) and the rest as its context grows: together about a lag of tau. A smaller window acts at the
next boundary between calls, after delay L. SIMC (Skogestad) for a first-order plant with delay and
closed-loop time tau_c:

    K_p  = tau / (k * (tau_c + L))    [sessions]      T_i = min(tau, 4 * (tau_c + L))   [s]
    K_i  = K_p / T_i                  [sessions/s]

(for tau >> tau_c the plant is an integrator of slope b = k / tau: K_p = 1 / (b * (tau_c + L)),
T_i = 4 * (tau_c + L)). K_p * b * L = L / (tau_c + L) < pi / 2 keeps a gain margin for any k; k
follows the sessions, and the velocity form makes that bumpless.

Anti-windup: the state of the velocity form is W itself, so clipping W is all the back-calculation
there is; besides, W does not grow while it does not bind (active < 0.9 of its whole places), and
does not shrink further while sessions that must leave have not left.
"""

from dataclasses import dataclass, field

from tao_coordinator.core.model import Backend, SessionKey
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.pacing import engine_second_s
from tao_coordinator.scheduling.rivals.session_window import Gate, SessionWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurPiParameters:
    """Settings; durations in seconds of the engines' time."""

    usage_target: float = 0.8
    """U_set. Hit rates collapse once the working set passes about 0.75-0.87 of the pool."""
    delay_s: float = 20.0
    """L: until a smaller window acts, one call and one short tool."""
    lag_s: float = 20.0
    """tau: short, since the first prompt is much of a context. Mean task times of a simulated fleet
    stayed within 10 % over tau 10-60 s and (L, tau_c) from (20, 20) to (30, 120) s."""
    closed_loop_s: float = 40.0
    """tau_c = 2 L: twice as slow as SIMC's tightest."""
    growth_smoothing_s: float = 60.0
    """Time constant of g_i."""
    interval_s: float = 5.0
    window_initial: float = 8.0
    window_min: float = 1.0
    window_max: float = 200.0
    binding_ratio: float = 0.9
    """The window binds when at least this share of it is active."""


@dataclass(slots=True)
class Growth:
    """Of one session's context."""

    tokens: int
    tokens_per_s: float = 0.0


@dataclass(slots=True)
class Memory:
    """What the controller of one backend keeps between two intervals."""

    sampled_s: float
    error: float | None = None
    growths: dict[SessionKey, Growth] = field(default_factory=dict[SessionKey, Growth])


class ConcurPi(SessionWindows):
    """One PI controller per backend."""

    name = "concur-pi"

    def __init__(self, parameters: ConcurPiParameters | None = None) -> None:
        """Decide by `parameters`."""
        self.parameters = parameters or ConcurPiParameters()
        super().__init__(
            interval_s=self.parameters.interval_s, window_initial=self.parameters.window_initial
        )
        self._memories: dict[str, Memory] = {}

    def adjust(self, state: State, backend: Backend, gate: Gate, now_s: float) -> None:
        """One step of the law; an unknown capacity holds nobody."""
        parameters = self.parameters
        capacity = backend.capacity_tokens
        if not capacity:
            gate.window = parameters.window_max
            return
        memory = self._memory(state, backend, now_s)
        step_s = (now_s - memory.sampled_s) / engine_second_s(state.parameters)
        memory.sampled_s = now_s
        growth = self._growth_tokens_per_s(memory, gate, step_s)
        committed = backend.committed_tokens + backend.shared_prefix.tokens
        error = parameters.usage_target - (committed + parameters.delay_s * growth) / capacity
        previous = error if memory.error is None else memory.error
        memory.error = error
        if not gate.active:
            return
        gain, integral_time_s = self.tuning(committed / len(gate.active) / capacity)
        change = gain * (error - previous) + gain / integral_time_s * step_s * error
        binds = len(gate.active) >= int(parameters.binding_ratio * int(gate.window))
        drains = bool(gate.leaving())
        if (change > 0 and not binds) or (change < 0 and drains):
            return
        gate.window = min(parameters.window_max, max(parameters.window_min, gate.window + change))

    def tuning(self, usage_per_session: float) -> tuple[float, float]:
        """K_p in sessions and T_i in seconds for k = `usage_per_session`."""
        parameters = self.parameters
        reach_s = parameters.closed_loop_s + parameters.delay_s
        gain = parameters.lag_s / (max(1e-6, usage_per_session) * reach_s)
        return gain, min(parameters.lag_s, 4.0 * reach_s)

    def _memory(self, state: State, backend: Backend, now_s: float) -> Memory:
        memory = self._memories.get(backend.backend_id)
        if memory is None:
            self._memories = {k: v for k, v in self._memories.items() if k in state.backends}
            memory = self._memories[backend.backend_id] = Memory(sampled_s=now_s)
        return memory

    def _growth_tokens_per_s(self, memory: Memory, gate: Gate, step_s: float) -> float:
        """Sum over the active sessions of their smoothed growth."""
        if step_s > 0:
            share = min(1.0, step_s / self.parameters.growth_smoothing_s)
            for key, session in gate.active.items():
                known = memory.growths.get(key)
                if known is None:
                    memory.growths[key] = Growth(session.context_tokens)
                    continue
                grown = max(0, session.context_tokens - known.tokens) if known.tokens else 0
                known.tokens = session.context_tokens
                known.tokens_per_s += share * (grown / step_s - known.tokens_per_s)
        memory.growths = {k: v for k, v in memory.growths.items() if k in gate.active}
        return sum(known.tokens_per_s for known in memory.growths.values())
