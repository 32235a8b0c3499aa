"""NVIDIA Dynamo: the page of a worker's system port, or that of a frontend with one worker.

A worker passes its engine's own metrics through; Dynamo's gauges fill in what those lack. Traps: a
frontend shows the pool of *one* worker, whichever registered last, and counts the requests of all
of them; the block size stands on the frontend's page only; `..._percent` is a share of 0..1.
"""

from typing import Final

from tao_coordinator.adapters.engines import reading, vllm
from tao_coordinator.adapters.engines.prometheus_page import Page, Picker
from tao_coordinator.adapters.engines.reading import EngineReading, Source

_BLOCKS = ("dynamo_component_total_blocks", "dynamo_component_kvstats_total_blocks")
_FRONTEND_BLOCKS = "dynamo_frontend_model_total_kv_blocks"
_BLOCK_SIZE = "dynamo_frontend_model_kv_cache_block_size"
_USAGE = (
    "dynamo_component_gpu_cache_usage_percent",
    "dynamo_component_kvstats_gpu_cache_usage_percent",
)
_IN_FLIGHT = "dynamo_frontend_inflight_requests"
_QUEUED = "dynamo_frontend_queued_requests"

_PICKER = Picker((*_BLOCKS, _FRONTEND_BLOCKS, _BLOCK_SIZE, *_USAGE, _IN_FLIGHT, _QUEUED), "dp_rank")
_ENGINE_PICKER = Picker(vllm.NAMES, "engine")


def read_page(text: str, rank: int | None = None) -> EngineReading:
    """Read a `/metrics` page; anything else gives a reading without values."""
    page = _PICKER.page(text, rank)
    engine_page = _ENGINE_PICKER.page(text, rank)
    engine = vllm.read(engine_page)
    running, waiting = engine.running, engine.waiting
    if running is None:
        in_flight, queued = _of_frontend(page)
        running = None if in_flight is None else max(0, in_flight - (queued or 0))
        waiting = None if in_flight is None else min(queued or 0, in_flight)
    usage = engine.kv_usage_ratio
    return EngineReading(
        capacity_tokens=engine.capacity_tokens or _capacity_tokens(page, engine_page),
        running=running,
        waiting=waiting,
        kv_usage_ratio=reading.ratio(page.max(*_USAGE)) if usage is None else usage,
        prefix_cache_queries_tokens=engine.prefix_cache_queries_tokens,
        prefix_cache_hits_tokens=engine.prefix_cache_hits_tokens,
        preemptions=engine.preemptions,
        num_ranks=max(engine.num_ranks, page.num_ranks(*_BLOCKS)),
        has_prefix_cache=engine.has_prefix_cache,
        is_asleep=engine.is_asleep,
    )


def _capacity_tokens(page: Page, engine_page: Page) -> int | None:
    num_blocks = page.sum(*_BLOCKS)
    if num_blocks is None:
        num_blocks = page.max(_FRONTEND_BLOCKS)
    block_size_tokens = page.max(_BLOCK_SIZE)
    if block_size_tokens is None:
        sizes = [labels.get("block_size") for labels in engine_page.labels(vllm.INFO)]
        block_size_tokens = reading.positive_label(sizes[0]) if sizes else None
    if num_blocks is None or block_size_tokens is None:
        return None
    return reading.capacity(num_blocks * block_size_tokens)


def _of_frontend(page: Page) -> tuple[int | None, int | None]:
    return reading.count(page.sum(_IN_FLIGHT)), reading.count(page.sum(_QUEUED))


SOURCES: Final = (Source("dynamo", "/metrics", lambda text: "\ndynamo_" in "\n" + text, read_page),)
