"""Pacing of forced grants."""

from engine_driver import EngineDriver

from tao_coordinator.core import granting
from tao_coordinator.core.model import SessionKey, Turn
from tao_coordinator.core.parameters import Parameters

POOL = 60_000
"""A refill takes a millisecond per token: 60 s for the pool."""


def force(d: EngineDriver, name: str, need: int, now_s: float) -> float:
    """Grant by force; when the next may come."""
    state = d.engine.state
    turn = Turn(
        request_id=name,
        session=state.session(SessionKey(name, "", ""), now_s),
        arrived_s=0.0,
        queued_s=0.0,
        input_tokens=need,
        output_tokens=0,
        timeout_s=None,
    )
    granting.grant(
        state,
        turn,
        state.backends["b0"],
        now_s,
        policy="tao",
        reason="forced",
        plan_id=None,
        keeps_pool=False,
        keeps_budget=False,
    )
    return state.backends["b0"].next_forced_s


def test_forced_grant_pauses_by_its_refill_over_the_forced_share() -> None:
    d = EngineDriver(POOL, parameters=Parameters(forced_share=0.2))
    assert force(d, "s", 10_000, 100.0) == 100.0 + 10.0 / 0.2


def test_small_forced_grant_does_not_shorten_the_pause_of_a_large_one() -> None:
    """Past the hard bound a small session goes at once; the large one's refill still runs."""
    d = EngineDriver(POOL, parameters=Parameters(forced_share=0.2))
    pause_ends_s = force(d, "large", 10_000, 100.0)
    assert force(d, "small", 100, 101.0) == pause_ends_s
