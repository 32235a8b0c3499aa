"""vLLM pages: as the engine writes them, with parts missing, absurd, doubled, or no page at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.adapters.vllm import models_from_reply, sample_from_page
from tao_coordinator.core.events import BackendSampled
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
    assert sample_from_page("gpu-0", page(), ("m",)) == BackendSampled(
        backend_id="gpu-0",
        capacity_tokens=2756 * 16,
        models=("m",),
        running=3,
        waiting=2,
        kv_usage_ratio=0.25,
        prefix_cache_queries_tokens=1_200_000,
        prefix_cache_hits_tokens=900_000,
    )


def test_told_pool_size_wins_over_the_product() -> None:
    info = 'block_size="16",kv_cache_size_tokens="40000",num_gpu_blocks="2756"'
    assert sample_from_page("b", page(info)).capacity_tokens == 40_000


def test_several_engines_are_summed() -> None:
    both = page(engine=0) + page(engine=1).replace(" 0.25", " 0.75")
    sample = sample_from_page("b", both)
    assert sample.capacity_tokens == 2 * 2756 * 16
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (6, 4, 0.75)
    assert sample.prefix_cache_hits_tokens == 1_800_000


def test_pool_of_one_engine_unknown_makes_the_sum_unknown() -> None:
    both = page(engine=0) + page('block_size="16",num_gpu_blocks="None"', engine=1)
    assert sample_from_page("b", both).capacity_tokens is None


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
    sample = sample_from_page("b", page(info))
    assert sample.capacity_tokens is None
    assert sample.running == 3


@pytest.mark.parametrize(
    "line", ["vllm:num_requests_running NaN", "vllm:num_requests_running -1", "vllm:oops 3"]
)
def test_absurd_or_missing_value_is_unknown(line: str) -> None:
    assert sample_from_page("b", line) == BackendSampled(backend_id="b")


def test_damaged_line_costs_only_itself() -> None:
    damaged = page().replace('vllm:num_requests_running{engine="0"', 'vllm:num_requests_running{"=')
    sample = sample_from_page("b", damaged)
    assert (sample.running, sample.waiting) == (None, 2)


def test_windows_line_ends_and_labelless_samples_are_read() -> None:
    sample = sample_from_page(
        "b", "vllm:num_requests_running 4\r\nvllm:gpu_cache_usage_perc 0.5\r\n"
    )
    assert (sample.running, sample.kv_usage_ratio) == (4, 0.5)


@given(st.text(max_size=300))
def test_any_text_gives_a_sample(text: str) -> None:
    assert sample_from_page("b", text).backend_id == "b"


@given(st.text(alphabet='{}",=\\ \t1.eN_aZ#', max_size=60))
def test_any_rest_of_a_known_line_gives_a_sample(rest: str) -> None:
    for name in ("vllm:num_requests_running", "vllm:cache_config_info", "vllm:prefix_cache_hits"):
        sample = sample_from_page("b", f"{name}{rest}")
        assert sample.capacity_tokens != 0


def test_models_are_read_once_each() -> None:
    body = b'{"object":"list","data":[{"id":"a"},{"id":"b"},{"id":"a"},{"id":7},5]}'
    assert models_from_reply(body) == ("a", "b")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":{}}', b"\xff"])
def test_no_model_list_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedPage):
        models_from_reply(body)
