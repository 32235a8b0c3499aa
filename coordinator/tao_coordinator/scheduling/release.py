"""Interrupt by price: which idle seats may be promised again while somebody is held.

A seat is worth keeping as long as waiting for its session is cheaper than refilling its cache
later. The price is R, the time to refill the backend's whole pool (`core.rates`); the waiting is
the idle time still to come: told by the session itself (progress, deadline), bounded by the
harness's time-out, or drawn from the histogram of its tool (`prediction.duration_histogram`).
Releasing evicts nothing: the engine's own LRU decides whose blocks go, and a session that comes
back in time is still resident.
"""

from tao_coordinator.core import telemetry
from tao_coordinator.core.model import Backend, Session
from tao_coordinator.core.state import State
from tao_coordinator.prediction.duration_histogram import DurationHistogram


def refill_price_s(state: State, backend: Backend) -> float:
    """R of this backend in seconds, clipped to the configured range."""
    parameters = state.parameters
    return backend.rates.refill_s(
        state.pool_tokens(backend),
        prior_s=parameters.refill_s_prior,
        bounds_s=(parameters.refill_s_min, parameters.refill_s_max),
    )


def idle_key(state: State, session: Session) -> str:
    """Name of the distribution that this session's idle time is drawn from."""
    activity = state.activities.get(session.key.session_id)
    return "" if activity is None else activity.last_tool_key


def seats_not_worth_keeping(
    state: State, idle_times: DurationHistogram, now_s: float
) -> list[Session]:
    """Idle sessions whose seat is better promised to somebody else."""
    prices = {b.backend_id: refill_price_s(state, b) for b in state.backends.values()}
    return [
        session
        for session in state.sessions.values()
        if session.seat is not None
        and not session.seat.released
        and session.idle_since_s is not None
        and _is_too_dear(state, session, prices[session.seat.backend_id], idle_times, now_s)
    ]


def _is_too_dear(
    state: State,
    session: Session,
    refill_s: float,
    idle_times: DurationHistogram,
    now_s: float,
) -> bool:
    assert session.idle_since_s is not None
    elapsed_s = now_s - session.idle_since_s
    if elapsed_s < state.parameters.release_grace_s:
        return False
    told_s = telemetry.known_idle_s(state, session.key.session_id, now_s)
    if told_s is not None:
        return told_s > refill_s
    at_most_s = telemetry.latest_end_s(state, session.key.session_id, now_s)
    if at_most_s is not None and at_most_s <= refill_s:
        return False
    return elapsed_s >= idle_times.keep_limit_s(idle_key(state, session), refill_s)
