"""An engine of one's own: what its file may say, and what happens to one that makes no sense."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tao_coordinator.cli.engine_choice import engine_of
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.simulation.engine_constants import PRESETS

BASE = PRESETS["glm-4.7-fp8-tp8ep8"]


def written(folder: Path, value: object) -> str:
    path = folder / "mine.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_name_of_a_preset_is_that_preset(name: str) -> None:
    assert engine_of(name) is PRESETS[name]


def test_file_says_what_differs_from_its_base(tmp_path: Path) -> None:
    text = written(tmp_path, {"base": BASE.name, "decode_base_ms": 9, "kv_capacity_tokens": 1e6})
    found = engine_of(text)
    assert (found.decode_base_ms, found.kv_capacity_tokens) == (9.0, 1_000_000)
    assert found.name == "mine" and found.provenance.startswith("As given in mine.json")
    told = {"name": BASE.name, "provenance": BASE.provenance}
    told |= {"decode_base_ms": BASE.decode_base_ms, "kv_capacity_tokens": BASE.kv_capacity_tokens}
    assert asdict(found) | told == asdict(BASE)


def test_file_without_a_base_says_everything(tmp_path: Path) -> None:
    facts = asdict(BASE) | {"name": "all my own", "prefill_derate": 1.2}
    assert asdict(engine_of(written(tmp_path, facts))) == facts


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("not JSON", "Expecting value"),
        ([1], "a JSON object is needed"),
        ("[" * 60_000, "--engine"),
        (" " * 65_537, "more than 65536 bytes"),
        ({"decode_base_ms": 9}, "missing; name a base, or all of them"),
        ({"base": "tpu"}, "base must be one of"),
        ({"base": ["x"]}, "base must be one of"),
        ({"base": BASE.name, "decode_ms": 9}, "unknown key 'decode_ms'"),
        ({"base": BASE.name, "decode_base_ms": 0}, "decode_base_ms must be a number from 0.001"),
        ({"base": BASE.name, "decode_base_ms": 1e12}, "a number from 0.001 to 100000"),
        (
            {"base": BASE.name, "prefill_derate": 5e-324},
            "prefill_derate must be a number from 0.01",
        ),
        (
            {"base": BASE.name, "prefill_per_token_ms": 1e5},
            "a step of 8,192 new prompt tokens would take 1,310,720.0 s; at most 100 s",
        ),
        (
            {"base": BASE.name, "prefill_per_attention_ms": 1.0},
            "a step of 8,192 new prompt tokens would take",
        ),
        (
            {"base": BASE.name, "decode_base_ms": 6e4, "decode_per_sequence_ms": 6e4},
            "a decode step of one sequence would take 120.0 s; at most 100 s",
        ),
        (
            {"base": BASE.name, "decode_per_context_token_ms": 13},
            "a decode step of one sequence would take 106.5 s; at most 100 s",
        ),
        ({"base": BASE.name, "k" * 60_000: 1}, "'" + "k" * 40 + "'; known are base, name"),
        ({"base": BASE.name, "prefill_base_ms": -1}, "prefill_base_ms must be a number"),
        ({"base": BASE.name, "prefill_base_ms": True}, "prefill_base_ms must be a number"),
        ({"base": BASE.name, "kv_capacity_tokens": 1.5}, "whole number"),
        ({"base": BASE.name, "kv_capacity_tokens": 0}, "whole number"),
        ({"base": BASE.name, "name": ""}, "name must be a short text"),
        ({"base": BASE.name, "name": "a\nb"}, "name must be a short text"),
        ('{"base": "glm-4.7-fp8-tp8ep8", "decode_base_ms": NaN}', "must be a number"),
        ('{"base": "glm-4.7-fp8-tp8ep8", "decode_base_ms": 1e999}', "must be a number"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    tmp_path: Path, value: object, words: str
) -> None:
    with pytest.raises(ConfigurationError, match="--engine") as caught:
        engine_of(written(tmp_path, value))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("--engine") == 1
    assert len(str(caught.value)) < 1_000


def test_name_of_a_file_that_cannot_be_shown_is_not_the_engine_s(tmp_path: Path) -> None:
    for number, name in enumerate(("\udcff.json", "a\nb.json")):
        path = tmp_path / name
        path.write_text(json.dumps({"base": BASE.name}), encoding="utf-8")
        with pytest.raises(ConfigurationError, match="name must be a short text"):
            engine_of(str(path))
        path.write_text(json.dumps({"base": BASE.name, "name": f"e{number}"}), encoding="utf-8")
        found = engine_of(str(path))
        assert found.name == f"e{number}"
        assert found.provenance.isprintable()


def test_neither_a_preset_nor_a_file() -> None:
    with pytest.raises(ConfigurationError, match="neither a file nor one of deepseek-v3"):
        engine_of("tpu")


def test_name_too_long_for_any_file() -> None:
    with pytest.raises(ConfigurationError, match=r"--engine a+: .*too long"):
        engine_of("a" * 5_000)
