from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.simulation.decode_batch import DecodeBatch
from tao_coordinator.simulation.request import LiveRequest, SimRequest


def member(prompt_tokens: int, output_tokens: int) -> LiveRequest:
    live = LiveRequest(
        SimRequest(request_id="r", prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    )
    live.computed_tokens = prompt_tokens
    live.produced_tokens = 1
    return live


@given(
    block_size=st.integers(1, 9),
    prompts=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    before=st.integers(0, 30),
    steps=st.integers(0, 40),
    free=st.integers(0, 40),
)
def test_blocks_needed_equals_a_count_per_sequence(
    block_size: int, prompts: list[int], before: int, steps: int, free: int
) -> None:
    batch = DecodeBatch(block_size)
    for prompt in prompts:
        batch.join(member(prompt, 1000))
    batch.advance(before)

    def blocks(tokens: int) -> int:
        return -(-tokens // block_size)

    def expected(num_steps: int) -> int:
        return sum(blocks(p + before + num_steps) - blocks(p + before) for p in prompts)

    assert batch.blocks_needed(steps) == expected(steps)
    assert batch.context_tokens == sum(prompts) + before * len(prompts)
    fitting = [count for count in range(steps + 1) if expected(count) <= free]
    assert batch.steps_that_fit(steps, free) == max(fitting)


def test_starts_block_when_the_last_block_is_full() -> None:
    batch = DecodeBatch(4)
    full, partial = member(8, 9), member(6, 9)
    batch.join(full)
    batch.join(partial)
    assert (batch.starts_block(full), batch.starts_block(partial)) == (True, False)
    batch.advance(2)
    assert (batch.starts_block(full), batch.starts_block(partial)) == (False, True)


def test_members_end_in_order_and_leavers_are_forgotten() -> None:
    batch = DecodeBatch(16)
    short, long, gone = member(10, 4), member(10, 9), member(10, 3)
    for live in (long, short, gone):
        batch.join(live)
    batch.advance(1)
    batch.leave(gone)
    assert (gone.produced_tokens, gone.computed_tokens) == (2, 11)
    assert batch.steps_to_next_end() == 2
    batch.advance(2)
    assert batch.pop_finished() == [short]
    assert (short.produced_tokens, short.computed_tokens) == (4, 13)
    assert batch.produced(long) == 4
    batch.join(gone)
    assert batch.steps_to_next_end() == 1
    batch.advance(1)
    assert batch.pop_finished() == [gone]
    assert batch.num_sequences == 1
