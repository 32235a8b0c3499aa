"""How many tokens a prompt will have, from its characters and what was counted before.

The last prompt of the session as the engine counted it, and what was added to it at the session's
own ratio; the SDK's rule. Bounded: the sessions that were silent longest are forgotten.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

SESSIONS_MAX: Final = 65_536
CHARS_PER_TOKEN: Final = 4.0
"""Until some reply has told better."""
_GAIN: Final = 0.2

SizeKey = tuple[str, str, str]
"""Session id, agent, model: what has one growing prompt."""


class _Size(NamedTuple):
    chars: int
    tokens: int


class PromptSizes:
    """Estimates prompts of all relayed sessions."""

    def __init__(self) -> None:
        self._last: OrderedDict[SizeKey, _Size] = OrderedDict()
        self._chars_per_token = CHARS_PER_TOKEN

    def estimate_tokens(self, key: SizeKey, input_chars: int) -> int:
        """Prompt tokens of a coming turn."""
        last = self._last.get(key)
        if last is None:
            return max(1, round(input_chars / self._chars_per_token))
        ratio = last.chars / last.tokens
        added_chars = input_chars - last.chars
        if added_chars >= 0:
            return last.tokens + round(added_chars / ratio)
        # It has shrunk (compaction): estimated anew.
        return max(1, round(input_chars / ratio))

    def learn(
        self, key: SizeKey, input_chars: int, input_tokens: int, *, is_last: bool = False
    ) -> None:
        """The engine has counted a prompt; `is_last`: no other of its session will come."""
        if input_chars <= 0 or input_tokens <= 0:
            return
        if not is_last:
            self._last[key] = _Size(input_chars, input_tokens)
            self._last.move_to_end(key)
            if len(self._last) > SESSIONS_MAX:
                self._last.popitem(last=False)
        self._chars_per_token += _GAIN * (input_chars / input_tokens - self._chars_per_token)
