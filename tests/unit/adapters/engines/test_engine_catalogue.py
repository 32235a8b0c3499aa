"""Which engine a page belongs to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.adapters.engines.catalogue import paths_of, source_of


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("/metrics", "# HELP x\nvllm:num_requests_running 1\n", "vllm"),
        ("/metrics", "sglang:num_running_reqs 1\n", "sglang"),
        ("/metrics", "vllm:num_requests_running 1\ndynamo_component_uptime 2\n", "dynamo"),
        ("/metrics", '[{"iter": 1}]', "tensorrt-llm"),
        ("/prometheus/metrics", "trtllm_num_requests_running 1\n", "tensorrt-llm"),
    ],
)
def test_engine_is_told_from_its_page(path: str, text: str, kind: str) -> None:
    source = source_of("auto", path, text)
    assert source is not None
    assert source.kind == kind
    assert source_of(kind, path, text) is source


@pytest.mark.parametrize("text", ["", "<html>vllm:</html>", "llamacpp:requests 1", "go_threads 5"])
def test_other_pages_are_nobodys(text: str) -> None:
    assert source_of("auto", "/metrics", text) is None


def test_said_kind_is_the_only_one_looked_for() -> None:
    assert source_of("sglang", "/metrics", "vllm:num_requests_running 1\n") is None
    assert paths_of("vllm") == ("/metrics",)
    assert paths_of("tensorrt-llm") == ("/prometheus/metrics", "/metrics")
    assert paths_of("openai") == ()
    assert set(paths_of("tensorrt-llm")) < set(paths_of("auto"))


@given(st.text(max_size=200), st.sampled_from(["vllm:", "sglang:", "trtllm_", "dynamo_", "[", ""]))
def test_any_text_gives_a_reading_or_nothing(text: str, start: str) -> None:
    for path in paths_of("auto"):
        source = source_of("auto", path, start + text)
        if source is not None:
            assert source.read(start + text, None).capacity_tokens != 0
