"""What the modelled engine says: scripted or filler text of exactly the wanted number of tokens."""

import math
from dataclasses import dataclass
from hashlib import blake2b
from statistics import NormalDist
from typing import Final, Literal

from tao_coordinator.service.sim_backend.rendering import RenderedCall, TokenRuler, reply_text
from tao_coordinator.service.sim_backend.scripts import ScriptTurn

TYPICAL_TOKENS: Final = 144
"""Median length of a reply without a script: that of recorded coding agents."""
_LENGTHS = NormalDist(math.log(TYPICAL_TOKENS), 0.8)
_SHORTEST, _LONGEST = 8, 2048

_WORDS: Final = (
    *("after", "all", "branch", "build", "call", "case", "change", "check", "code", "commit"),
    *("data", "default", "edit", "error", "even", "fail", "file", "first", "fix", "flag"),
    *("function", "here", "import", "index", "input", "issue", "item", "just", "keep", "key"),
    *("last", "line", "list", "local", "look", "loop", "main", "make", "match", "merge"),
    *("method", "module", "name", "need", "next", "now", "object", "only", "open", "option"),
    *("order", "output", "parse", "pass", "patch", "path", "point", "print", "query", "read"),
    *("return", "right", "rule", "run", "same", "scope", "see", "set", "shell", "show"),
    *("size", "source", "state", "still", "string", "suite", "table", "test", "text", "then"),
    *("tree", "type", "update", "use", "value", "version", "wait", "walk", "warn", "while"),
)

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A tool call of a reply, with its id."""

    call_id: str
    call: RenderedCall


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply, known in full before its first token is due."""

    content: str
    tool_calls: tuple[PlannedCall, ...]
    finish_reason: FinishReason
    output_tokens: int
    text: str
    """Its rendering: what follows the prompt in the cache."""


def plan_reply(
    prompt: str, turn: ScriptTurn | None, tokens_max: int, ruler: TokenRuler, *, chat: bool = True
) -> Reply:
    """Decide on the reply to a prompt; equal prompts get equal replies.

    Args:
        prompt: The rendered prompt, at least one token long.
        turn: The scripted reply; `None` for filler of a length drawn from the prompt's digest.
        tokens_max: The most tokens that the reply may have, at least 1.
        ruler: Measures tokens.
        chat: Whether the reply ends with an end-of-message marker, as a chat template's does.
    """
    digest = blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    seed = int.from_bytes(digest[:8])
    if turn is None:
        turn = ScriptTurn("", (), _draw_length(seed))
    calls = turn.tool_calls
    ending = reply_text("", calls) if chat else ""
    prompt_tokens = ruler.tokens_in(len(prompt))

    def tokens_with(num_chars: int) -> int:
        """Tokens that `num_chars` characters add behind the prompt."""
        return ruler.tokens_in(len(prompt) + num_chars) - prompt_tokens

    def chars_for(num_tokens: int) -> int:
        """The fewest characters that add so many tokens."""
        return ruler.chars_of(prompt_tokens + num_tokens) - len(prompt)

    if turn.output_tokens is None:
        num_chars = max(len(turn.text) + len(ending), chars_for(1))
    else:
        # Tool calls are never cut to a scripted length: they would be broken.
        num_chars = max(chars_for(turn.output_tokens), len(ending))
    room = chars_for(tokens_max)
    if num_chars > room and tokens_with(num_chars) > tokens_max:
        content = _fit(turn.text, room, seed)
        return Reply(content, (), "length", tokens_max, content)
    content = _fit(turn.text, num_chars - len(ending), seed)
    planned = tuple(
        PlannedCall(f"call_{_call_id(digest, index)}", call) for index, call in enumerate(calls)
    )
    return Reply(
        content,
        planned,
        "tool_calls" if planned else "stop",
        min(tokens_with(num_chars), tokens_max),
        content + ending,
    )


def _draw_length(seed: int) -> int:
    quantile = (seed + 0.5) / 2**64
    tokens = math.exp(_LENGTHS.inv_cdf(min(max(quantile, 1e-9), 1 - 1e-9)))
    return min(max(round(tokens), _SHORTEST), _LONGEST)


def _call_id(prompt_digest: bytes, index: int) -> str:
    return blake2b(prompt_digest + index.to_bytes(2), digest_size=12).hexdigest()


def _fit(text: str, num_chars: int, seed: int) -> str:
    """Cut `text` to `num_chars` characters, or continue it with filler words up to there."""
    pieces = [text] if text else []
    length = len(text) if text else -1  # no blank before the first word
    while length < num_chars:
        # A linear congruential generator (Knuth's MMIX): the same words for the same prompt.
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        word = _WORDS[(seed >> 33) % len(_WORDS)]
        pieces.append(word)
        length += len(word) + 1
    fitted = " ".join(pieces)[:num_chars]
    # Clients may strip a text on its way back; nothing here is strippable.
    return fitted[:-1] + "." if fitted[-1:].isspace() else fitted
