"""Reading `usage` in passing, from whole bodies and from event streams.

A stream passes event by event: what has come whole goes on at once, so that a stream that is cut
ends between two events, where an error can still be told. Only where the relay, and not the client,
asked for usage is that one chunk (`"choices": []`) taken out. Absent numbers stay `None`.

The rule is the SDK's (`tao_client`); the two packages may not import each other, and a test holds
them together. Here most chunks are passed by two searches for a word, without being parsed.
"""

import contextlib
import re
from dataclasses import dataclass
from typing import Final, cast

import orjson

from tao_client.semconv import TOKENS_MAX

LONGEST_BODY_BYTES: Final = 8 * 1024 * 1024
LONGEST_EVENT_BYTES: Final = 1024 * 1024

_EVENT = re.compile(rb".*?\n\r?\n", re.DOTALL)
_DATA = re.compile(rb"^data:[ \t]*([^\r\n]*)", re.MULTILINE)
_OPENING_TYPE = re.compile(
    rb'"type"\s*:\s*"(?:response\.(?:created|queued|in_progress)|message_start|ping)"'
)


@dataclass(frozen=True, slots=True)
class Usage:
    """What an engine counted. `None`: it did not say."""

    input_tokens: int | None = None
    """Prompt tokens, those from the cache included."""
    cached_tokens: int | None = None
    output_tokens: int | None = None

    def updated(self, newer: "Usage") -> "Usage":
        """This, with everything that `newer` says."""
        return Usage(
            self.input_tokens if newer.input_tokens is None else newer.input_tokens,
            self.cached_tokens if newer.cached_tokens is None else newer.cached_tokens,
            self.output_tokens if newer.output_tokens is None else newer.output_tokens,
        )


def read_usage(document: object) -> Usage:
    """The usage inside a reply or a stream's chunk: chat, completions, responses, messages."""
    reply = _mapping(document)
    usage = reply.get("usage")
    for envelope in ("response", "message"):
        usage = usage or _mapping(reply.get(envelope)).get("usage")
    counts = _mapping(usage)
    details = _mapping(counts.get("prompt_tokens_details") or counts.get("input_tokens_details"))
    cached_tokens = _count(details.get("cached_tokens"))
    input_tokens = _count(counts.get("prompt_tokens", counts.get("input_tokens")))
    if "cache_read_input_tokens" in counts:
        # The messages API counts the cached part of the prompt beside its `input_tokens`.
        cached_tokens = _count(counts["cache_read_input_tokens"])
        written_tokens = _count(counts.get("cache_creation_input_tokens"))
        if input_tokens is not None:
            input_tokens = _count(input_tokens + (cached_tokens or 0) + (written_tokens or 0))
    return Usage(
        input_tokens,
        cached_tokens,
        _count(counts.get("completion_tokens", counts.get("output_tokens"))),
    )


class BodyReader:
    """Reads a reply that comes as one JSON document."""

    __slots__ = ("_chunks", "_size_bytes", "has_token", "is_complete", "is_whole", "usage")

    def __init__(self) -> None:
        self.usage = Usage()
        self.has_token = False
        self.is_complete = False
        """A body is complete when it ends, and not before."""
        self.is_whole = False
        """A body that is cut cannot be ended with an error."""
        self._chunks: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> bytes:
        """Take note of a chunk; returns what the client shall see of it (all)."""
        self._size_bytes += len(chunk)
        if self._size_bytes <= LONGEST_BODY_BYTES:
            self._chunks.append(chunk)
        return chunk

    def end(self) -> bytes:
        """The body has ended; returns what was held back (nothing)."""
        if self._size_bytes <= LONGEST_BODY_BYTES:
            with contextlib.suppress(ValueError):  # no JSON: no usage
                self.usage = read_usage(orjson.loads(b"".join(self._chunks)))
        self._chunks.clear()
        return b""


