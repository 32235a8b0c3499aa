"""cache-aware: prefix while balanced, load when not, and its own idea of what is cached."""

from engine_driver import EngineDriver

from tao_coordinator.scheduling.rivals.cache_aware import CacheAware, CacheAwareParameters


def test_cache_aware_goes_where_most_of_the_prompt_was_sent() -> None:
    d = EngineDriver(400_000, 400_000, policy="cache-aware")
    busy = d.ask("other", 1_000)
    assert d.turn("s", 10_000) == "b1", "least load"
    d.done(busy)
    again = [d.ask("s", 20_000), d.ask("s", 20_000)]
    assert [d.backend_of(r) for r in again] == ["b1", "b1"]
    assert d.reason_of(again[0]) == "cache-affinity"


def test_cache_aware_match_must_exceed_the_threshold() -> None:
    for prompt, expected in ((33_333, "b0"), (33_334, "b1")):
        d = EngineDriver(400_000, 400_000, policy="cache-aware")
        assert d.turn("s", 10_000) == "b0"
        d.ask("other", 1_000)  # b0 is busier now
        request = d.ask("s", prompt)
        assert (d.backend_of(request), 0.3 * prompt < 10_000) == (expected, expected == "b0")


def test_cache_aware_switches_to_least_load_when_imbalanced() -> None:
    """70 sessions at home on b0 come back at once: expected by counting, as the rule reads."""
    d = EngineDriver(9_000_000, 9_000_000, policy="cache-aware")
    for n in range(70):
        assert d.turn(f"s{n}", 10_000) == "b0"
    load = [0, 0]
    for n in range(70):
        imbalanced = max(load) - min(load) > 64 and max(load) > 1.5 * min(load)
        expected = load.index(min(load)) if imbalanced else 0
        request = d.ask(f"s{n}", 10_000)
        assert d.backend_of(request) == f"b{expected}"
        assert d.reason_of(request) == ("imbalanced" if imbalanced else "cache-affinity")
        load[expected] += 1
    assert load == [67, 3]


def test_cache_aware_ratio_threshold_can_veto_the_difference() -> None:
    d = EngineDriver(9_000_000, 9_000_000, policy="cache-aware")
    d.engine.policy = CacheAware(CacheAwareParameters(balance_abs=2, balance_rel=10.0))
    for n in range(9):
        assert d.turn(f"s{n}", 10_000) == "b0"
    load = [d.backend_of(d.ask(f"s{n}", 10_000)) for n in range(3)]
    assert load == ["b0"] * 3
    assert d.backend_of(d.ask("s3", 10_000)) == "b1", "3 against 0"
    assert d.backend_of(d.ask("s4", 10_000)) == "b0", "3 against 1 is not ten times as much"


def test_cache_aware_is_never_told_what_was_evicted() -> None:
    d = EngineDriver(50_000, 50_000, policy="cache-aware")
    assert d.turn("s", 30_000) == "b0"
    crowd = [d.ask(f"c{n}", 45_000) for n in range(2)]
    for request in crowd:
        d.done(request, input_tokens=45_000)
    state = d.engine.state
    session = next(s for s in state.sessions.values() if s.key.session_id == "s")
    assert state.backends["b0"].cache.resident_tokens(session.key) < 10_000
    request = d.ask("s", 31_000)
    assert (d.backend_of(request), d.reason_of(request)) == ("b0", "cache-affinity")


def test_cache_aware_shared_prefix_matches_everywhere_and_load_decides() -> None:
    d = EngineDriver(400_000, 400_000, policy="cache-aware")
    for backend in d.engine.state.backends.values():
        for _ in range(2):
            backend.shared_prefix.found(8_000)
    first, second = d.ask("s0", 10_000), d.ask("s1", 10_000)
    assert [d.backend_of(r) for r in (first, second)] == ["b0", "b1"]
    assert d.reason_of(second) == "cache-affinity"


def test_cache_aware_forgets_sessions_that_are_gone() -> None:
    d = EngineDriver(400_000, policy="cache-aware")
    policy = d.engine.policy
    assert isinstance(policy, CacheAware)
    d.turn("s")
    d.turn("t")
    d.end("s")
    d.idle(2.0)
    assert len(policy._sent) == 1
