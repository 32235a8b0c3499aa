"""SGLang's Prometheus page (`--enable-metrics`), and its JSON loads where that flag was not given.

Traps: every gauge is repeated for each tensor-, pipeline- and expert-parallel rank with the same
number; `dp_rank` tells real ranks apart, sometimes beside a total; with priority scheduling a total
(`priority=""`) stands beside its parts; `sglang:cache_config_info`, which other routers ask for, is
not there. `token_usage` counts cached idle tokens as free.
"""

from typing import Final, cast

import orjson

from tao_coordinator.adapters.engines import reading
from tao_coordinator.adapters.engines.prometheus_page import Picker
from tao_coordinator.adapters.engines.reading import EngineReading, Source

LOADS_PATH: Final = "/v1/loads?include=core,memory,queues"

_CAPACITY = "sglang:max_total_num_tokens"
_PAGES = "sglang:num_pages"
_PAGE_SIZE = "sglang:page_size"
_RUNNING = "sglang:num_running_reqs"
_WAITING = "sglang:num_queue_reqs"
_USAGE = "sglang:token_usage"
_PROMPT = "sglang:prompt_tokens"
_CACHED = "sglang:cached_tokens"
_RETRACTED = "sglang:num_retracted_requests"

_PICKER = Picker(
    (_CAPACITY, _PAGES, _PAGE_SIZE, _RUNNING, _WAITING, _USAGE, _PROMPT, _CACHED, _RETRACTED),
    "dp_rank",
)
_RANKS_MAX = 1_024


def read_page(text: str, rank: int | None = None) -> EngineReading:
    """Read a `/metrics` page; anything else gives a reading without values."""
    page = _PICKER.page(text, rank)
    tokens = page.sum(_CAPACITY)
    if tokens is None:
        num_pages, page_size_tokens = page.sum(_PAGES), page.max(_PAGE_SIZE)
        if num_pages is not None and page_size_tokens is not None:
            tokens = num_pages * page_size_tokens
    return EngineReading(
        capacity_tokens=reading.capacity(tokens),
        running=reading.count(page.sum(_RUNNING)),
        waiting=reading.count(page.sum(_WAITING)),
        kv_usage_ratio=reading.ratio(page.max(_USAGE)),
        prefix_cache_queries_tokens=reading.count(page.sum(_PROMPT)),
        prefix_cache_hits_tokens=reading.count(_cached(page.sums_by("cache_source", _CACHED))),
        preemptions=reading.count(page.sum(_RETRACTED)),
        num_ranks=page.num_ranks(_CAPACITY, _RUNNING),
    )


def read_loads(text: str, rank: int | None = None) -> EngineReading:
    """Read `GET /v1/loads`: one object per data-parallel rank, in a list or under `loads`."""
    entries = _entries(text)
    ranks = {entry.get("dp_rank") for entry in entries}
    if rank is not None:
        entries = [entry for entry in entries if entry.get("dp_rank") == rank]
    usages = [usage for entry in entries if (usage := _number(entry, "token_usage")) is not None]
    return EngineReading(
        capacity_tokens=reading.capacity(_sum(entries, "max_total_num_tokens")),
        running=reading.count(_sum(entries, "num_running_reqs")),
        waiting=reading.count(_sum(entries, "num_waiting_reqs")),
        kv_usage_ratio=reading.ratio(max(usages, default=None)),
        num_ranks=max(1, len(ranks)),
    )


def _cached(by_source: dict[str, float]) -> float | None:
    """Cached tokens from every tier; their total is on the page too, beside its parts."""
    if "total" in by_source:
        return by_source["total"]
    return sum(by_source.values()) if by_source else None


def _entries(text: str) -> list[dict[str, object]]:
    try:
        reply: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return []
    if isinstance(reply, dict):
        reply = cast("dict[str, object]", reply).get("loads")
    if not isinstance(reply, list):
        return []
    listed = cast("list[object]", reply)[:_RANKS_MAX]
    return [cast("dict[str, object]", entry) for entry in listed if isinstance(entry, dict)]


def _sum(entries: list[dict[str, object]], key: str) -> float | None:
    """Sum over the ranks; `None` once one does not say."""
    numbers = [_number(entry, key) for entry in entries]
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _number(entry: dict[str, object], key: str) -> float | None:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= reading.COUNT_MAX else None


def _is_loads(text: str) -> bool:
    return any("num_running_reqs" in entry for entry in _entries(text))


SOURCES: Final = (
    Source("sglang", "/metrics", lambda text: "\nsglang:" in "\n" + text, read_page),
    Source("sglang", LOADS_PATH, _is_loads, read_loads, hint="--enable-metrics"),
)
