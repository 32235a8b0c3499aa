from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.service.sim_backend.rendering import RenderedCall, TokenRuler
from tao_coordinator.service.sim_backend.replies import TYPICAL_TOKENS, plan_reply
from tao_coordinator.service.sim_backend.scripts import ScriptTurn

FOUR = TokenRuler(Fraction(4), 16)
DENSE = TokenRuler(Fraction(1, 20), 16)
CALL = RenderedCall("bash", '{"command":"ls"}')
RULERS = st.sampled_from([FOUR, DENSE, TokenRuler(Fraction(5, 3), 16)])


@given(
    ruler=RULERS,
    prompt=st.text("abc ", min_size=4, max_size=50),
    text=st.text("xyz", max_size=40),
    num_calls=st.integers(0, 2),
    output_tokens=st.none() | st.integers(1, 300),
    tokens_max=st.integers(1, 400),
    chat=st.booleans(),
)
def test_reply_has_the_tokens_that_it_says(
    ruler: TokenRuler,
    prompt: str,
    text: str,
    num_calls: int,
    output_tokens: int | None,
    tokens_max: int,
    chat: bool,
) -> None:
    prompt = ruler.pad(prompt)
    turn = ScriptTurn(text, (CALL,) * num_calls, output_tokens)
    reply = plan_reply(prompt, turn, tokens_max, ruler, chat=chat)
    before = ruler.tokens_in(len(prompt))
    after = ruler.tokens_in(len(prompt + reply.text))
    assert 1 <= reply.output_tokens <= tokens_max
    # With many tokens in a character the limit may fall inside of one.
    assert after - before >= reply.output_tokens
    assert after - before - reply.output_tokens < max(1, ruler.tokens_in(1))
    assert reply.text.startswith(reply.content)
    assert not reply.content[-1:].isspace()
    if reply.finish_reason == "length":
        assert reply.output_tokens == tokens_max
        assert not reply.tool_calls
    else:
        assert [planned.call for planned in reply.tool_calls] == [CALL] * num_calls
        assert reply.finish_reason == ("tool_calls" if num_calls else "stop")


def test_scripted_length_is_met_with_filler() -> None:
    reply = plan_reply("p" * 400, ScriptTurn("Look.", (CALL,), 120), 1000, FOUR)
    assert reply.output_tokens == 120
    assert reply.content.startswith("Look. ")
    assert reply.finish_reason == "tool_calls"
    assert reply.text == f"{reply.content}{CALL.text}\n"


def test_long_text_is_cut_to_the_scripted_length() -> None:
    reply = plan_reply("p" * 400, ScriptTurn("word " * 100, (), 10), 1000, FOUR)
    assert reply.output_tokens == 10
    assert reply.content == ("word " * 100)[:39]
    assert reply.finish_reason == "stop"


def test_tool_calls_are_not_cut_to_a_scripted_length() -> None:
    reply = plan_reply("p" * 400, ScriptTurn("Look.", (CALL,), 1), 1000, FOUR)
    assert reply.content == ""
    assert reply.output_tokens == len(f"{CALL.text}\n") // 4
    assert [planned.call for planned in reply.tool_calls] == [CALL]


def test_filler_ends_without_a_blank() -> None:
    replies = [plan_reply("p" * 400, ScriptTurn("", (), n), 1000, FOUR) for n in range(1, 60)]
    assert [len(reply.content) for reply in replies] == [4 * n - 1 for n in range(1, 60)]
    assert not any(reply.content[-1].isspace() for reply in replies)


def test_same_prompt_same_reply_and_other_prompt_other_ids() -> None:
    turn = ScriptTurn("", (CALL, CALL), 50)
    one = plan_reply("prompt one", turn, 1000, FOUR)
    assert one == plan_reply("prompt one", turn, 1000, FOUR)
    two = plan_reply("prompt two", turn, 1000, FOUR)
    ids = [planned.call_id for reply in (one, two) for planned in reply.tool_calls]
    assert len(set(ids)) == 4
    assert all(call_id.startswith("call_") for call_id in ids)
    assert one.content != two.content


def test_drawn_lengths_scatter_around_the_typical_one() -> None:
    lengths = sorted(
        plan_reply(f"prompt {n}", None, 100_000, FOUR).output_tokens for n in range(400)
    )
    assert 0.8 * TYPICAL_TOKENS < lengths[200] < 1.25 * TYPICAL_TOKENS
    assert lengths[40] < 80
    assert lengths[360] > 250
    assert lengths[0] >= 8
    assert lengths[-1] <= 2048