class StreamReader:
    """Reads a reply that comes as server-sent events."""

    __slots__ = (
        "_is_blind", "_last_mark", "_tail", "_takes_usage_out", "has_token", "is_complete", "usage"
    )  # fmt: skip

    def __init__(self, *, takes_usage_out: bool, last_mark: bytes) -> None:
        """Start before the first byte.

        Args:
            takes_usage_out: The chunk that only tells usage is not the client's.
            last_mark: Bytes by which the stream's last event is known.
        """
        self.usage = Usage()
        self.has_token = False
        """More has come than what a stream opens with."""
        self.is_complete = False
        """The stream has said that it is over, though its end may take longer."""
        self._takes_usage_out = takes_usage_out
        self._last_mark = last_mark
        self._tail = bytearray()
        self._is_blind = False

    @property
    def is_whole(self) -> bool:
        """All that the client has seen are whole events: an error event may follow."""
        return not self._is_blind

    def feed(self, chunk: bytes) -> bytes:
        """Take note of a chunk; returns what the client shall see now."""
        if self._is_blind:
            return chunk
        tail = self._tail
        if not tail:
            end = _last_event_end(chunk, 0)
            if end == len(chunk):
                return self._pass(chunk)
            tail += chunk[end:]
            return self._pass(chunk[:end]) if end else self._check_length()
        seen_bytes = len(tail)
        tail += chunk
        end = _last_event_end(tail, max(0, seen_bytes - 2))
        if not end:
            return self._check_length()
        events = bytes(tail[:end])
        del tail[:end]
        return self._pass(events)

    def end(self) -> bytes:
        """The stream has ended; returns what was held back."""
        rest = bytes(self._tail)
        self._tail.clear()
        return self._pass(rest) if rest else rest

    def _check_length(self) -> bytes:
        if len(self._tail) <= LONGEST_EVENT_BYTES:
            return b""
        # No engine's event is that long: whatever it is, pass it on and look no further.
        self._is_blind = True
        passed = bytes(self._tail)
        self._tail.clear()
        return passed

    def _pass(self, events: bytes) -> bytes:
        if not self.has_token:
            self.has_token = any(
                _OPENING_TYPE.search(data) is None for data in _DATA.findall(events)
            )
        if self._last_mark in events:
            self.is_complete = self._is_last(events)
        return self._read(events) if b'"usage"' in events else events

    def _is_last(self, events: bytes) -> bool:
        """The mark may be a word of a reply: it counts as the whole data or as an event's type."""
        mark = self._last_mark
        typed = re.compile(rb'"type"\s*:\s*' + re.escape(mark))
        return any(
            data.strip() == mark or (mark.startswith(b'"') and typed.search(data) is not None)
            for data in _DATA.findall(events)
        )

    def _read(self, events: bytes) -> bytes:
        """Read the events that tell usage; returns all but the one that is not the client's."""
        kept: list[bytes] = []
        position = 0
        while position < len(events):
            match = _EVENT.match(events, position)
            event = events[position:] if match is None else match[0]
            position += len(event)
            if b'"usage"' not in event or not self._is_unwanted(event):
                kept.append(event)
        return b"".join(kept)

    def _is_unwanted(self, event: bytes) -> bool:
        is_unwanted = False
        for data in _DATA.findall(event):
            try:
                chunk = _mapping(orjson.loads(data))
            except ValueError:
                continue
            self.usage = self.usage.updated(read_usage(chunk))
            is_unwanted = chunk.get("choices") == [] and bool(chunk.get("usage"))
        return is_unwanted and self._takes_usage_out


Reader = BodyReader | StreamReader


def _last_event_end(data: bytes | bytearray, start: int) -> int:
    """Where the last whole event ends; 0: none ends at or after `start`."""
    bare = data.rfind(b"\n\n", start)
    returned = data.rfind(b"\n\r\n", start)
    if bare > returned:
        return bare + 2
    return returned + 3 if returned >= 0 else 0


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOKENS_MAX:
        return None
    return value
