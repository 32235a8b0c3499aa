"""Interrupt by price: which idle seats may be promised again while somebody is held.

A seat is worth keeping as long as waiting for its session is cheaper than refilling its cache
later. The price is R, the time to refill the backend's whole pool (`core.rates`); the waiting is
drawn from what the readiness predictor says of this session now: its own word (deadline, progress),
the harness's time-out, or past durations of the tool given that it has lasted this long. Ski rental
with a known distribution: give up at tau* = argmin E[min(D, tau)] + R P(D > tau); 0 = at once.

Releasing evicts nothing: the engine's own LRU decides whose blocks go, and a session that comes
back in time is still resident.
"""

from tao_coordinator.core.model import Backend, Session
from tao_coordinator.core.state import State
from tao_coordinator.prediction.predictor import ReadinessPredictor


def refill_price_s(state: State, backend: Backend) -> float:
    """R of this backend in seconds, clipped to the configured range."""
    parameters = state.parameters
    return backend.rates.refill_s(
        state.pool_tokens(backend),
        prior_s=parameters.refill_s_prior,
        bounds_s=(parameters.refill_s_min, parameters.refill_s_max),
    )


def seats_not_worth_keeping(
    state: State, readiness: ReadinessPredictor, now_s: float
) -> list[Session]:
    """Idle sessions whose seat is better promised to somebody else."""
    prices = {b.backend_id: refill_price_s(state, b) for b in state.backends.values()}
    return [
        session
        for session in state.sessions.values()
        if session.seat is not None
        and not session.seat.released
        and session.idle_since_s is not None
        and now_s - session.idle_since_s >= state.parameters.release_grace_s
        and readiness.remaining(session.key.session_id, now_s).keep_limit_s(
            prices[session.seat.backend_id]
        )
        <= 0.0
    ]
