"""vLLM's Prometheus page.

Traps: the pool's size stands in a label, may be the word "None", and `num_gpu_blocks * block_size`
is wrong for hybrid models when `kv_cache_size_tokens` is there; names changed
(`gpu_cache_usage_perc`, `gpu_prefix_cache_*`) and some releases show the old name beside the new;
one page holds every data-parallel rank of the process, told apart by the label `engine`; an engine
that was put to sleep answers its page and hangs every call; hits below the pool (host memory,
LMCache) are counters of their own, though `usage` has both in one number.
"""

from typing import Final

from tao_coordinator.adapters.engines import reading
from tao_coordinator.adapters.engines.prometheus_page import Page, Picker
from tao_coordinator.adapters.engines.reading import EngineReading, Source

INFO: Final = "vllm:cache_config_info"
RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
_QUERIES = ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")
_HITS = ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")
_HOST_HITS = "vllm:external_prefix_cache_hits"
_PREEMPTIONS = "vllm:num_preemptions"
_SLEEP = "vllm:engine_sleep_state"

NAMES: Final = (INFO, RUNNING, WAITING, *USAGE, *_QUERIES, *_HITS, _HOST_HITS, _PREEMPTIONS, _SLEEP)
_PICKER = Picker(NAMES, "engine")


def read_page(text: str, rank: int | None = None) -> EngineReading:
    """Read a `/metrics` page; anything else gives a reading without values."""
    return read(_PICKER.page(text, rank))


def read(page: Page) -> EngineReading:
    """What a page with vLLM's names on it says."""
    info = page.labels(INFO)
    prefix_caching = {labels.get("enable_prefix_caching") for labels in info}
    return EngineReading(
        capacity_tokens=_capacity_tokens(page),
        running=reading.count(page.sum(RUNNING)),
        waiting=reading.count(page.sum(WAITING)),
        kv_usage_ratio=reading.ratio(page.max(*USAGE)),
        prefix_cache_queries_tokens=reading.count(page.sum(*_QUERIES)),
        prefix_cache_hits_tokens=_hits_tokens(page),
        preemptions=reading.count(page.sum(_PREEMPTIONS)),
        num_ranks=page.num_ranks(INFO, RUNNING),
        has_prefix_cache=(
            False if "False" in prefix_caching else True if "True" in prefix_caching else None
        ),
        is_asleep=page.where(_SLEEP, "sleep_state", "awake") == 0.0,
    )


def _hits_tokens(page: Page) -> int | None:
    """Of the pool and of what a connector keeps below it (host memory, LMCache), as in `usage`."""
    pool, host = reading.count(page.sum(*_HITS)), reading.count(page.sum(_HOST_HITS))
    return pool if pool is None or host is None else pool + host


def _capacity_tokens(page: Page) -> int | None:
    """Sum over the ranks; `None` once one does not say: a part of the pool is no capacity."""
    total = 0
    for labels in page.labels(INFO):
        tokens = reading.positive_label(labels.get("kv_cache_size_tokens"))
        if tokens is None:
            num_blocks = reading.positive_label(labels.get("num_gpu_blocks"))
            block_size_tokens = reading.positive_label(labels.get("block_size"))
            if num_blocks is None or block_size_tokens is None:
                return None
            tokens = num_blocks * block_size_tokens
        total += tokens
    return reading.capacity(total)


SOURCES: Final = (Source("vllm", "/metrics", lambda text: "\nvllm:" in "\n" + text, read_page),)
