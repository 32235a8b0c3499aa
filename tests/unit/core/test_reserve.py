"""The growth reserve keeps more beside it where an eviction costs more."""

import pytest

from tao_coordinator.core.growth import ENDED_MAX
from tao_coordinator.core.host_tier import HostTier
from tao_coordinator.core.model import Backend, SessionKey
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.reserve import look_at_growth, margin, price_s
from tao_coordinator.core.state import UNLIMITED_TOKENS, State


def fleet(*capacities: int, **changes: float) -> State:
    """Idle backends that prefill 10,000 tokens a second."""
    state = State(Parameters(**changes))  # pyright: ignore[reportArgumentType]
    for number, capacity in enumerate(capacities):
        backend = Backend(f"b{number}", "http://b", capacity, 1.0)
        backend.rates.learn_prefill(uncached_tokens=50_000, ttft_s=5.0)
        state.backends[backend.backend_id] = backend
    state.fleet_changed()
    return state


def cycle(state: State, run_s: float, idle_s: float) -> None:
    state.cycle.ran(run_s)
    state.cycle.was_idle(idle_s)


def test_price_is_the_time_to_refill_the_pool() -> None:
    state = fleet(400_000)
    assert price_s(state, state.backends["b0"]) == 40.0


def test_full_margin_until_a_cycle_was_seen_and_without_backends() -> None:
    state = fleet(400_000)
    assert margin(state, list(state.backends.values())) == 3.0
    cycle(state, 1.0, 99.0)
    assert margin(state, []) == 3.0


@pytest.mark.parametrize(
    ("run_s", "idle_s", "expected"),
    [
        (5.0, 5.0, 3.0),  # 40 s x 1/2 over 10 s: far above the limit
        (4.0, 16.0, 0.8),  # 2 x 40 x 1/5 / 20
        (1.0, 99.0, 0.008),
    ],
)
def test_margin_follows_the_price_up_to_its_limit(
    run_s: float, idle_s: float, expected: float
) -> None:
    state = fleet(400_000)
    cycle(state, run_s, idle_s)
    assert margin(state, list(state.backends.values())) == pytest.approx(expected)


def test_margin_follows_the_mean_price_of_unequal_backends() -> None:
    state = fleet(200_000, 600_000)
    cycle(state, 4.0, 16.0)
    assert margin(state, list(state.backends.values())) == pytest.approx(0.8)


def test_nobody_seated_leaves_the_reserve_to_the_typical_growth() -> None:
    state = fleet(400_000)
    look_at_growth(state)
    assert state.growth_peak_tokens == UNLIMITED_TOKENS


def kept_above_a_tier(num_sessions: int, num_ended: int) -> State:
    """Sessions of 10 turns and 10,000 tokens that nobody ended, above one tier; and ended ones."""
    state = fleet(400_000, 400_000)
    state.backends["b0"].host = HostTier(4_000_000, 200_000.0)
    state.fleet_changed()
    for backend in state.backends.values():
        backend.healthy = True
    for number in range(num_sessions):
        session = state.session(SessionKey(f"s{number}", "", ""), 0.0)
        session.turns, session.context_tokens, session.last_backend_id = 10, 10_000, "b0"
    for _ in range(num_ended):
        state.growth.ended(20)
    return state


def test_reserve_of_a_tier_is_doubled_until_as_many_have_ended_as_are_remembered() -> None:
    """2,000 sessions are kept, 500 ended ones are remembered at most: that is enough to know."""
    known = kept_above_a_tier(2_000, ENDED_MAX)
    look_at_growth(known)
    row = [(10, 10_000)] * 2_000
    expected = known.growth.reserve_tokens(row, known.growth.mean_tokens, 1, 3.0)
    assert expected is not None
    assert known.host_growth_tokens == int(expected)


def test_sessions_elsewhere_do_not_count_for_a_tier() -> None:
    state = kept_above_a_tier(20, 20)
    look_at_growth(state)
    alone = state.host_growth_tokens
    for number in range(100):
        session = state.session(SessionKey(f"t{number}", "", ""), 0.0)
        session.turns, session.context_tokens, session.last_backend_id = 1, 1_000, "b1"
    look_at_growth(state)
    assert state.host_growth_tokens == alone
