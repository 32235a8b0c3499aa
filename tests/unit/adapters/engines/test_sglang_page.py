"""SGLang pages: repeated ranks, totals beside their parts, and the JSON loads."""

import json

from tao_coordinator.adapters.engines.reading import EngineReading
from tao_coordinator.adapters.engines.sglang import SOURCES, read_loads, read_page


def labels(**more: str) -> str:
    every = {"model_name": "qwen", "engine_type": "unified", "tp_rank": "0", "pp_rank": "0", **more}
    return "{" + ",".join(f'{name}="{value}"' for name, value in every.items()) + "}"


def page(**more: str) -> str:
    at = labels(**more)
    return (
        "# TYPE sglang:max_total_num_tokens gauge\n"
        f"sglang:max_total_num_tokens{at} 60000.0\n"
        f"sglang:num_running_reqs{at} 5.0\n"
        f"sglang:num_queue_reqs{at} 2.0\n"
        f"sglang:token_usage{at} 0.25\n"
        f"sglang:num_retracted_reqs{at} 9.0\n"
    )


def test_page_is_read() -> None:
    counters = (
        f"sglang:prompt_tokens_total{labels(is_streaming='true')} 700\n"
        f"sglang:prompt_tokens_total{labels(is_streaming='false')} 300\n"
        f"sglang:cached_tokens_total{labels(cache_source='device')} 400\n"
        f"sglang:cached_tokens_total{labels(cache_source='host')} 50\n"
        f"sglang:cached_tokens_total{labels(cache_source='total')} 450\n"
        f"sglang:num_retracted_requests_total{labels()} 3\n"
    )
    assert read_page(page() + counters) == EngineReading(
        capacity_tokens=60_000,
        running=5,
        waiting=2,
        kv_usage_ratio=0.25,
        prefix_cache_queries_tokens=1_000,
        prefix_cache_hits_tokens=450,
        preemptions=3,
    )


def test_cached_tokens_without_a_total_are_added() -> None:
    text = (
        f"sglang:cached_tokens_total{labels(cache_source='device')} 400\n"
        f"sglang:cached_tokens_total{labels(cache_source='host')} 50\n"
    )
    assert read_page(text).prefix_cache_hits_tokens == 450


def test_tensor_parallel_ranks_repeat_one_number() -> None:
    ranks = "".join(page(tp_rank=str(rank)) for rank in range(4))
    assert read_page(ranks) == read_page(page())


def test_data_parallel_ranks_are_added_or_picked_without_the_total_beside_them() -> None:
    text = (
        f"sglang:num_running_reqs{labels()} 8\n"
        f"sglang:num_running_reqs{labels(dp_rank='0')} 3\n"
        f"sglang:num_running_reqs{labels(dp_rank='1')} 5\n"
        f"sglang:max_total_num_tokens{labels(dp_rank='0')} 60000\n"
        f"sglang:max_total_num_tokens{labels(dp_rank='1')} 60000\n"
    )
    everything = read_page(text)
    assert (everything.running, everything.capacity_tokens) == (8, 120_000)
    assert everything.num_ranks == 2
    one = read_page(text, 1)
    assert (one.running, one.capacity_tokens) == (5, 60_000)


def test_priorities_are_not_added_to_their_total() -> None:
    total = f"sglang:num_running_reqs{labels(priority='')} 5\n"
    parts = (
        f"sglang:num_running_reqs{labels(priority='0')} 3\n"
        f"sglang:num_running_reqs{labels(priority='10')} 2\n"
    )
    assert read_page(total + parts).running == 5
    assert read_page(parts).running == 5


def test_capacity_from_pages_where_the_tokens_are_missing() -> None:
    text = f"sglang:num_pages{labels()} 100\nsglang:page_size{labels()} 64\n"
    assert read_page(text).capacity_tokens == 6_400
    assert read_page("sglang:num_pages 100\n").capacity_tokens is None


def test_nonsense_is_unknown() -> None:
    for value in ("NaN", "+Inf", "-1", "1e30", "0"):
        reading = read_page(f"sglang:max_total_num_tokens {value}\nsglang:token_usage {value}\n")
        assert reading.capacity_tokens is None
        assert reading.kv_usage_ratio in (None, 0.0)


def load(rank: int) -> dict[str, object]:
    return {
        "dp_rank": rank,
        "num_running_reqs": 2 + rank,
        "num_waiting_reqs": 1,
        "max_total_num_tokens": 50_000,
        "token_usage": 0.5,
        "memory": {"token_capacity": 50_000},
    }


def test_loads_are_read_by_rank() -> None:
    for text in (json.dumps([load(0), load(1)]), json.dumps({"loads": [load(0), load(1)]})):
        both = read_loads(text)
        assert (both.capacity_tokens, both.running, both.waiting) == (100_000, 5, 2)
        assert (both.kv_usage_ratio, both.num_ranks) == (0.5, 2)
        assert read_loads(text, 1).running == 3
        assert SOURCES[1].recognises(text)


def test_loads_that_are_none_say_nothing() -> None:
    for text in ("", "{}", "[]", "[1]", '{"loads": 5}', '[{"num_running_reqs": "3"}]', "<html>"):
        assert read_loads(text).running is None
        assert read_loads(text).capacity_tokens is None
    partly = [load(0), {**load(1), "max_total_num_tokens": None}]
    assert read_loads(json.dumps(partly)).capacity_tokens is None
