"""How much room is kept free for growth, by what an eviction would cost.

The reserve of `core.growth` keeps z standard deviations beside the expected peak. z follows the
price: where refilling stalls most seats (short tools, long contexts) the pool must not overflow;
where most seats sit in tools, a cache that is lost now and then costs less than room that lies
idle. Chosen on seeds 1-3: z = 3 everywhere cost 10 % of the tokens where 160 agents on one node sit
80 % of their time in tools, z = 1 everywhere up to 12 % where contexts are long.
"""

from tao_coordinator.core.model import Backend
from tao_coordinator.core.state import UNLIMITED_TOKENS, State


def refill_price_s(state: State, backend: Backend) -> float:
    """R, the price of losing a cache on this backend, in seconds; clipped to a configured range."""
    parameters = state.parameters
    return backend.rates.refill_s(
        state.pool_tokens(backend),
        prior_s=parameters.refill_s_prior,
        bounds_s=(parameters.refill_s_min, parameters.refill_s_max),
    )


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


def margin(state: State, usable: list[Backend]) -> float:
    """z: `growth_margin`, less where the price of an eviction is low."""
    most = state.parameters.growth_margin
    prices_s = [refill_price_s(state, backend) for backend in usable]
    ratio = state.cycle.price_ratio(sum(prices_s) / len(prices_s)) if prices_s else None
    return most if ratio is None else min(most, state.parameters.growth_margin_gain * ratio)
