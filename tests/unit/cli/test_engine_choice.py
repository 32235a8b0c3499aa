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
        ({"base": BASE.name, "decode_base_ms": 0}, "above 0"),
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


def test_neither_a_preset_nor_a_file() -> None:
    with pytest.raises(ConfigurationError, match="neither a file nor one of deepseek-v3"):
        engine_of("tpu")


def test_name_too_long_for_any_file() -> None:
    with pytest.raises(ConfigurationError, match=r"--engine a+: .*too long"):
        engine_of("a" * 5_000)
