"""Which replies the capacity controller hears of, with the real engine.

A surprise of a session's own newest chain is evidence. What a move, a parallel call, a lost shadow
or a rewritten prompt makes the engine find or miss is none.
"""

from dataclasses import replace

from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendDrained, BackendSampled, BackendUnreachable
from tao_coordinator.core.parameters import Parameters

POOL = 400_000
CROWDED = Parameters(growth_turns=0.0, budget_ratio=1.5)
"""Seats may be promised beyond the pool, so that engines do evict."""


def surplus(d: EngineDriver, backend_id: str = "b0") -> int:
    return d.engine.state.backends[backend_id].evidence.surplus_tokens


def prompts(d: EngineDriver, backend_id: str = "b0") -> int:
    return d.engine.state.backends[backend_id].evidence.prompt_tokens


def call(d: EngineDriver, session: str, tokens: int, cached: int | None) -> None:
    d.done(d.ask(session, tokens), input_tokens=tokens, cached_tokens=cached)


def crowd_out(d: EngineDriver) -> None:
    """Two sessions come and go; what was in a pool of 60k before is gone."""
    for name, tokens in (("t", 40_000), ("u", 45_000)):
        call(d, name, tokens, 0)
        d.end(name)


def test_first_call_is_no_evidence() -> None:
    d = EngineDriver(POOL)
    call(d, "s", 20_000, 5_000)
    assert prompts(d) == 0


def test_hit_as_predicted_counts_its_prompt_and_no_surprise() -> None:
    d = EngineDriver(POOL)
    call(d, "s", 20_000, 0)
    call(d, "s", 21_000, 20_100)
    assert (prompts(d), surplus(d)) == (21_000, 0)


def test_hit_of_an_evicted_chain_is_surplus() -> None:
    d = EngineDriver(60_000, parameters=CROWDED)
    call(d, "s", 20_000, 0)
    crowd_out(d)
    call(d, "s", 21_000, 20_000)
    assert surplus(d) == 20_000


def test_session_that_moves_finds_an_older_prefix_and_that_is_no_surplus() -> None:
    d = EngineDriver(POOL, POOL)
    call(d, "s", 20_000, 0)
    home = d.engine.state.backends["b0"]
    assert home.reports.tells
    d.step(BackendDrained(backend_id="b0"))
    call(d, "s", 22_000, 15_000)  # b1 knew it, from a time before the engine was watched
    assert (prompts(d, "b1"), surplus(d, "b1")) == (0, 0)


def test_parallel_call_that_misses_is_no_wrong_prediction() -> None:
    """Two calls at once: the second finds nothing that the first has not computed yet."""
    d = EngineDriver(POOL)
    call(d, "s", 20_000, 0)
    first, second = d.ask("s", 22_000), d.ask("s", 21_500)
    before = prompts(d)
    d.done(second, input_tokens=21_500, cached_tokens=0)
    assert prompts(d) == before
    assert d.engine.state.typical.prediction_quality == 1.0
    d.done(first, input_tokens=22_000, cached_tokens=20_100)
    assert prompts(d) == before + 22_000


def test_hits_after_the_metrics_were_away_are_no_surplus() -> None:
    """Three lost polls clear the shadow; the engine may hold everything still."""
    d = EngineDriver(POOL, POOL)
    call(d, "s", 20_000, 0)
    for _ in range(Parameters().unreachable_limit):
        d.step(BackendUnreachable(backend_id="b0", reason="timed out"))
    d.step(BackendDrained(backend_id="b1"))
    for _ in range(Parameters().reachable_limit):
        d.step(BackendSampled(backend_id="b0", capacity_tokens=POOL))
    call(d, "s", 21_000, 20_100)
    assert (prompts(d), surplus(d)) == (0, 0)
    call(d, "s", 22_000, 21_100)
    assert (prompts(d), surplus(d)) == (22_000, 0), "from now on it counts again"


def test_compaction_is_no_evidence_and_leaves_its_old_blocks_behind() -> None:
    d = EngineDriver(POOL)
    call(d, "s", 40_000, 0)
    before = prompts(d)
    call(d, "s", 15_000, 0)
    assert (prompts(d), surplus(d)) == (before, 0)
    cache = d.engine.state.backends["b0"].cache
    assert cache.idle_tokens == 40_100 + 15_100


def test_truncation_leaves_only_its_tail_behind() -> None:
    """The last messages are cut off: the rest is found, and is no garbage."""
    d = EngineDriver(POOL)
    call(d, "s", 40_000, 0)
    call(d, "s", 30_000, 29_000)
    assert d.engine.state.backends["b0"].cache.idle_tokens == 30_100 + 40_100 - 29_000


def test_evidence_of_one_backend_moves_only_its_own_gamma() -> None:
    parameters = replace(CROWDED, capacity_window_tokens=20_000)
    d = EngineDriver(60_000, 400_000, parameters=parameters)
    d.step(BackendDrained(backend_id="b1"))
    call(d, "s", 20_000, 0)
    crowd_out(d)
    call(d, "s", 21_000, 20_000)
    d.idle(1.5)
    assert d.engine.state.backends["b1"].capacity_factor == 1.0
    assert d.engine.state.backends["b0"].capacity_factor > 1.0
