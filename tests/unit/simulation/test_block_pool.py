import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from unit.simulation.naive_engine import NaivePool

from tao_coordinator.simulation.block_pool import BlockPool, Holding

NUM_BLOCKS = 24


def chain(*path: int) -> tuple[int, ...]:
    """Hashes of a chain that turns off at each step of `path`: equal prefixes, equal hashes."""
    value = 7
    values: list[int] = []
    for step in path:
        value = hash((value, step))
        values.append(value)
    return tuple(values)


def test_pool_needs_a_block() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(0)


def test_released_blocks_stay_cached_and_count_as_free() -> None:
    pool = BlockPool(10)
    blocks = chain(1, 1, 1)
    holding = pool.admit(blocks, 3, 4)
    assert holding is not None
    assert holding.hit_blocks == 0
    assert pool.match(blocks, 3) == 0
    pool.publish(holding, 3)
    assert pool.match(blocks, 3) == 3
    assert (pool.num_referenced, pool.num_free, pool.num_cached_free) == (4, 6, 0)
    pool.release(holding, 4)
    assert (pool.num_referenced, pool.num_free, pool.num_cached_free) == (0, 10, 3)
    assert pool.match(blocks, 3) == 3
    pool.check()


def test_tail_of_a_released_chain_goes_first() -> None:
    pool = BlockPool(6)
    blocks = chain(1, 1, 1, 1)
    first = pool.admit(blocks, 4, 4)
    assert first is not None
    pool.publish(first, 4)
    pool.release(first, 4)
    for left in (3, 2, 1, 0):
        pool.take(1 if left < 3 else 3)  # two blank blocks, then one cached block each time
        assert pool.match(blocks, 4) == left
    pool.check()


def test_the_chain_unused_longest_goes_first() -> None:
    pool = BlockPool(6)
    older, newer = chain(1, 1, 1), chain(2, 2, 2)
    for blocks in (older, newer):
        holding = pool.admit(blocks, 3, 3)
        assert holding is not None
        pool.publish(holding, 3)
        pool.release(holding, 3)
    again = pool.admit(older, 3, 3)
    assert again is not None
    assert again.hit_blocks == 3
    pool.release(again, 3)
    pool.take(3)
    assert (pool.match(older, 3), pool.match(newer, 3)) == (3, 0)


def test_who_loses_a_block_may_lose_all_down_to_the_fork() -> None:
    """Two idle sessions behind a shared prompt: the older one goes at once, down to the prompt."""
    pool = BlockPool(10, evicts_whole=True)
    older, newer = chain(0, 0, 1, 1, 1), chain(0, 0, 2, 2, 2)
    for blocks in (older, newer):
        holding = pool.admit(blocks, 5, 5)
        assert holding is not None
        pool.publish(holding, 5)
        pool.release(holding, 5)
    assert (pool.match(older, 5), pool.match(newer, 5), pool.num_cached_free) == (5, 5, 8)
    pool.take(3)  # two are blank
    assert (pool.match(older, 5), pool.match(newer, 5)) == (2, 5)
    assert (pool.num_free, pool.num_cached_free, pool.num_referenced) == (7, 5, 3)
    pool.check()
    pool.take(3)  # two are blank again
    assert (pool.match(newer, 5), pool.num_cached_free) == (2, 2)
    pool.take(4)
    assert (pool.match(newer, 5), pool.num_free) == (0, 0)
    pool.check()


def test_fork_stays_where_it_was_when_one_of_its_branches_is_gone() -> None:
    """What both had in common goes as a unit of its own, later."""
    pool = BlockPool(20, evicts_whole=True)
    long, short = chain(0, 0, 0, 0, 0, 1, 1, 1), chain(0, 0, 0, 0, 0, 2, 2)
    for blocks in (short, long):
        holding = pool.admit(blocks, len(blocks), len(blocks))
        assert holding is not None
        pool.publish(holding, len(blocks))
        pool.release(holding, len(blocks))
    for left in ((8, 5), (5, 5), (0, 0)):
        pool.take(pool.num_free - pool.num_cached_free + 1)  # all that is blank, and one
        assert (pool.match(long, 8), pool.match(short, 7)) == left
        pool.check()


def test_admission_counts_the_room_of_its_own_unreferenced_hits() -> None:
    pool = BlockPool(4)
    blocks = chain(1, 1, 1)
    holding = pool.admit(blocks, 3, 3)
    assert holding is not None
    pool.publish(holding, 3)
    pool.release(holding, 3)
    assert pool.admit(blocks, 3, 5) is None  # three hits and two more: one too many
    assert pool.num_referenced == 0
    assert pool.admit(blocks, 3, 4) is not None
    pool.check()


