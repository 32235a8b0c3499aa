"""The shadow of an engine's LRU against a naive list of blocks."""

from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.core.shadow_cache import ShadowCache


def test_idle_chain_survives_while_the_pool_has_room() -> None:
    cache = ShadowCache()
    cache.end("a", 60, 100)
    cache.end("b", 40, 100)
    assert (cache.resident_tokens("a"), cache.resident_tokens("b")) == (60, 40)


def test_oldest_chain_is_cut_from_its_tail_first() -> None:
    cache = ShadowCache()
    cache.end("a", 60, 100)
    cache.end("b", 60, 100)
    assert (cache.resident_tokens("a"), cache.resident_tokens("b")) == (40, 60)


def test_running_calls_are_never_evicted() -> None:
    cache = ShadowCache()
    cache.start("a", 80, 100)
    cache.end("b", 60, 100)
    assert (cache.resident_tokens("a"), cache.resident_tokens("b")) == (80, 20)


def test_start_finds_what_is_left_and_no_more_than_it_asks_for() -> None:
    cache = ShadowCache()
    cache.end("a", 60, 100)
    assert cache.start("a", 50, 100) == 50
    cache.end("a", 50, 100)
    assert cache.start("a", 90, 100) == 50


def test_parallel_calls_of_a_session_count_once() -> None:
    cache = ShadowCache()
    cache.start("a", 60, 100)
    assert cache.start("a", 70, 100) == 60
    assert cache.in_flight_tokens == 70
    assert cache.start("a", 40, 100) == 40
    cache.end("a", 75, 100)
    assert (cache.in_flight_tokens, cache.idle_tokens) == (0, 75)


def test_unknown_pool_evicts_nothing_until_the_bound_on_entries() -> None:
    cache = ShadowCache()
    for number in range(70_000):
        cache.end(number, 1, None)
    assert cache.idle_tokens == 65_536
    assert cache.resident_tokens(0) == 0
    assert cache.resident_tokens(69_999) == 1


def test_clear_forgets_idle_chains_but_not_running_calls() -> None:
    cache = ShadowCache()
    cache.end("a", 60, 100)
    cache.start("b", 10, 100)
    cache.clear()
    assert (cache.idle_tokens, cache.in_flight_tokens) == (0, 10)
    cache.check()


operations = st.lists(
    st.tuples(st.sampled_from(["start", "end"]), st.integers(0, 4), st.integers(0, 120)),
    max_size=60,
)


@given(operations, st.integers(0, 200))
def test_shadow_agrees_with_a_naive_lru_of_tokens(
    steps: list[tuple[str, int, int]], pool: int
) -> None:
    cache = ShadowCache()
    idle: list[tuple[int, int]] = []  # (session, one entry per token block), oldest first
    running: dict[int, int] = {}
    for what, key, tokens in steps:
        if what == "start" and key not in running:
            found = cache.start(key, tokens, pool)
            mine = sum(size for owner, size in idle if owner == key)
            assert found == min(mine, tokens)
            idle = [entry for entry in idle if entry[0] != key]
            running[key] = tokens
        elif what == "end":
            cache.end(key, tokens, pool)
            running.pop(key, None)
            idle = [entry for entry in idle if entry[0] != key]
            if tokens:
                idle.append((key, tokens))
        excess = sum(size for _, size in idle) + sum(running.values()) - pool
        while excess > 0 and idle:
            owner, size = idle[0]
            idle[0] = (owner, size - 1)
            excess -= 1
            if idle[0][1] == 0:
                idle.pop(0)
        cache.check()
        for owner in range(5):
            expected = running.get(owner) or sum(s for o, s in idle if o == owner)
            assert cache.resident_tokens(owner) == expected
