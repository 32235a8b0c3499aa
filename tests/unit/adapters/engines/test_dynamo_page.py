"""Dynamo pages: a frontend, a worker's system port with and without its engine's own metrics."""

from tao_coordinator.adapters.engines.dynamo import read_page

FRONTEND = """\
dynamo_frontend_inflight_requests{model="m"} 5
dynamo_frontend_queued_requests{model="m"} 2
dynamo_frontend_model_total_kv_blocks{model="m"} 640
dynamo_frontend_model_kv_cache_block_size{model="m"} 32
"""
WORKER = """\
dynamo_component_total_blocks{dynamo_component="backend",dp_rank="0",model="m"} 640
dynamo_component_total_blocks{dynamo_component="backend",dp_rank="1",model="m"} 640
dynamo_component_gpu_cache_usage_percent{dynamo_component="backend",dp_rank="0",model="m"} 0.5
dynamo_component_gpu_cache_usage_percent{dynamo_component="backend",dp_rank="1",model="m"} 0.75
"""
ENGINE = """\
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_waiting{engine="0",model_name="m"} 1
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="1000"} 1
"""


def test_frontend_is_read() -> None:
    reading = read_page(FRONTEND)
    assert reading.capacity_tokens == 640 * 32
    assert (reading.running, reading.waiting) == (3, 2)


def test_models_of_one_worker_share_its_pool() -> None:
    more = FRONTEND + 'dynamo_frontend_model_total_kv_blocks{model="alias"} 640\n'
    assert read_page(more).capacity_tokens == 640 * 32


def test_engines_own_word_wins_on_a_worker() -> None:
    reading = read_page(WORKER + ENGINE)
    assert reading.capacity_tokens == 16_000
    assert (reading.running, reading.waiting, reading.kv_usage_ratio) == (3, 1, 0.4)


def test_ranks_of_a_worker_are_told_apart() -> None:
    block_size = 'vllm:cache_config_info{engine="0",block_size="16"} 1\n'
    reading = read_page(WORKER + block_size)
    assert (reading.capacity_tokens, reading.num_ranks) == (2 * 640 * 16, 2)
    assert reading.kv_usage_ratio == 0.75
    assert read_page(WORKER + block_size, 0).kv_usage_ratio == 0.5


def test_blocks_without_their_size_are_no_capacity() -> None:
    assert read_page(WORKER).capacity_tokens is None
    assert read_page(FRONTEND.replace(" 640", " NaN")).capacity_tokens is None
    assert read_page("").running is None
