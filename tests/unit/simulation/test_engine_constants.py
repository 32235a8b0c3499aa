import json
from pathlib import Path

import pytest

from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS, EngineConstants

REFERENCE = Path(__file__).parents[4] / "shared" / "traces" / "engine_constants.json"

LAW = {
    "d0": "decode_base_ms",
    "dB": "decode_per_sequence_ms",
    "dC": "decode_per_context_token_ms",
    "p0": "prefill_base_ms",
    "p1": "prefill_per_token_ms",
    "p2": "prefill_per_attention_ms",
}


def constants(**changes: float) -> EngineConstants:
    law = dict.fromkeys(LAW.values(), 0.0) | changes
    return EngineConstants(
        name="x",
        kv_capacity_tokens=1000,
        context_tokens_max=1000,
        kv_bytes_per_gpu_token=1,
        provenance="",
        **law,
    )


def test_default_preset_is_qwen3_32b_with_307k_tokens() -> None:
    assert PRESETS[DEFAULT_PRESET].name == "qwen3-32b-bf16-tp2"
    assert PRESETS[DEFAULT_PRESET].kv_capacity_tokens == 307_000


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_preset_is_complete(name: str) -> None:
    preset = PRESETS[name]
    assert preset.name == name
    assert preset.provenance
    assert preset.prefill_derate == 1.6
    assert all(getattr(preset, field) > 0 for field in LAW.values())
    assert preset.kv_capacity_tokens >= preset.context_tokens_max


def test_presets_equal_the_published_fit() -> None:
    if not REFERENCE.exists():
        pytest.skip(f"the study's constants are not in this checkout ({REFERENCE.name})")
    reference = json.loads(REFERENCE.read_text())
    engines = {name: row for name, row in reference.items() if name[0] != "_" and "d0" in row}
    assert set(engines) == set(PRESETS) - {"qwen3-coder-30b-a3b-fp8-tp2"}
    for name, row in engines.items():
        for short, field in LAW.items():
            assert getattr(PRESETS[name], field) == row[short], (name, short)
        if "kv_capacity_tokens" in row:
            assert PRESETS[name].kv_capacity_tokens == row["kv_capacity_tokens"]
    anchor = PRESETS["qwen3-coder-30b-a3b-fp8-tp2"]
    assert anchor.kv_capacity_tokens == reference["measured_anchor"]["kv_capacity_tokens"]


def test_decode_time_of_a_stretch_is_the_sum_of_its_steps() -> None:
    preset = PRESETS[DEFAULT_PRESET]
    context, total_s = 5000, 0.0
    for _ in range(7):
        total_s += preset.decode_s(1, 3, context)
        context += 3
    assert preset.decode_s(7, 3, 5000) == pytest.approx(total_s, rel=1e-12)


def test_decode_time_matches_the_published_examples() -> None:
    preset = PRESETS[DEFAULT_PRESET]
    assert preset.decode_s(1, 16, 16 * 16384) * 1000 == pytest.approx(25.2, abs=0.8)
    assert preset.decode_s(1, 64, 64 * 32768) * 1000 == pytest.approx(104, abs=1)


def test_prefill_step_takes_the_larger_of_base_and_linear_part() -> None:
    law = constants(
        prefill_base_ms=8, prefill_per_token_ms=0.01, decode_base_ms=5, decode_per_sequence_ms=1
    )
    assert law.prefill_step_s(0, 0, 100, 0.0) == pytest.approx(0.008)  # 1.6 ms of work
    assert law.prefill_step_s(0, 0, 1000, 0.0) == pytest.approx(0.016)
    assert law.prefill_step_s(4, 0, 100, 0.0) == pytest.approx(0.009)  # the decode part, 5 + 4
    assert law.prefill_step_s(4, 0, 1000, 0.0) == pytest.approx(0.016)


def test_prefill_step_adds_context_and_attention() -> None:
    law = constants(decode_per_context_token_ms=0.002, prefill_per_attention_ms=0.5)
    assert law.prefill_step_s(2, 1000, 1, 10.0) == pytest.approx((2 + 1.6 * 0.5 * 10) / 1000)


def test_reload_is_bound_by_one_gpus_link() -> None:
    # 64 layers x 8 heads x 128 x 2 x 2 bytes over two GPUs; 50 GB/s each.
    assert PRESETS[DEFAULT_PRESET].reload_tokens_per_s == 50e9 / (64 * 8 * 128 * 2 * 2 / 2)
