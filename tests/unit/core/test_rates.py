"""What a backend's finished calls teach about its speed."""

import pytest

from tao_coordinator.core.rates import BackendRates


def learn(rates: BackendRates, uncached: int, ttft_s: float | None, **more: float) -> None:
    rates.learn_prefill(uncached_tokens=uncached, ttft_s=ttft_s)
    rates.learn_decoding(
        output_tokens=int(more["output"]) if "output" in more else None,
        ttft_s=ttft_s,
        duration_s=more.get("duration_s"),
    )


def test_prefill_rate_is_the_ninetieth_percentile_of_cold_calls() -> None:
    rates = BackendRates()
    for thousand in range(1, 11):
        learn(rates, thousand * 10_000, 10.0)
    assert rates.prefill_tokens_per_s == 10_000.0


@pytest.mark.parametrize(("uncached", "ttft_s"), [(4_095, 1.0), (50_000, None)])
def test_prefill_rate_ignores_calls_that_say_nothing(uncached: int, ttft_s: float | None) -> None:
    rates = BackendRates()
    learn(rates, uncached, ttft_s)
    assert rates.prefill_tokens_per_s is None


def test_refill_price_is_pool_over_rate_and_clipped() -> None:
    rates = BackendRates()
    assert rates.refill_s(300_000, prior_s=60.0, bounds_s=(5.0, 300.0)) == 60.0
    learn(rates, 50_000, 5.0)  # 10,000 tokens/s
    assert rates.refill_s(300_000, prior_s=60.0, bounds_s=(5.0, 300.0)) == 30.0
    assert rates.refill_s(10_000, prior_s=60.0, bounds_s=(5.0, 300.0)) == 5.0
    assert rates.refill_s(9_000_000, prior_s=60.0, bounds_s=(5.0, 300.0)) == 300.0
    assert rates.refill_s(None, prior_s=60.0, bounds_s=(5.0, 300.0)) == 60.0


def test_slowdown_compares_decoding_now_with_an_idle_backend() -> None:
    rates = BackendRates()
    assert rates.slowdown == 1.0
    for _ in range(50):
        learn(rates, 0, 1.0, output=101, duration_s=2.0)  # 10 ms a token
    assert rates.slowdown == pytest.approx(1.0)
    for _ in range(400):
        learn(rates, 0, 1.0, output=101, duration_s=5.0)  # 40 ms a token
    assert rates.slowdown == pytest.approx(4.0, rel=0.01)


def test_slowdown_ignores_short_outputs_and_is_bounded() -> None:
    rates = BackendRates()
    for _ in range(60):
        learn(rates, 0, 1.0, output=31, duration_s=100.0)
    assert rates.slowdown == 1.0
    for _ in range(50):
        learn(rates, 0, 1.0, output=101, duration_s=1.1)
    for _ in range(500):
        learn(rates, 0, 1.0, output=101, duration_s=101.0)
    assert rates.slowdown == 20.0
