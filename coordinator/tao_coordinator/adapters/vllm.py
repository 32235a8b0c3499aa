"""vLLM's Prometheus page and model list as one backend sample.

The page holds hundreds of histogram lines that nobody here needs, and the Prometheus parser walks a
line character by character in Python: so the few lines of interest are picked by one regular
expression and only they are parsed (0.2 ms instead of 50 ms for a page of 100 kB).

Traps (`docs/backends.md`): the pool's size stands in a label, may be the word "None", and
`num_gpu_blocks * block_size` is wrong for hybrid models when `kv_cache_size_tokens` is there; one
page may hold several engines (data-parallel ranks).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, cast

import orjson
from prometheus_client.parser import text_string_to_metric_families

from tao_coordinator.core.events import BackendSampled
from tao_coordinator.errors import MalformedPage

PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
MODELS_BYTES_MAX: Final = 1024 * 1024
CAPACITY_TOKENS_MAX: Final = 10**10
"""Above: no GPU's KV pool, a misreport."""

_INFO = "vllm:cache_config_info"
_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_USAGE = "vllm:kv_cache_usage_perc"
_USAGE_OLD = "vllm:gpu_cache_usage_perc"
_QUERIES = "vllm:prefix_cache_queries"
_HITS = "vllm:prefix_cache_hits"

_LINES_MAX = 4_096
_MODELS_MAX = 1_024
_MODEL_NAME_LENGTH_MAX = 256
_COUNT_MAX = 10**15

_WANTED = re.compile(
    r"^(?:" + "|".join((_INFO, _RUNNING, _WAITING, _USAGE, _USAGE_OLD)) + r")[{ \t].*$"
    r"|^(?:" + "|".join((_QUERIES, _HITS)) + r")(?:_total)?[{ \t].*$",
    re.MULTILINE,
)


@dataclass(slots=True)
class _Totals:
    """Sums over the engines of one page; a key is absent when no engine reported it."""

    sums: dict[str, float] = field(default_factory=dict[str, float])
    usage_ratio: float | None = None
    capacity_tokens: int | None = None
    capacity_is_known: bool = True
    """False once one engine did not say: a part of the pool is no capacity."""


def sample_from_page(
    backend_id: str, page: str, models: tuple[str, ...] | None = None
) -> BackendSampled:
    """Read a `/metrics` page.

    Args:
        backend_id: Whose page it is.
        page: Prometheus text format; anything else gives a sample without values.
        models: What `/v1/models` said in the same poll; `None`: not asked.

    Returns:
        The sample; every value that is missing or absurd is `None`, never 0.
    """
    totals = _Totals()
    for number, match in enumerate(_WANTED.finditer(page)):
        if number >= _LINES_MAX:
            break
        _add_line(totals, match.group())
    return BackendSampled(
        backend_id=backend_id,
        capacity_tokens=totals.capacity_tokens if totals.capacity_is_known else None,
        models=models,
        running=_count(totals.sums.get(_RUNNING)),
        waiting=_count(totals.sums.get(_WAITING)),
        kv_usage_ratio=totals.usage_ratio,
        prefix_cache_queries_tokens=_count(totals.sums.get(_QUERIES)),
        prefix_cache_hits_tokens=_count(totals.sums.get(_HITS)),
    )


def models_from_reply(body: bytes) -> tuple[str, ...]:
    """Names served according to `GET /v1/models`.

    Raises:
        MalformedPage: The body is no model list.
    """
    try:
        reply: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedPage("/v1/models is no JSON") from error
    entries = cast("dict[str, object]", reply).get("data") if isinstance(reply, dict) else None
    if not isinstance(entries, list):
        raise MalformedPage("/v1/models has no list `data`")
    names: dict[str, None] = {}
    for entry in cast("list[object]", entries)[:_MODELS_MAX]:
        name = cast("dict[str, object]", entry).get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and 0 < len(name) <= _MODEL_NAME_LENGTH_MAX:
            names[name] = None
    return tuple(names)


def _add_line(totals: _Totals, line: str) -> None:
    if line.startswith(_INFO):
        capacity_tokens = _capacity_of_line(line)
        if capacity_tokens is None:
            totals.capacity_is_known = False
        else:
            totals.capacity_tokens = (totals.capacity_tokens or 0) + capacity_tokens
        return
    parsed = _parse(line)
    if parsed is None:
        return
    name, value = parsed[0].removesuffix("_total"), parsed[2]
    if not (math.isfinite(value) and value >= 0.0):
        return
    if name in (_USAGE, _USAGE_OLD):
        if value <= 1.0 + 1e-6:
            totals.usage_ratio = max(totals.usage_ratio or 0.0, min(1.0, value))
    else:
        totals.sums[name] = totals.sums.get(name, 0.0) + value


@lru_cache(maxsize=1024)
def _capacity_of_line(line: str) -> int | None:
    """Pool of one engine. The line is long and never changes, so its parse is kept."""
    parsed = _parse(line)
    if parsed is None:
        return None
    labels = parsed[1]
    told = _positive(labels.get("kv_cache_size_tokens"))
    if told is not None:
        return told
    num_blocks = _positive(labels.get("num_gpu_blocks"))
    block_size_tokens = _positive(labels.get("block_size"))
    if num_blocks is None or block_size_tokens is None:
        return None
    tokens = num_blocks * block_size_tokens
    return tokens if tokens <= CAPACITY_TOKENS_MAX else None


def _parse(line: str) -> tuple[str, Mapping[str, str], float] | None:
    try:
        for family in text_string_to_metric_families(line):
            for sample in family.samples:
                return sample.name, sample.labels, float(sample.value)
    except (ValueError, IndexError, OverflowError):
        # The lax parser raises any of these for a line that is no sample.
        return None
    return None


def _positive(label: str | None) -> int | None:
    if label is None or not label.isascii() or not label.isdigit() or len(label) > 12:
        return None
    number = int(label)
    return number if 0 < number <= CAPACITY_TOKENS_MAX else None


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and value <= _COUNT_MAX else None
