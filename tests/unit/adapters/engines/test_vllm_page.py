"""vLLM pages: as the engine writes them, with parts missing, absurd, doubled, or no page at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.adapters.engines.openai_models import models_from_reply
from tao_coordinator.adapters.engines.reading import EngineReading
from tao_coordinator.adapters.engines.vllm import read_page
from tao_coordinator.errors import MalformedPage


def page(info: str = 'block_size="16",num_gpu_blocks="2756"', engine: int = 0) -> str:
    labels = f'{{engine="{engine}",model_name="Qwen/Qwen3-32B"}}'
    return f"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{labels} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{labels} 2.0
vllm:num_requests_waiting_by_reason{{engine="{engine}",reason="capacity"}} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{labels} 0.25
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{labels} 1.2e+06
vllm:prefix_cache_queries_created{labels} 1.7e+09
vllm:prefix_cache_hits_total{labels} 900000.0
vllm:cache_config_info{{cache_dtype="auto",{info},engine="{engine}",sliding_window="None"}} 1.0
vllm:time_to_first_token_seconds_bucket{{le="0.001"}} 0.0
"""


def test_page_is_read() -> None:
    assert read_page(page()) == EngineReading(
        capacity_tokens=2756 * 16,
        running=3,
        waiting=2,
        kv_usage_ratio=0.25,
        prefix_cache_queries_tokens=1_200_000,
        prefix_cache_hits_tokens=900_000,
    )


def test_told_pool_size_wins_over_the_product() -> None:
    info = 'block_size="16",kv_cache_size_tokens="40000",num_gpu_blocks="2756"'
    assert read_page(page(info)).capacity_tokens == 40_000


def test_several_engines_are_summed() -> None:
    both = page(engine=0) + page(engine=1).replace(" 0.25", " 0.75")
    sample = read_page(both)
    assert sample.capacity_tokens == 2 * 2756 * 16
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (6, 4, 0.75)
    assert sample.prefix_cache_hits_tokens == 1_800_000


def test_hits_below_the_pool_count_as_hits() -> None:
    page = (
        'vllm:prefix_cache_queries_total{model_name="m"} 500\n'
        'vllm:prefix_cache_hits_total{model_name="m"} 300\n'
        'vllm:external_prefix_cache_queries_total{model_name="m"} 200\n'
        'vllm:external_prefix_cache_hits_total{model_name="m"} 150\n'
    )
    reading = read_page(page)
    assert (reading.prefix_cache_queries_tokens, reading.prefix_cache_hits_tokens) == (500, 450)


def test_pool_of_one_engine_unknown_makes_the_sum_unknown() -> None:
    both = page(engine=0) + page('block_size="16",num_gpu_blocks="None"', engine=1)
    assert read_page(both).capacity_tokens is None


@pytest.mark.parametrize(
    "info",
    [
        'block_size="16",num_gpu_blocks="None"',
        'block_size="None",num_gpu_blocks="100"',
        'block_size="16"',
        'block_size="16",num_gpu_blocks="0"',
        'block_size="16",num_gpu_blocks="-5"',
        'block_size="16",num_gpu_blocks="99999999999999999999"',
        'block_size="16",num_gpu_blocks="9999999999"',
        'kv_cache_size_tokens="inf"',
        'kv_cache_size_tokens="0"',
    ],
)
def test_unusable_capacity_is_unknown_and_never_zero(info: str) -> None:
    sample = read_page(page(info))
    assert sample.capacity_tokens is None
    assert sample.running == 3


@pytest.mark.parametrize(
    "line", ["vllm:num_requests_running NaN", "vllm:num_requests_running -1", "vllm:oops 3"]
)
def test_absurd_or_missing_value_is_unknown(line: str) -> None:
    assert read_page(line) == EngineReading()


def test_one_rank_of_several_is_picked() -> None:
    both = page(engine=0) + page(engine=1).replace(" 3.0", " 7.0")
    assert (read_page(both, 1).running, read_page(both, 0).running) == (7, 3)
    assert read_page(both, 1).capacity_tokens == 2756 * 16
    assert read_page(both).num_ranks == 2
    assert read_page(both, 2) == EngineReading(num_ranks=2)


def test_old_name_beside_the_new_is_not_counted_twice() -> None:
    old = page() + (
        'vllm:gpu_prefix_cache_queries_total{engine="0"} 1.2e+06\n'
        'vllm:gpu_cache_usage_perc{engine="0"} 0.9\n'
    )
    assert read_page(old) == read_page(page())


def test_page_of_an_old_release_is_read() -> None:
    text = (
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 500\n'
        'vllm:gpu_prefix_cache_hits_total{model_name="m"} 300\n'
        'vllm:num_preemptions_total{model_name="m"} 4\n'
    )
    reading = read_page(text)
    assert (reading.prefix_cache_queries_tokens, reading.prefix_cache_hits_tokens) == (500, 300)
    assert reading.preemptions == 4


def test_sleeping_engine_is_seen() -> None:
    state = 'vllm:engine_sleep_state{engine="0",sleep_state="awake"} '
    assert read_page(page() + state + "0.0\n").is_asleep
    assert not read_page(page() + state + "1.0\n").is_asleep
    assert not read_page(page()).is_asleep


def test_prefix_cache_that_is_off_is_seen() -> None:
    assert read_page(page('enable_prefix_caching="False"')).has_prefix_cache is False
    assert read_page(page('enable_prefix_caching="True"')).has_prefix_cache is True
    assert read_page(page()).has_prefix_cache is None


def test_damaged_line_costs_only_itself() -> None:
    damaged = page().replace('vllm:num_requests_running{engine="0"', 'vllm:num_requests_running{"=')
    sample = read_page(damaged)
    assert (sample.running, sample.waiting) == (None, 2)


def test_windows_line_ends_and_labelless_samples_are_read() -> None:
    sample = read_page("vllm:num_requests_running 4\r\nvllm:gpu_cache_usage_perc 0.5\r\n")
    assert (sample.running, sample.kv_usage_ratio) == (4, 0.5)


@given(st.text(max_size=300))
def test_any_text_gives_a_sample(text: str) -> None:
    assert read_page(text).num_ranks >= 1


@given(st.text(alphabet='{}",=\\ \t1.eN_aZ#', max_size=60))
def test_any_rest_of_a_known_line_gives_a_sample(rest: str) -> None:
    for name in ("vllm:num_requests_running", "vllm:cache_config_info", "vllm:prefix_cache_hits"):
        sample = read_page(f"{name}{rest}")
        assert sample.capacity_tokens != 0


def test_models_are_read_once_each() -> None:
    body = b'{"object":"list","data":[{"id":"a"},{"id":"b"},{"id":"a"},{"id":7},5]}'
    assert models_from_reply(body) == ("a", "b")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":{}}', b"\xff"])
def test_no_model_list_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedPage):
        models_from_reply(body)
