"""What host tiers keep of the sessions: how much room is left there, and who is kept.

A session has its place in the host tier of its home while it has a seat there or is held; a seat
that was given up there too counts with `released_weight`.
"""

from tao_coordinator.core.model import Backend, Session, SessionKey
from tao_coordinator.core.state import UNLIMITED_TOKENS, State


def room_tokens(state: State, backend: Backend, growth: int) -> int:
    """Private tokens that the host tier can still promise; unlimited without one. O(held).

    Args:
        state: as of now.
        backend: whose.
        growth: tokens to keep free beside each session.
    """
    if backend.tier is None:
        return UNLIMITED_TOKENS
    given_up = backend.given_up_tokens + backend.num_given_up * growth
    seats = backend.num_committed + backend.num_released
    seated = backend.committed_tokens + backend.released_tokens + seats * growth
    held: dict[SessionKey, int] = {}
    for turn in state.held.values():
        session = turn.session
        is_here = session.last_backend_id == backend.backend_id
        if is_here and session.is_started and session.seat is None:
            need = state.need_tokens(turn, backend) + growth
            held[session.key] = max(need, held.get(session.key, 0))
    kept = seated - given_up + int(state.parameters.released_weight * given_up)
    budget = int(state.parameters.budget_ratio * state.host_tokens(backend))
    return budget - kept - sum(held.values())


def keeps(state: State, session: Session, backend: Backend) -> bool:
    """Whether a host tier has a copy of most of the session's cache."""
    tier = backend.tier
    return tier is not None and state.is_most(
        session, backend, tier.cache.resident_tokens(session.key)
    )


def has_to_reload(state: State, session: Session, backend: Backend) -> bool:
    """Whether a host tier has most of the session's cache and the pool has not."""
    in_pool = backend.cache.resident_tokens(session.key)
    return keeps(state, session, backend) and not state.is_most(session, backend, in_pool)
