"""TensorRT-LLM (`trtllm-serve`): its Prometheus page, else its JSON iteration statistics.

Traps: the Prometheus page stands at `/prometheus/metrics` and needs `return_perf_metrics: true`;
`/metrics` is JSON and *drains* the statistics that it returns, so it is read only where there is
nothing else; an idle engine returns an empty list, which says nothing. The older KV manager counts
blocks offloaded to host memory as pool (`--capacity-scale` corrects it).
"""

from typing import Final, cast

import orjson

from tao_coordinator.adapters.engines import reading
from tao_coordinator.adapters.engines.prometheus_page import Picker
from tao_coordinator.adapters.engines.reading import EngineReading, Source

_BLOCKS = "trtllm_kv_cache_max_blocks"
_BLOCK_SIZE = "trtllm_kv_cache_tokens_per_block"
_RUNNING = "trtllm_num_requests_running"
_WAITING = "trtllm_num_requests_waiting"
_USAGE = "trtllm_kv_cache_utilization"
_REUSED = "trtllm_kv_cache_reused_blocks"
_MISSED = "trtllm_kv_cache_missed_blocks"
_INFO = "trtllm_cache_config_info"

_PICKER = Picker(
    (_BLOCKS, _BLOCK_SIZE, _RUNNING, _WAITING, _USAGE, _REUSED, _MISSED, _INFO), "dp_rank"
)


def read_page(text: str, rank: int | None = None) -> EngineReading:
    """Read `/prometheus/metrics`; anything else gives a reading without values."""
    page = _PICKER.page(text, rank)
    block_size_tokens = page.max(_BLOCK_SIZE)
    reused, missed = page.sum(_REUSED), page.sum(_MISSED)
    looked_up = None if reused is None or missed is None else reused + missed
    reuse = {labels.get("enable_block_reuse", "").lower() for labels in page.labels(_INFO)}
    return EngineReading(
        capacity_tokens=reading.capacity(_product(page.sum(_BLOCKS), block_size_tokens)),
        running=reading.count(page.sum(_RUNNING)),
        waiting=reading.count(page.sum(_WAITING)),
        kv_usage_ratio=reading.ratio(page.max(_USAGE)),
        prefix_cache_queries_tokens=reading.count(_product(looked_up, block_size_tokens)),
        prefix_cache_hits_tokens=reading.count(_product(reused, block_size_tokens)),
        num_ranks=page.num_ranks(_BLOCKS, _RUNNING),
        has_prefix_cache=False if "false" in reuse else True if "true" in reuse else None,
    )


def read_iterations(text: str, rank: int | None = None) -> EngineReading:
    """Read `/metrics` in JSON: the newest iteration of the list counts."""
    iterations = _iterations(text)
    if not iterations:
        return EngineReading()
    newest = iterations[-1]
    cache = newest.get("kvCacheStats")
    pool = cast("dict[str, object]", cache) if isinstance(cache, dict) else {}
    num_blocks, used = _number(pool, "maxNumBlocks"), _number(pool, "usedNumBlocks")
    tokens = _product(num_blocks, _number(pool, "tokensPerBlock"))
    usage = used / num_blocks if used is not None and num_blocks else None
    return EngineReading(
        capacity_tokens=reading.capacity(tokens),
        running=reading.count(_number(newest, "numActiveRequests")),
        waiting=reading.count(_number(newest, "numQueuedRequests")),
        kv_usage_ratio=reading.ratio(usage),
    )


def _product(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left * right


def _iterations(text: str) -> list[dict[str, object]] | None:
    """`None`: no JSON list of objects."""
    try:
        reply: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(reply, list):
        return None
    entries = cast("list[object]", reply)
    if not all(isinstance(entry, dict) for entry in entries):
        return None
    return cast("list[dict[str, object]]", entries)


def _number(entry: dict[str, object], key: str) -> float | None:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= reading.COUNT_MAX else None


def _is_iterations(text: str) -> bool:
    iterations = _iterations(text)
    # An idle engine has no iteration to tell of.
    return iterations is not None and all("iter" in entry for entry in iterations)


SOURCES: Final = (
    Source(
        "tensorrt-llm", "/prometheus/metrics", lambda text: "\ntrtllm_" in "\n" + text, read_page
    ),
    Source(
        "tensorrt-llm",
        "/metrics",
        _is_iterations,
        read_iterations,
        hint="return_perf_metrics: true (for /prometheus/metrics)",
    ),
)
