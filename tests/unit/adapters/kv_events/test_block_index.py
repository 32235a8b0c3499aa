"""What the index says of sessions, against a simple model that keeps whole chains."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_coordinator.adapters.kv_events import index as index_module
from tao_coordinator.adapters.kv_events.index import BlockIndex
from tao_coordinator.adapters.kv_events.wire import AllCleared, BlocksRemoved, BlocksStored

SIZE = 16


def store(
    index: BlockIndex, *hashes: int, parent: int | None = None, session: str | None = "s"
) -> None:
    index.apply(BlocksStored(hashes, parent, SIZE, session))


def remove(index: BlockIndex, *hashes: int) -> None:
    index.apply(BlocksRemoved(hashes))


def test_chain_is_as_long_as_its_blocks() -> None:
    index = BlockIndex()
    store(index, 1, 2, 3)
    assert index.tokens("s") == 48
    store(index, 4, parent=3)
    assert index.tokens("s") == 64
    assert index.take_changes() == {"s": 64}
    assert index.take_changes() == {}


def test_chain_is_evicted_from_its_end() -> None:
    index = BlockIndex()
    store(index, 1, 2, 3)
    remove(index, 3)
    assert index.tokens("s") == 32
    remove(index, 2, 1)
    assert index.tokens("s") == 0
    assert index.num_blocks == 0


def test_what_lies_behind_a_hole_does_not_count() -> None:
    index = BlockIndex()
    store(index, 1, 2, 3, 4)
    store(index, 9, parent=1, session="other")
    remove(index, 2)
    assert index.tokens("s") == 16
    assert index.tokens("other") == 32
    store(index, 2, 3, 4, parent=1)
    assert index.tokens("s") == 64


def test_sessions_share_the_start_of_their_prompts() -> None:
    index = BlockIndex()
    store(index, 1, 2, session="a")
    store(index, 3, parent=2, session="b")
    assert (index.tokens("a"), index.tokens("b")) == (32, 48)
    remove(index, 3)
    assert (index.tokens("a"), index.tokens("b")) == (32, 32)


def test_chain_whose_start_nobody_saw_is_unknown() -> None:
    index = BlockIndex()
    store(index, 5, 6, parent=4)
    assert index.tokens("s") is None
    remove(index, 6)
    assert index.tokens("s") is None
    remove(index, 5)
    assert index.tokens("s") is None


def test_start_that_is_seen_later_makes_the_rest_known() -> None:
    index = BlockIndex()
    store(index, 5, parent=4)
    store(index, 3, 4, 5, session=None)
    assert index.tokens("s") == 48


def test_rewritten_prompt_is_a_new_chain() -> None:
    index = BlockIndex()
    store(index, 1, 2, 3)
    store(index, 7, parent=1)
    assert index.tokens("s") == 32


def test_clearing_tells_every_session() -> None:
    index = BlockIndex()
    store(index, 1)
    index.take_changes()
    index.apply(AllCleared())
    assert index.was_cleared
    assert index.take_changes() == {"s": None}
    assert not index.was_cleared


def test_engine_that_names_no_session_says_nothing_of_any() -> None:
    index = BlockIndex()
    store(index, 1, session=None)
    assert index.take_changes() == {}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "SESSIONS_MAX", 3)
    monkeypatch.setattr(index_module, "BLOCKS_MAX", 10)
    index = BlockIndex()
    for n in range(6):
        store(index, n, session=f"s{n}")
    assert [index.tokens(f"s{n}") for n in range(6)] == [None] * 3 + [16] * 3
    store(index, *range(100, 111))
    assert index.num_blocks == 0
    assert index.tokens("s5") is None


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 4), st.booleans()), max_size=30
    )
)
def test_agrees_with_whole_chains(steps: list[tuple[str, int, bool]]) -> None:
    """Sessions grow by blocks of their own, or lose some from their end."""
    index = BlockIndex()
    chains: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    started: set[str] = set()
    fresh = iter(range(1, 10_000))
    for session, number, grows in steps:
        chain = chains[session]
        if grows:
            new = [next(fresh) for _ in range(number)]
            store(index, *new, parent=chain[-1] if chain else None, session=session)
            chain += new
            started.add(session)
        else:
            for gone in reversed(chain[-number:]):
                remove(index, gone)
            del chain[-number:]
    for session, chain in chains.items():
        assert index.tokens(session) == (SIZE * len(chain) if session in started else None)
