"""From messages to text, from text to tokens and block hashes. No tokenizer: lengths only.

The rendering stands for a chat template. It holds what decides about cache hits (tool schemas,
roles, texts, names and arguments of tool calls) and leaves out what clients reorder, rename or drop
on the way back (call ids, key order, `null` against an empty text).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Final

END_OF_MESSAGE: Final = "\n"
REPLY_HEADER: Final = "a:"
"""Opens the reply, as a template's generation prompt does: it belongs to the prompt."""

_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class RenderedCall:
    """A tool call as it is rendered: name and arguments in canonical JSON."""

    name: str
    arguments: str

    @property
    def text(self) -> str:
        """Its part of the rendering."""
        return f"{self.name}{self.arguments}"


@dataclass(frozen=True, slots=True)
class RenderedMessage:
    """What counts of one message of a chat."""

    role: str
    content: str
    tool_calls: tuple[RenderedCall, ...] = ()

    @property
    def text(self) -> str:
        """The message as part of a prompt; an assistant's is its header and then its reply."""
        return f"{self.role[:1]}:{reply_text(self.content, self.tool_calls)}"


def canonical_json(value: object) -> str:
    """Return compact JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_arguments(arguments: str) -> str:
    """Return a tool call's arguments in canonical JSON; unchanged where they are no JSON."""
    try:
        return canonical_json(json.loads(arguments))
    except ValueError:
        return arguments


def reply_text(content: str, tool_calls: Iterable[RenderedCall]) -> str:
    """Return what the model generates for a reply: content, calls, end."""
    return content + "".join(call.text for call in tool_calls) + END_OF_MESSAGE


def prompt_text(tools: Sequence[object], messages: Iterable[RenderedMessage]) -> str:
    """Return the prompt: tool schemas, then the messages, then the header of the reply."""
    schemas = canonical_json(tools) + END_OF_MESSAGE if tools else ""
    return schemas + "".join(message.text for message in messages) + REPLY_HEADER


class TokenRuler:
    """Measures text in tokens of a fixed length and hashes it in blocks of tokens.

    Args:
        chars_per_token: Characters of one token; below 1 a short text stands for a long context.
        block_size: Tokens per KV block.
    """

    def __init__(self, chars_per_token: Fraction, block_size: int) -> None:
        if chars_per_token <= 0:
            raise ValueError("chars_per_token must be above 0")
        self._chars = chars_per_token.numerator
        self._tokens = chars_per_token.denominator
        self._block_size = block_size

    def tokens_in(self, num_chars: int) -> int:
        """Return how many whole tokens a text of `num_chars` characters has."""
        return num_chars * self._tokens // self._chars

    def chars_of(self, num_tokens: int) -> int:
        """Return the fewest characters that hold `num_tokens` tokens."""
        return -(-num_tokens * self._chars // self._tokens)

    def pad(self, text: str) -> str:
        """Return `text`, made long enough for one token."""
        return text.ljust(self.chars_of(1))

    def block_hashes(self, text: str, num_tokens: int) -> tuple[int, ...]:
        """Return one hash per full block of the first `num_tokens` tokens."""
        hashes: list[int] = []
        digest = b""
        start = 0
        for block in range(1, num_tokens // self._block_size + 1):
            stop = self.chars_of(block * self._block_size)
            part = text[start:stop].encode("utf-8", "surrogatepass")
            digest = blake2b(digest + part, digest_size=_DIGEST_BYTES).digest()
            hashes.append(int.from_bytes(digest))
            start = stop
        return tuple(hashes)
