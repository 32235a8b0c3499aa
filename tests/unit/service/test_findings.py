"""What is told to the operator of a backend that answers: with the fix in it, and nothing else."""

import pytest

from tao_coordinator.adapters.engines.reading import EngineReading, Source
from tao_coordinator.config import BackendConfig
from tao_coordinator.service.findings import Finding, findings_of
from tao_coordinator.service.probe import Look


def codes(reading: EngineReading | None, **settings: object) -> list[str]:
    return [finding.code for finding in found(reading, **settings)]


def found(reading: EngineReading | None, **settings: object) -> list[Finding]:
    source = None
    hint, problem = str(settings.pop("hint", "")), str(settings.pop("problem", ""))
    if reading is not None:
        source = Source(
            "vllm", "/metrics", lambda _: True, lambda _text, _rank: EngineReading(), hint
        )
    backend = BackendConfig(backend_id="b", base_url="http://b:1", **settings)  # pyright: ignore
    kind = "vllm" if source else "openai"
    return findings_of(
        backend,
        Look(
            kind=kind,
            source=source,
            reading=reading or EngineReading(),
            models=(),
            problem=problem,
        ),
    )


GOOD = EngineReading(capacity_tokens=1000, running=0, has_prefix_cache=True)


def test_good_backend_has_none() -> None:
    assert codes(GOOD) == []
    assert codes(GOOD, capacity_tokens=900) == []
    assert codes(GOOD, host_tier_tokens=1001, host_reload_tokens_per_s=5.0) == []


@pytest.mark.parametrize(
    ("reading", "settings", "code", "fix"),
    [
        (None, {}, "capacity_unknown", "--capacity b=TOKENS"),
        (EngineReading(), {}, "capacity_unknown", "--capacity b=TOKENS"),
        (GOOD, {"capacity_tokens": 2000}, "capacity_override", "drop --capacity for b"),
        (
            GOOD,
            {"host_tier_tokens": 1000, "host_reload_tokens_per_s": 5.0},
            "host_tier_small",
            "pool and host together",
        ),
        (EngineReading(capacity_tokens=9, num_ranks=8), {}, "several_ranks", "b=8"),
        (EngineReading(capacity_tokens=9), {"data_parallel_rank": 7}, "no_such_rank", "ranks"),
        (
            EngineReading(capacity_tokens=9, has_prefix_cache=False),
            {},
            "no_prefix_cache",
            "--enable-prefix-caching",
        ),
        (None, {"gateway": "smg"}, "capacity_unknown", "metrics_url"),
        (GOOD, {"hint": "--enable-metrics"}, "poor_metrics", "--enable-metrics"),
        (GOOD, {"problem": "/v1/models is no JSON"}, "no_model_list", "URL"),
    ],
)
def test_each_defect_is_told_with_its_fix(
    reading: EngineReading | None, settings: dict[str, object], code: str, fix: str
) -> None:
    (finding,) = found(reading, **settings)
    assert finding.code == code
    assert fix in finding.fix
    assert fix in str(finding)


def test_override_silences_the_unknown_capacity() -> None:
    assert codes(None, capacity_tokens=5000) == []
