"""Estimates of prompts: the SDK's rule, bounded."""

import pytest

from tao_coordinator.service.relay import prompt_sizes
from tao_coordinator.service.relay.prompt_sizes import PromptSizes

KEY = ("s", "", "m")


def test_first_prompt_is_estimated_by_everybodys_ratio() -> None:
    sizes = PromptSizes()
    assert sizes.estimate_tokens(KEY, 4_000) == 1_000
    assert sizes.estimate_tokens(KEY, 0) == 1
    # 20 % of the way from 4 to 2 characters per token.
    sizes.learn(("other", "", "m"), 2_000, 1_000)
    assert sizes.estimate_tokens(KEY, 3_600) == 1_000


def test_later_prompt_is_the_last_and_what_was_added() -> None:
    sizes = PromptSizes()
    sizes.learn(KEY, 3_000, 1_000)
    assert sizes.estimate_tokens(KEY, 3_000) == 1_000
    assert sizes.estimate_tokens(KEY, 3_300) == 1_100
    # Shrunk: by its own ratio.
    assert sizes.estimate_tokens(KEY, 300) == 100


def test_nonsense_teaches_nothing() -> None:
    sizes = PromptSizes()
    for chars, tokens in ((0, 5), (5, 0), (-1, 5)):
        sizes.learn(KEY, chars, tokens)
    assert sizes.estimate_tokens(KEY, 4_000) == 1_000


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_sizes, "SESSIONS_MAX", 2)
    sizes = PromptSizes()
    for number in range(5):
        sizes.learn((f"s{number}", "", ""), 4_000, 2_000)
    assert sizes.estimate_tokens(("s4", "", ""), 4_000) == 2_000
    # Forgotten: only everybody's ratio is left.
    assert sizes.estimate_tokens(("s0", "", ""), 4_000) < 2_000
    sizes.learn(("s5", "", ""), 4_000, 2_000, is_last=True)
    assert sizes.estimate_tokens(("s3", "", ""), 4_000) == 2_000
