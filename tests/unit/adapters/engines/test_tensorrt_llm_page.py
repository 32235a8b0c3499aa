"""TensorRT-LLM pages: Prometheus, and the JSON iteration statistics."""

import json

import pytest

from tao_coordinator.adapters.engines.reading import EngineReading
from tao_coordinator.adapters.engines.tensorrt_llm import SOURCES, read_iterations, read_page

AT = '{engine_type="trtllm",model_name="m"}'
PAGE = f"""\
# TYPE trtllm_kv_cache_max_blocks gauge
trtllm_kv_cache_max_blocks{AT} 1000.0
trtllm_kv_cache_free_blocks{AT} 700.0
trtllm_kv_cache_tokens_per_block{AT} 32.0
trtllm_kv_cache_utilization{AT} 0.3
trtllm_kv_cache_reused_blocks_total{AT} 40.0
trtllm_kv_cache_missed_blocks_total{AT} 60.0
trtllm_num_requests_running{AT} 4.0
trtllm_num_requests_waiting{AT} 1.0
trtllm_cache_config_info{{enable_block_reuse="True",page_size="32"}} 1.0
"""


def test_page_is_read() -> None:
    assert read_page(PAGE) == EngineReading(
        capacity_tokens=32_000,
        running=4,
        waiting=1,
        kv_usage_ratio=0.3,
        prefix_cache_queries_tokens=3_200,
        prefix_cache_hits_tokens=1_280,
        has_prefix_cache=True,
    )


def test_capacity_needs_both_numbers() -> None:
    assert read_page(f"trtllm_kv_cache_max_blocks{AT} 1000\n").capacity_tokens is None
    assert read_page(PAGE.replace("1000.0", "0.0")).capacity_tokens is None


ITERATION = {
    "iter": 7,
    "numActiveRequests": 3,
    "numQueuedRequests": 2,
    "kvCacheStats": {"maxNumBlocks": 500, "usedNumBlocks": 125, "tokensPerBlock": 64},
}


def test_newest_iteration_counts() -> None:
    older = {**ITERATION, "numActiveRequests": 99}
    assert read_iterations(json.dumps([older, ITERATION])) == EngineReading(
        capacity_tokens=32_000, running=3, waiting=2, kv_usage_ratio=0.25
    )


def test_idle_engine_says_nothing() -> None:
    assert read_iterations("[]") == EngineReading()
    assert SOURCES[1].recognises("[]")


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"a": 1}]', "vllm:x 1", "null", '"[]"'])
def test_what_is_no_iteration_is_not_taken_for_one(text: str) -> None:
    assert not SOURCES[1].recognises(text)
    assert read_iterations(text) == EngineReading()


def test_nonsense_in_an_iteration_is_unknown() -> None:
    strange: dict[str, object] = {
        "iter": 1,
        "numActiveRequests": "3",
        "numQueuedRequests": -1,
        "kvCacheStats": [],
    }
    assert read_iterations(json.dumps([strange])) == EngineReading()
