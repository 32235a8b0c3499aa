"""What one poll of an engine tells, in the coordinator's words, and what an adapter has to offer.

A value that is missing, not finite, negative or absurd is `None`, never 0: a capacity of 0 would
stop a backend for good, a count of 0 would hide its load.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

CAPACITY_TOKENS_MAX: Final = 10**10
"""Above: no GPU's KV pool, a misreport."""
COUNT_MAX: Final = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """One look at an engine, or at one data-parallel rank of it. All counts are integers."""

    capacity_tokens: int | None = None
    running: int | None = None
    """Requests in the batch."""
    waiting: int | None = None
    """Requests in the engine's own queue."""
    kv_usage_ratio: float | None = None
    """0..1, as the engine defines it: vLLM counts referenced blocks only."""
    prefix_cache_queries_tokens: int | None = None
    """Prompt tokens looked up since the engine's start."""
    prefix_cache_hits_tokens: int | None = None
    preemptions: int | None = None
    """Requests thrown out of the batch for lack of room, since the engine's start."""
    num_ranks: int = 1
    """Data-parallel ranks on the page, each with a KV cache of its own."""
    has_prefix_cache: bool | None = None
    """False: the engine was started without prefix caching; `None`: it does not say."""
    is_asleep: bool = False
    """It answers, but a turn sent to it would hang until somebody wakes it."""


@dataclass(frozen=True, slots=True)
class Source:
    """One page that an engine may offer."""

    kind: str
    path: str
    """Below the metrics root, with its query."""
    recognises: Callable[[str], bool]
    """Whether this text is that page. Cheap: asked for every kind in turn."""
    read: Callable[[str, int | None], EngineReading]
    """The page, and the data-parallel rank wanted (`None`: all of them together)."""
    hint: str = ""
    """What to start the engine with so that a better page than this one is there."""


def capacity(tokens: float | None) -> int | None:
    """A pool size that can be true, else `None`."""
    if tokens is None or not 1 <= tokens <= CAPACITY_TOKENS_MAX:
        return None
    return int(tokens)


def count(value: float | None) -> int | None:
    """A counter or gauge as an integer; `None` where it is missing or absurd."""
    return None if value is None or not 0 <= value <= COUNT_MAX else int(value)


def ratio(value: float | None) -> float | None:
    """A share of 0..1; a value above 1 by more than rounding is no share."""
    return None if value is None or not 0.0 <= value <= 1.0 + 1e-6 else min(1.0, value)


def positive_label(text: str | None) -> int | None:
    """A positive integer in a label; engines also write "None", "inf" and nothing."""
    if text is None or not re.fullmatch(r"[0-9]{1,12}", text):
        return None
    number = int(text)
    return number if 0 < number <= CAPACITY_TOKENS_MAX else None
