"""Block hashes against a list of labelled tokens, cut into blocks."""

import random

from tao_coordinator.simulation.prompt_blocks import Families

SIZE = 16


def test_kept_blocks_keep_their_numbers_and_others_are_new() -> None:
    context = Families(SIZE).context("f", 0)
    first, reply = context.turn(0, 40, 30)
    assert (len(first), len(reply)) == (2, 2)  # 40 and 70 tokens: 2 and 4 full blocks
    second, _ = context.turn(70, 100, 1)
    assert second[:4] == first + reply
    assert len(set(second)) == 6
    third, _ = context.turn(35, 100, 1)
    assert third[:2] == second[:2]
    assert not set(third[2:]) & set(second)


def test_sessions_of_a_family_share_their_prefix_and_nothing_else() -> None:
    families = Families(SIZE)
    one, _ = families.context("a", 64).turn(0, 128, 1)
    two, _ = families.context("a", 64).turn(0, 128, 1)
    longer, _ = families.context("a", 96).turn(0, 128, 1)
    other, _ = families.context("b", 64).turn(0, 128, 1)
    assert one[:4] == two[:4] == longer[:4]
    assert not set(one[4:]) & set(two[4:])
    assert not set(one) & set(other)


def test_shared_prefix_survives_a_rewrite_and_a_short_prompt() -> None:
    context = Families(SIZE).context("a", 64)
    first, _ = context.turn(0, 160, 10)
    short, _ = context.turn(0, 32, 1)
    assert short == first[:2]
    again, _ = context.turn(0, 160, 1)
    assert again[:4] == first[:4]
    assert not set(again[4:]) & set(first[4:])


def test_random_contexts_agree_with_labelled_tokens() -> None:
    """Two blocks have the same number exactly if all tokens up to their end are the same."""
    chance = random.Random(5)
    context = Families(SIZE).context("f", 0)
    tokens: list[int] = []
    seen: dict[tuple[int, ...], int] = {}
    fresh = iter(range(10**6))
    for _ in range(60):
        # Only what is kept in whole blocks is the same: a block that is cut is written anew.
        kept = chance.randint(0, len(tokens))
        tokens = tokens[: kept // SIZE * SIZE]
        prompt = len(tokens) + chance.randint(1, 90)
        reply = chance.randint(1, 60)
        tokens += [next(fresh) for _ in range(prompt + reply - len(tokens))]
        blocks = sum(context.turn(kept, prompt, reply), ())
        for number, block in enumerate(blocks, start=1):
            assert seen.setdefault(tuple(tokens[: number * SIZE]), block) == block
    assert len(set(seen.values())) == len(seen)
