"""What a host tier keeps and can still promise, against sums by hand."""

from engine_driver import EngineDriver

from tao_coordinator.core import host_seats, ledger
from tao_coordinator.core.events import BackendAdded, BackendSampled
from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.reserve import Loss, loss_of
from tao_coordinator.core.state import UNLIMITED_TOKENS

POOL, HOST = 100_000, 400_000


def driver(host_tokens: int | None = HOST, pool: int = POOL) -> EngineDriver:
    d = EngineDriver()
    d.step(
        BackendAdded(
            backend_id="b0",
            base_url="http://b0",
            host_tier_tokens=host_tokens,
            host_reload_tokens_per_s=None if host_tokens is None else 200_000.0,
        )
    )
    d.step(BackendSampled(backend_id="b0", capacity_tokens=pool))
    return d


def backend_of(d: EngineDriver) -> Backend:
    return d.engine.state.backends["b0"]


def test_tier_counts_only_beyond_the_pool() -> None:
    assert backend_of(driver()).tier is not None
    assert backend_of(driver(host_tokens=POOL)).tier is None
    assert backend_of(driver(host_tokens=None)).tier is None
    unknown = driver()
    unknown.step(BackendAdded(backend_id="b1", base_url="http://b1", host_tier_tokens=5,
                              host_reload_tokens_per_s=1.0))  # fmt: skip
    assert unknown.engine.state.backends["b1"].tier is None  # no capacity, nothing to compare with


def test_room_is_what_seats_and_held_sessions_leave() -> None:
    d = driver()
    state, backend = d.engine.state, backend_of(d)
    assert host_seats.room_tokens(state, backend, 0) == int(0.95 * HOST)
    for name in ("a", "b"):
        d.turn(name, 30_000, output_tokens=1_000)
    assert host_seats.room_tokens(state, backend, 500) == int(0.95 * HOST) - 2 * (31_000 + 500)
    (session,) = state.of_id("a")
    ledger.release_seat(state, session)
    assert session.seat is not None and session.seat.released and not session.seat.given_up
    assert host_seats.room_tokens(state, backend, 500) == int(0.95 * HOST) - 2 * (31_000 + 500)
    ledger.release_seat(state, session)
    assert session.seat.given_up
    kept = 31_500 + int(0.3 * 31_500)
    assert host_seats.room_tokens(state, backend, 500) == int(0.95 * HOST) - kept
    d.engine.check()


def test_without_a_tier_a_seat_is_given_up_at_once_and_room_is_unlimited() -> None:
    d = driver(host_tokens=None)
    d.turn("a", 30_000)
    (session,) = d.engine.state.of_id("a")
    ledger.release_seat(d.engine.state, session)
    assert session.seat is not None and session.seat.given_up
    assert host_seats.room_tokens(d.engine.state, backend_of(d), 0) == UNLIMITED_TOKENS
    assert not host_seats.keeps(d.engine.state, session, backend_of(d))


def test_cache_that_the_pool_lost_is_credit_still() -> None:
    d = driver()
    state, backend = d.engine.state, backend_of(d)
    d.turn("a", 30_000, output_tokens=1_000)
    for name in ("b", "c", "d"):
        d.turn(name, 30_000, output_tokens=1_000)
        d.end(name)
    (first,) = state.of_id("a")
    assert backend.cache.resident_tokens(first.key) < 15_000
    assert state.resident_tokens(first, backend) == 31_000
    assert state.is_resident(first, backend) and host_seats.has_to_reload(state, first, backend)
    assert host_seats.keeps(state, first, backend)


def test_restarted_engine_has_lost_both_tiers() -> None:
    d = driver()
    d.turn("a", 30_000)
    d.step(BackendSampled(backend_id="b0", capacity_tokens=POOL, prefix_cache_queries_tokens=9))
    d.step(BackendSampled(backend_id="b0", capacity_tokens=POOL, prefix_cache_queries_tokens=0))
    (session,) = d.engine.state.of_id("a")
    assert d.engine.state.resident_tokens(session, backend_of(d)) == 0


def test_tier_that_grows_keeps_what_lies_there() -> None:
    d = driver()
    d.turn("a", 30_000, output_tokens=1_000)
    d.step(
        BackendAdded(
            backend_id="b0",
            base_url="http://b0",
            host_tier_tokens=2 * HOST,
            host_reload_tokens_per_s=1_000.0,
        )
    )
    (session,) = d.engine.state.of_id("a")
    tier = backend_of(d).tier
    assert tier is not None
    assert (tier.tokens, tier.reload_tokens_per_s) == (2 * HOST, 1_000.0)
    assert tier.cache.resident_tokens(session.key) == 31_000


def test_factor_learned_of_one_tier_is_not_believed_of_another() -> None:
    d = driver()
    backend_of(d).capacity_factor = 0.7
    same = {"backend_id": "b0", "base_url": "http://b0", "host_reload_tokens_per_s": 200_000.0}
    d.step(BackendAdded(**same, host_tier_tokens=HOST))  # pyright: ignore[reportArgumentType]
    assert backend_of(d).capacity_factor == 0.7
    assert d.engine.state.pool_tokens(backend_of(d)) == POOL
    assert d.engine.state.host_tokens(backend_of(d)) == int(0.7 * HOST)
    d.step(BackendAdded(**same, host_tier_tokens=2 * HOST))  # pyright: ignore[reportArgumentType]
    assert backend_of(d).capacity_factor == 1.0


def test_two_held_calls_of_one_session_have_one_place() -> None:
    d = driver()
    state, backend = d.engine.state, backend_of(d)
    d.turn("a", 30_000, output_tokens=1_000)
    (session,) = state.of_id("a")
    ledger.leave_seat(state, session)
    empty = host_seats.room_tokens(state, backend, 500)
    for number, tokens in enumerate((32_000, 33_000)):
        ledger.hold(state, Turn(f"r{number}", session, d.now_s, d.now_s, tokens, 300, None))
    assert empty - host_seats.room_tokens(state, backend, 500) == 33_000 + 300 + 500


def test_place_without_a_copy_is_worth_nothing() -> None:
    d = driver()
    state, backend = d.engine.state, backend_of(d)
    d.turn("a", 30_000, output_tokens=1_000)
    (session,) = state.of_id("a")
    assert loss_of(state, session, backend, host_has_room=True) is Loss.COPY
    assert loss_of(state, session, backend, host_has_room=False) is Loss.POOL
    ledger.release_seat(state, session)
    assert loss_of(state, session, backend, host_has_room=True) is Loss.HOST
    assert backend.tier is not None
    backend.tier.cache.clear()
    assert loss_of(state, session, backend, host_has_room=True) is None
