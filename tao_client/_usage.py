"""Reading `usage` in passing, from whole bodies and from event streams.

A stream is never buffered: its bytes pass on as they come. Only where the usage chunk was asked for
by us and not by the caller is one event at a time held back until it is whole, and that one chunk
(`"choices": []`) taken out. Absent numbers stay None: unknown is not zero.
"""

import contextlib
import json
import re
from dataclasses import dataclass
from typing import cast

from tao_client.semconv import TOKENS_MAX

LONGEST_BODY_BYTES = 8_388_608
LONGEST_EVENT_BYTES = 1_048_576
_USAGE_OBJECT = re.compile(rb'"usage"\s*:\s*\{')
_OPENING_TYPE = re.compile(
    rb'"type"\s*:\s*"(?:response\.(?:created|queued|in_progress)|message_start|ping)"'
)
"""Events that a stream may begin with before the engine has read the prompt."""
_LAST_TYPES = frozenset({"response.completed", "response.incomplete", "response.failed"})


@dataclass(frozen=True, slots=True)
class Usage:
    """What an engine counted. None: it did not say."""

    input_tokens: int | None = None
    """Prompt tokens, those from the cache included."""
    cached_tokens: int | None = None
    output_tokens: int | None = None


def read_usage(document: object) -> Usage:
    """The usage inside a reply or a stream's chunk: chat, completions, responses, messages."""
    return _read_counts(_usage_object(document))


def _usage_object(document: object) -> dict[str, object]:
    reply = _mapping(document)
    usage = reply.get("usage")
    for envelope in ("response", "message"):
        usage = usage or _mapping(reply.get(envelope)).get("usage")
    return _mapping(usage)


def _read_counts(counts: dict[str, object]) -> Usage:
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

    def __init__(self) -> None:
        self.usage = Usage()
        self.is_complete = False
        """A whole body is complete when it ends, and not before."""
        self._chunks: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> bytes:
        """Take note of a chunk; returns what the caller shall see of it (all)."""
        self._size_bytes += len(chunk)
        if self._size_bytes <= LONGEST_BODY_BYTES:
            self._chunks.append(chunk)
        return chunk

    def end(self) -> bytes:
        """The body has ended; returns what was held back (nothing)."""
        if self._size_bytes <= LONGEST_BODY_BYTES:
            with contextlib.suppress(ValueError, RecursionError):  # no JSON: no usage
                self.usage = read_usage(json.loads(b"".join(self._chunks)))
        self._chunks.clear()
        return b""


class StreamReader:
    """Reads a reply that comes as server-sent events."""

    def __init__(self, *, takes_usage_out: bool) -> None:
        self.usage = Usage()
        self.is_complete = False
        """The stream has said that it is over, though more bytes (a line end) may come."""
        self.has_token = False
        """More has come than what a stream opens with."""
        self._takes_usage_out = takes_usage_out
        self._counts: dict[str, object] = {}
        self._line = b""
        self._event = b""
        self._is_unwanted = False
        self._is_blind = False

    def feed(self, chunk: bytes) -> bytes:
        """Take note of a chunk; returns what the caller shall see now."""
        if self._is_blind:
            return chunk
        lines = (self._line + chunk).split(b"\n")
        self._line = lines.pop()
        passed: list[bytes] = []
        for line in lines:
            self._read_line(line)
            if not self._takes_usage_out:
                continue
            self._event += line + b"\n"
            if not line.strip(b"\r"):
                passed.append(self._whole_event())
        if len(self._line) + len(self._event) > LONGEST_EVENT_BYTES:
            # No engine's event is that long: whatever it is, pass it on and look no further.
            self._is_blind = True
            passed.append(self._event + self._line)
            self._event = self._line = b""
        return b"".join(passed) if self._takes_usage_out else chunk

    def end(self) -> bytes:
        """The stream has ended; returns what was held back."""
        line, self._line = self._line, b""
        self._read_line(line)
        if not self._takes_usage_out:
            return b""
        self._event += line
        return self._whole_event()

    def _whole_event(self) -> bytes:
        event = b"" if self._is_unwanted else self._event
        self._event = b""
        self._is_unwanted = False
        return event

    def _read_line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if not self.has_token:
            self.has_token = _OPENING_TYPE.search(data) is None
        if data == b"[DONE]" or b'"message_stop"' in data:
            self.is_complete = True
        if not _USAGE_OBJECT.search(data):
            return
        try:
            chunk = _mapping(json.loads(data))
        except (ValueError, RecursionError):
            return
        # Number by number, and only then added up: a stream may say some of them again, with null
        # for those that it has said before.
        said = _usage_object(chunk).items()
        self._counts.update({name: value for name, value in said if value is not None})
        self.usage = _read_counts(self._counts)
        self._is_unwanted = chunk.get("choices") == [] and bool(chunk.get("usage"))
        if chunk.get("type") in _LAST_TYPES:
            self.is_complete = True


Reader = BodyReader | StreamReader


def _mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOKENS_MAX:
        return None
    return value