def test_shared_blocks_count_once() -> None:
    pool = BlockPool(10)
    one, two = chain(1, 1, 2), chain(1, 1, 3)
    first = pool.admit(one, 2, 3)
    assert first is not None
    pool.publish(first, 3)
    second = pool.admit(two, 3, 3)
    assert second is not None
    assert second.hit_blocks == 2
    assert pool.num_referenced == 4
    pool.release(first, 3)
    assert pool.num_referenced == 3
    pool.release(second, 3)
    assert pool.num_referenced == 0
    pool.check()


class PoolMachine(RuleBasedStateMachine):
    """The pool by segments beside the pool by blocks: same answers, same order of eviction."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.naive = NaivePool(NUM_BLOCKS)
        self.held: list[tuple[Holding, list[int], tuple[int, ...]]] = []
        self.seen: set[tuple[int, ...]] = set()

    @rule(
        path=st.lists(st.integers(0, 2), min_size=1, max_size=9),
        straight=st.integers(0, 6),
        extra=st.integers(0, 2),
        limit=st.integers(0, 20),
    )
    def admit(self, path: list[int], straight: int, extra: int, limit: int) -> None:
        blocks = chain(*path, *[0] * straight)
        self.seen.add(blocks)
        limit = min(limit, len(blocks))
        needed = len(blocks) + extra
        holding = self.pool.admit(blocks, limit, needed)
        ids = self.naive.admit(blocks, limit, needed)
        assert (holding is None) == (ids is None)
        if holding is not None and ids is not None:
            assert holding.hit_blocks == sum(self.naive.hash_of[i] is not None for i in ids)
            self.held.append((holding, ids, blocks))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        holding, ids, blocks = data.draw(st.sampled_from(self.held))
        count = data.draw(st.integers(0, len(blocks)))
        if count > holding.hit_blocks:
            self.pool.publish(holding, count)
            self.naive.publish(ids, blocks, count)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), num_blocks=st.integers(1, 3))
    def grow(self, data: st.DataObject, num_blocks: int) -> None:
        _, ids, _ = data.draw(st.sampled_from(self.held))
        if num_blocks <= self.pool.num_free:
            self.pool.take(num_blocks)
            ids.extend(self.naive.take(num_blocks))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        holding, ids, _ = self.held.pop(index)
        self.pool.release(holding, len(ids))
        self.naive.release(ids)

    @invariant()
    def both_agree(self) -> None:
        self.pool.check()
        assert self.pool.num_referenced == self.naive.num_referenced
        assert self.pool.num_free == len(self.naive.queue)
        for blocks in self.seen:
            assert self.pool.match(blocks, len(blocks)) == self.naive.match(blocks, len(blocks))

    def teardown(self) -> None:
        for holding, ids, _ in self.held:
            self.pool.release(holding, len(ids))
        assert self.pool.num_referenced == 0
        assert self.pool.num_free == NUM_BLOCKS
        self.pool.check()


PoolMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestPoolAgainstBlocks = PoolMachine.TestCase


def test_dropped_tail_is_blank_and_what_others_build_on_stays() -> None:
    pool = BlockPool(20)
    chains = [(1, 2, 3, 10, 11), (1, 2, 3, 20, 21, 22)]
    for chain in chains:
        holding = pool.admit(chain, 0, len(chain))
        assert holding is not None
        pool.publish(holding, len(chain))
        pool.release(holding, len(chain))
    assert pool.num_cached_free == 8
    assert pool.drop(chains[0]) == 2
    pool.check()
    assert (pool.match(chains[0], 5), pool.match(chains[1], 6)) == (3, 6)
    assert pool.drop(chains[1]) == 6  # nobody builds on the common part any more
    pool.check()
    assert (pool.num_cached_free, pool.num_free) == (0, 20)


def test_held_blocks_and_longer_chains_are_not_dropped() -> None:
    pool = BlockPool(20)
    chain = (1, 2, 3, 4)
    holding = pool.admit(chain, 0, 4)
    assert holding is not None
    pool.publish(holding, 4)
    assert pool.drop(chain) == 0
    pool.release(holding, 4)
    assert pool.drop((1, 2)) == 0
    assert pool.drop(()) == 0
    pool.check()
