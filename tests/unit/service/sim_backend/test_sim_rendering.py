from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.service.sim_backend.rendering import (
    RenderedCall,
    RenderedMessage,
    TokenRuler,
    canonical_arguments,
    prompt_text,
    reply_text,
)

RATIOS = st.sampled_from(
    [Fraction(4), Fraction(1), Fraction(7, 2), Fraction(1, 20), Fraction(3, 7)]
)


def test_next_prompt_continues_prompt_and_reply() -> None:
    messages = [RenderedMessage("system", "Be brief."), RenderedMessage("user", "Hi")]
    call = RenderedCall("bash", canonical_arguments('{"b": 1, "a": "x"}'))
    first = prompt_text([{"name": "bash"}], messages)
    reply = reply_text("Sure.", [call])
    echo = RenderedMessage("assistant", "Sure.", (call,))
    second = prompt_text([{"name": "bash"}], [*messages, echo, RenderedMessage("tool", "output")])
    assert second.startswith(first + reply)
    assert call.text == 'bash{"a":"x","b":1}'


def test_tool_schemas_come_first_and_ignore_key_order() -> None:
    message = [RenderedMessage("user", "Hi")]
    one = prompt_text([{"name": "bash", "description": "d"}], message)
    two = prompt_text([{"description": "d", "name": "bash"}], message)
    assert one == two
    assert one.endswith(prompt_text([], message))
    assert one != prompt_text([], message)


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    assert canonical_arguments("{broken") == "{broken"


def test_ruler_needs_a_positive_ratio() -> None:
    with pytest.raises(ValueError, match="above 0"):
        TokenRuler(Fraction(0), 16)


@given(ratio=RATIOS, tokens=st.integers(0, 10_000))
def test_chars_of_tokens_are_the_fewest_that_hold_them(ratio: Fraction, tokens: int) -> None:
    ruler = TokenRuler(ratio, 16)
    chars = ruler.chars_of(tokens)
    assert ruler.tokens_in(chars) >= tokens
    assert chars == 0 or ruler.tokens_in(chars - 1) < tokens


@given(
    ratio=RATIOS,
    block_size=st.integers(1, 20),
    common=st.text("abc", max_size=80),
    one=st.text("de", max_size=60),
    two=st.text("fg", max_size=60),
)
def test_hashes_agree_exactly_on_the_blocks_of_the_common_text(
    ratio: Fraction, block_size: int, common: str, one: str, two: str
) -> None:
    ruler = TokenRuler(ratio, block_size)

    def hashes(text: str) -> tuple[int, ...]:
        return ruler.block_hashes(text, ruler.tokens_in(len(text)))

    first, second = hashes(common + one), hashes(common + two)
    assert len(first) == ruler.tokens_in(len(common + one)) // block_size
    shared = ruler.tokens_in(len(common)) // block_size
    assert first[:shared] == second[:shared]
    if one and two:
        # Everything from the first differing character on is different.
        differing = next(
            (i for i in range(shared, min(len(first), len(second))) if first[i] != second[i]), None
        )
        if differing is not None:
            assert not set(first[differing:]) & set(second[differing:])
        longer = ruler.chars_of((shared + 1) * block_size)
        if ratio >= 1 and len(common + one) >= longer and len(common + two) >= longer:
            assert differing == shared


def test_short_text_is_padded_to_one_token() -> None:
    ruler = TokenRuler(Fraction(4), 16)
    assert ruler.tokens_in(len(ruler.pad("a"))) == 1
    assert ruler.pad("long enough") == "long enough"
