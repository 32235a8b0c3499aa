"""What the feedback policies read."""

import pytest

from tao_coordinator.core.model import Backend
from tao_coordinator.scheduling.rivals.sensors import TrailingHitRate, kv_usage_ratio


def backend(capacity: int | None = 100_000) -> Backend:
    return Backend(
        backend_id="b",
        base_url="http://b",
        capacity_override_tokens=capacity,
        capacity_scale=1.0,
    )


def test_kv_usage_is_the_engines_gauge_while_it_is_fresh() -> None:
    b = backend()
    b.cache.start("s", 40_000, 100_000)
    b.kv_usage_ratio, b.sampled_s = 0.9, 10.0
    assert kv_usage_ratio(b, 15.0, 5.0) == 0.9
    assert kv_usage_ratio(b, 15.1, 5.0) == 0.4


def test_kv_usage_counts_running_calls_and_not_idle_sessions() -> None:
    b = backend()
    b.cache.start("runs", 30_000, 100_000)
    b.cache.start("idle", 50_000, 100_000)
    b.cache.end("idle", 50_000, 100_000)
    for _ in range(2):
        b.shared_prefix.found(10_000)
    assert kv_usage_ratio(b, 0.0, 5.0) == pytest.approx(0.4)


def test_kv_usage_is_unknown_without_gauge_and_capacity() -> None:
    assert kv_usage_ratio(backend(None), 0.0, 5.0) is None


def test_hit_rate_counts_the_replies_of_the_window_only() -> None:
    b, hits = backend(), TrailingHitRate(60.0)
    assert hits.ratio is None
    replies: list[tuple[float, int, int]] = []
    for n in range(40):
        replies.append((n * 5.0, 1_000 + n, 25 * n))
        b.prompt_tokens += replies[-1][1]
        b.cached_tokens += replies[-1][2]
        hits.sample(b, n * 5.0)
        inside = [r for r in replies if r[0] > n * 5.0 - 60.0]
        expected = sum(r[2] for r in inside) / sum(r[1] for r in inside)
        assert hits.ratio == pytest.approx(expected)


def test_hit_rate_is_unknown_when_nothing_was_answered() -> None:
    b, hits = backend(), TrailingHitRate(60.0)
    b.prompt_tokens, b.cached_tokens = 1_000, 500
    hits.sample(b, 0.0)
    hits.sample(b, 61.0)
    assert hits.ratio is None
