"""The price of losing a cache: to refill the pool, to reload it, to refill what the host holds."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core import host_seats, ledger
from tao_coordinator.core.events import BackendAdded, BackendSampled
from tao_coordinator.core.model import Backend, Session
from tao_coordinator.core.reserve import loss_of
from tao_coordinator.core.reserve import price_s as price_of

POOL, HOST, RELOAD, PREFILL = 100_000, 500_000, 50_000.0, 4_000.0


def driver(host_tokens: int | None, reload_tokens_per_s: float | None = RELOAD) -> EngineDriver:
    """One backend that prefills 4,000 tokens/s: the pool of 100,000 in 25 s."""
    d = EngineDriver()
    rate = None if host_tokens is None else reload_tokens_per_s
    d.step(
        BackendAdded(
            backend_id="b0",
            base_url="http://b0",
            host_tier_tokens=host_tokens,
            host_reload_tokens_per_s=rate,
        )
    )
    d.step(BackendSampled(backend_id="b0", capacity_tokens=POOL))
    request_id = d.ask("a", 20_000)
    d.done(request_id, input_tokens=20_000, cached_tokens=0, ttft_s=20_000 / PREFILL)
    return d


def of(d: EngineDriver) -> tuple[Session, Backend]:
    (session,) = d.engine.state.of_id("a")
    return session, d.engine.state.backends["b0"]


def price_s(d: EngineDriver, *, host_has_room: bool = True) -> float:
    loss = loss_of(d.engine.state, *of(d), host_has_room=host_has_room)
    assert loss is not None, "nothing to lose"
    return price_of(d.engine.state, of(d)[1], loss)


def test_without_a_tier_the_pool_has_to_be_refilled() -> None:
    assert price_s(driver(None)) == pytest.approx(POOL / PREFILL)


def test_with_a_tier_it_is_reloaded() -> None:
    assert price_s(driver(HOST)) == pytest.approx(POOL / RELOAD)


def test_reloading_slower_than_computing_is_never_the_price() -> None:
    assert price_s(driver(HOST, reload_tokens_per_s=1_000.0)) == pytest.approx(POOL / PREFILL)


def test_full_host_tier_loses_what_the_pool_loses() -> None:
    assert price_s(driver(HOST), host_has_room=False) == pytest.approx(POOL / PREFILL)


def test_what_the_host_has_lost_has_to_be_refilled() -> None:
    d = driver(HOST)
    session, backend = of(d)
    assert backend.tier is not None
    backend.tier.cache.end(session.key, 1_000, HOST)
    assert not host_seats.keeps(d.engine.state, session, backend)
    assert price_s(d) == pytest.approx(POOL / PREFILL)


def test_seat_that_only_the_host_keeps_costs_a_refill_of_the_host() -> None:
    d = driver(HOST)
    ledger.release_seat(d.engine.state, of(d)[0])
    assert price_s(d) == pytest.approx(HOST / PREFILL)


def test_tier_no_larger_than_the_pool_changes_nothing() -> None:
    assert price_s(driver(POOL)) == pytest.approx(POOL / PREFILL)


def keeps_its_seat(d: EngineDriver, tool_s: float) -> bool:
    """Whether an idle session with a tool of a told length keeps its seat while somebody waits."""
    d.tool("a", remaining_s=tool_s)
    for number in range(4):
        d.ask(f"other-{number}", 30_000)
    assert d.held_ids()
    d.idle(3.0)
    seat = of(d)[0].seat
    return seat is not None and not seat.released


def test_seat_of_a_short_tool_is_kept_unless_a_reload_is_cheaper() -> None:
    assert keeps_its_seat(driver(None), tool_s=15.0)
    assert not keeps_its_seat(driver(HOST), tool_s=15.0)


def test_session_that_the_pool_lost_goes_at_once_where_the_host_has_it() -> None:
    for host_tokens, reason in ((HOST, "reload"), (None, None)):
        d = driver(host_tokens)
        for number in range(4):
            request_id = d.ask(f"other-{number}", 25_000, max_output_tokens=10)
            if request_id in d.grants:
                d.done(request_id, input_tokens=25_000)
                d.end(f"other-{number}")
        assert of(d)[1].cache.resident_tokens(of(d)[0].key) < 10_000
        request_id = d.ask("a", 20_200)
        assert (d.reason_of(request_id) if request_id in d.grants else None) in (reason, "planned")
        assert d.reason_of(request_id) == (reason or "planned")
