"""How much room is kept free for growth, by what an eviction would cost.

The reserve of `core.growth` keeps z standard deviations beside the expected peak. z follows the
price: where refilling stalls most seats (short tools, long contexts) the pool must not overflow;
where most seats sit in tools, a cache that is lost now and then costs less than room that lies
idle. Chosen on seeds 1-3: z = 3 everywhere cost 10 % of the tokens where 160 agents on one node sit
80 % of their time in tools, z = 1 everywhere up to 12 % where contexts are long.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final

from tao_coordinator.core import host_seats
from tao_coordinator.core.growth import ENDED_MAX
from tao_coordinator.core.model import Backend, Session
from tao_coordinator.core.state import UNLIMITED_TOKENS, State

UNKNOWN_LENGTH: Final = 1.0
"""So many times the reserve in host tiers is kept beside it before any session has ended. Chosen on
seed 1 at 2.5 times the pool with a tier of twice the pool: with 0 the sessions that start together
fill it 1.2 times over for 2,000 s (`swe`), with 2 they do not, but `mix` leaves the pool empty.
"""


class Loss(Enum):
    """What a session loses with its seat."""

    POOL = "the cache in the pool, to be computed again"
    COPY = "the cache in the pool, of which the host tier keeps a copy"
    HOST = "the host tier's copy, after that in the pool"


def loss_of(
    state: State, session: Session, backend: Backend, *, host_has_room: bool
) -> Loss | None:
    """What giving up the session's seat on this backend would lose; `None`: nothing any more.

    `host_has_room`: what the host tier keeps is expected to stay there.
    """
    if backend.tier is None or session.seat is None:
        return Loss.POOL
    is_kept = host_seats.keeps(state, session, backend)
    if session.seat.released:
        return Loss.HOST if is_kept else None
    return Loss.COPY if is_kept and host_has_room else Loss.POOL


def price_s(state: State, backend: Backend, loss: Loss = Loss.POOL) -> float:
    """R, the price of losing a cache on this backend, in seconds.

    The time to compute the content of the pool, or of the host tier, again; clipped to a configured
    range. Where a copy is left, the time to load the content of the pool from there.
    """
    parameters, tier = state.parameters, backend.tier
    pool = state.pool_tokens(backend)
    refill_s = backend.rates.refill_s(
        state.host_tokens(backend) if loss is Loss.HOST else pool,
        prior_s=parameters.refill_s_prior,
        bounds_s=(parameters.refill_s_min, parameters.refill_s_max),
    )
    if loss is not Loss.COPY or tier is None or pool is None:
        return refill_s
    return min(refill_s, backend.rates.slowdown * pool / tier.reload_tokens_per_s)


def look_at_growth(state: State) -> None:
    """Take in what the seats of now are expected to need together; O(sessions + backends)."""
    seats = [
        (session.turns, session.seat.tokens)
        for session in state.sessions.values()
        if session.seat is not None and not session.seat.released
    ]
    usable = [backend for backend in state.backends.values() if backend.usable]
    peak = state.growth.reserve_tokens(
        seats, state.typical.growth_tokens, max(1, len(usable)), margin(state, usable)
    )
    state.growth_peak_tokens = UNLIMITED_TOKENS if peak is None else int(peak)
    tiers = {b.backend_id: b.tier.tokens for b in usable if b.tier}
    if tiers:
        most = state.parameters.growth_pool_ratio * min(tiers.values())
        state.host_growth_tokens = int(min(most, _host_reserve_tokens(state, tiers)))


def _host_reserve_tokens(state: State, tiers: Collection[str]) -> float:
    """Growth to keep free in host tiers beside each session that they keep.

    Nobody leaves a host tier to be held elsewhere: of all that it keeps, to their ends, rare jumps
    included. Whoever was let in stays, and a tier that is too full loses everybody's cache in turn;
    until as many sessions have ended (of those that are remembered) their length is a guess, and
    the reserve is larger.
    """
    kept = [
        (s.turns, state.private_tokens(s, state.backends[s.last_backend_id]))
        for s in state.sessions.values()
        if s.is_started
        and s.last_backend_id is not None
        and s.last_backend_id in tiers
        and not (s.seat is not None and s.seat.given_up)
    ]
    growth, margin_most = state.growth, state.parameters.growth_margin
    peak = growth.reserve_tokens(kept, growth.mean_tokens, len(tiers), margin_most)
    enough = min(ENDED_MAX, max(1, len(kept)))
    unknown = 1.0 - min(1.0, growth.num_ended / enough)
    factor = 1.0 + UNKNOWN_LENGTH * unknown
    return factor * (growth.mean_tokens if peak is None else peak)


def margin(state: State, usable: list[Backend]) -> float:
    """z: `growth_margin`, less where the price of an eviction is low."""
    most = state.parameters.growth_margin
    prices_s = [price_s(state, backend) for backend in usable]
    ratio = state.cycle.price_ratio(sum(prices_s) / len(prices_s)) if prices_s else None
    return most if ratio is None else min(most, state.parameters.growth_margin_gain * ratio)
