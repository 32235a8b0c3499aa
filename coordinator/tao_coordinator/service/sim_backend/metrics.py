"""The engine's counts under vLLM's names, in Prometheus text."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tao_coordinator.service.sim_backend.driver import BackendDriver


def build_registry(driver: BackendDriver, model_name: str) -> CollectorRegistry:
    """Return a registry of its own that reads the engine at every scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_EngineCollector(driver, model_name))
    return registry


class _EngineCollector(Collector):
    def __init__(self, driver: BackendDriver, model_name: str) -> None:
        self._driver = driver
        self._labels = {"model_name": model_name, "engine": "0"}

    def collect(self) -> Iterable[Metric]:
        snapshot = self._driver.snapshot()
        model = self._driver.model
        config = {
            **self._labels,
            "block_size": str(model.block_size),
            "num_gpu_blocks": str(snapshot.num_blocks),
            "kv_cache_size_tokens": str(model.capacity_tokens),
            "enable_prefix_caching": "True",
        }
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=list(config),
        )
        info.add_metric(list(config.values()), 1.0)
        yield info
        for name, text, value in (
            ("num_requests_running", "Requests in model execution batches.", snapshot.running),
            ("num_requests_waiting", "Requests waiting to be processed.", snapshot.waiting),
            (
                "kv_cache_usage_perc",
                "Part of the KV blocks that requests reference; 1 means all.",
                snapshot.used_blocks / snapshot.num_blocks,
            ),
        ):
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
            gauge.add_metric(list(self._labels.values()), value)
            yield gauge
        for name, text, value in (
            (
                "prefix_cache_queries",
                "Prefix cache queries, in tokens.",
                snapshot.prefix_queries_tokens,
            ),
            ("prefix_cache_hits", "Prefix cache hits, in tokens.", snapshot.prefix_hits_tokens),
            ("num_preemptions", "Preemptions by the engine.", snapshot.preemptions),
            ("prompt_tokens", "Prefill tokens processed.", snapshot.prompt_tokens),
            ("generation_tokens", "Generation tokens processed.", snapshot.generation_tokens),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
            counter.add_metric(list(self._labels.values()), value)
            yield counter
        success = CounterMetricFamily(
            "vllm:request_success",
            "Requests that have ended, by reason.",
            labels=[*self._labels, "finished_reason"],
        )
        reasons = self._driver.finish_reasons
        # vLLM's engine knows no tool calls: such a reply has stopped.
        stopped = reasons["stop"] + reasons["tool_calls"]
        for reason, value in (
            ("stop", stopped),
            ("length", reasons["length"]),
            ("abort", reasons["abort"]),
        ):
            success.add_metric([*self._labels.values(), reason], value)
        yield success
