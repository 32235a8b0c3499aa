"""Tables of settings become backends, or one error that names the key."""

import pytest

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.backend_settings import backends_of


def test_smallest_table_is_a_url() -> None:
    assert backends_of({"base_url": "http://gpu-1:8000/v1/"}) == (
        BackendConfig(backend_id="gpu-1:8000", base_url="http://gpu-1:8000"),
    )


def test_every_setting_arrives() -> None:
    table: dict[str, object] = {
        "backend_id": "a",
        "base_url": "http://a",
        "capacity_tokens": 5,
        "capacity_scale": 0.5,
        "host_tier_tokens": 50,
        "host_reload_tokens_per_s": 1_000,
        "engine_kind": "vllm",
        "metrics_url": "http://m:1",
        "gateway": "llm-d",
        "gateway_target": "ns/pod",
        "kv_events_url": "tcp://a:5557",
        "api_key": "secret",
    }
    (backend,) = backends_of(table)
    assert backend == BackendConfig(**table)  # pyright: ignore[reportArgumentType]


def test_ranks_become_backends_with_their_own_event_ports() -> None:
    table: dict[str, object] = {
        "backend_id": "a",
        "base_url": "http://a",
        "data_parallel_ranks": 2,
        "kv_events_url": "tcp://a:5557",
    }
    first, second = backends_of(table)
    assert (first.backend_id, first.data_parallel_rank) == ("a-dp0", 0)
    assert (second.backend_id, second.data_parallel_rank) == ("a-dp1", 1)
    assert (first.kv_events_url, second.kv_events_url) == ("tcp://a:5557", "tcp://a:5558")


@pytest.mark.parametrize(
    ("table", "culprit"),
    [
        ({}, "base_url is missing"),
        ({"base_url": 5}, "base_url must be text"),
        ({"base_url": "gpu-1"}, "no http"),
        ({"base_url": "http://a", "capacity": 5}, "unknown key 'capacity'"),
        ({"base_url": "http://a", "capacity_tokens": "5"}, "capacity_tokens must be int"),
        ({"base_url": "http://a", "capacity_tokens": True}, "capacity_tokens must be int"),
        ({"base_url": "http://a", "host_tier_tokens": 5}, "go together"),
        ({"base_url": "http://a", "host_tier_tokens": 5.5}, "host_tier_tokens must be int"),
        (
            {"base_url": "http://a", "host_reload_tokens_per_s": "fast", "host_tier_tokens": 5},
            "host_reload_tokens_per_s must be int or float",
        ),
        ({"base_url": "http://a", "redirect": 1}, "redirect must be bool"),
        ({"base_url": "http://a", "engine_kind": "ollama"}, "engine_kind"),
        ({"base_url": "http://a", "data_parallel_ranks": 0}, "data_parallel_ranks"),
        ({"base_url": "http://a", "data_parallel_ranks": 10**9}, "data_parallel_ranks"),
        ({"base_url": "http://a", "gateway": "llm-d"}, "NAMESPACE/POD"),
        ({"base_url": "http://a", "kv_events_url": "http://a"}, "kv_events_url"),
        ({"base_url": "http://a", "kv_events_replay_url": "tcp://a:1"}, "needs kv_events_url"),
        ({"base_url": "http://a:99999"}, "99999|range"),
    ],
)
def test_nonsense_is_refused_by_the_name_of_its_key(table: dict[str, object], culprit: str) -> None:
    with pytest.raises(ConfigurationError, match=culprit):
        backends_of(table)


def test_key_is_in_no_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        backends_of({"base_url": "http://a", "api_key": "gehört-mir"})
    assert "gehört" not in str(caught.value)
