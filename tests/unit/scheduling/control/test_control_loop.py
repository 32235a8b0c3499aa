"""What a backend's estimate is made from, and when it begins anew."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendAdded, BackendDrained, BackendRemoved, BackendSampled


def misreported(d: EngineDriver) -> float:
    """Two windows full of misses; the factor that they leave."""
    for _ in range(2):
        evidence = d.engine.state.backends["b0"].evidence
        evidence.prompt_tokens, evidence.surplus_tokens = 200_000, -200_000
        d.idle(1.1)
    return d.engine.state.backends["b0"].capacity_factor


@pytest.mark.parametrize(
    "change",
    [
        [BackendAdded(backend_id="b0", base_url="http://another")],
        [BackendAdded(backend_id="b0", base_url="http://b0", capacity_tokens=50_000)],
        [BackendAdded(backend_id="b0", base_url="http://b0", capacity_scale=0.5)],
        [
            BackendDrained(backend_id="b0"),
            BackendRemoved(backend_id="b0"),
            BackendAdded(backend_id="b0", base_url="http://b0"),
        ],
    ],
)
def test_estimate_begins_anew_with_another_engine_or_capacity(change: list[BackendAdded]) -> None:
    d = EngineDriver(100_000)
    d.turn("s", 1_000)
    assert misreported(d) == pytest.approx(1.0 - 2 * 0.09)
    d.step(*change)
    d.step(BackendSampled(backend_id="b0", capacity_tokens=100_000))
    assert d.engine.state.backends["b0"].capacity_factor == 1.0
    assert misreported(d) == pytest.approx(1.0 - 2 * 0.09)


def test_estimate_stays_where_nothing_changes() -> None:
    d = EngineDriver(100_000)
    d.turn("s", 1_000)
    misreported(d)
    d.step(BackendAdded(backend_id="b0", base_url="http://b0"))
    assert misreported(d) == pytest.approx(1.0 - 4 * 0.09)


def test_another_engine_under_the_same_name_is_learned_anew() -> None:
    d = EngineDriver(100_000, models=("old",))
    for n in range(3):
        request_id = d.ask(f"s{n}", 10_000)
        d.done(request_id, cached_tokens=4_000, ttft_s=1.0, output_tokens=100, duration_s=2.0)
        d.end(f"s{n}")
    backend = d.engine.state.backends["b0"]
    assert backend.shared_prefix.tokens == 4_000
    assert backend.rates.prefill_tokens_per_s is not None
    d.step(BackendAdded(backend_id="b0", base_url="http://another"))
    d.step(BackendSampled(backend_id="b0", capacity_tokens=90_000))
    assert (backend.shared_prefix.tokens, backend.rates.prefill_tokens_per_s) == (0, None)
    assert backend.serves("new")
    assert not backend.reports.tells
