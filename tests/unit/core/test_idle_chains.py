"""Idle chains against a plain list."""

from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.core.idle_chains import IdleChains

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "take", "cut"]), st.integers(0, 9), st.integers(1, 50)
    ),
    max_size=400,
)


@given(steps)
def test_chains_agree_with_a_plain_list(steps: list[Step]) -> None:
    chains = IdleChains()
    plain: list[tuple[int, int]] = []
    for what, key, tokens in steps:
        mine = [size for owner, size in plain if owner == key]
        if what == "take" or (what == "put" and mine):
            assert chains.take(key) == sum(mine)
            plain = [entry for entry in plain if entry[0] != key]
        if what == "put":
            chains.put(key, tokens)
            plain.append((key, tokens))
        if what == "cut" and plain:
            owner, size = plain.pop(0)
            assert chains.cut_oldest(tokens) == min(size, tokens)
            if size > tokens:
                plain.insert(0, (owner, size - tokens))
        chains.check()
        assert len(chains) == len(plain)
        assert chains.total_tokens == sum(size for _, size in plain)
        for place, (owner, size) in enumerate(plain):
            assert chains.tokens(owner) == size
            assert chains.newer_tokens(owner) == sum(size for _, size in plain[place + 1 :])


def test_memory_follows_what_is_there_however_many_came_and_went() -> None:
    chains = IdleChains()
    for number in range(10_000):
        chains.put(number, 1)
        if number >= 10:
            chains.take(number - 10)
    assert len(chains) == 10
    assert len(chains._tree) < 200
    chains.clear()
    chains.check()
    assert (len(chains), chains.total_tokens, chains.tokens(9_999)) == (0, 0, 0)
