"""`--engine`: a preset's name, or a JSON file with the constants of an engine of one's own."""

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, cast

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.simulation.engine_constants import DEFAULT_PRESET, PRESETS, EngineConstants

_TYPES: Final[dict[str, type]] = {
    field.name: cast("type", field.type) for field in fields(EngineConstants)
}
_MAX: Final = 1e12
_BYTES_MAX: Final = 65_536


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """What is modelled."""
    parser.add_argument(
        "--engine",
        default=DEFAULT_PRESET,
        metavar="PRESET|FILE",
        help="whose step times and KV pool: "
        + ", ".join(sorted(PRESETS))
        + '; or a JSON file, {"base": PRESET, "name": ..., "decode_base_ms": ..., ...}, with what'
        " differs from the preset (default %(default)s)",
    )


def engine_of(text: str) -> EngineConstants:
    """The constants that `--engine` names.

    Raises:
        ConfigurationError: there are none, or a value makes no sense; the message names it.
    """
    if text in PRESETS:
        return PRESETS[text]
    path = Path(text)
    try:
        if not path.is_file():
            raise ConfigurationError(
                f"--engine {text}: neither a file nor one of {', '.join(sorted(PRESETS))}"
            )
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise ConfigurationError(f"--engine {text}: more than {_BYTES_MAX} bytes")
        given = json.loads(data)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"--engine {text}: {error}") from error
    if not isinstance(given, dict):
        raise ConfigurationError(f"--engine {text}: a JSON object is needed")
    try:
        return _constants(cast("dict[str, Any]", given), path)
    except ValueError as error:
        raise ConfigurationError(f"--engine {text}: {error}") from error


def _constants(given: dict[str, Any], path: Path) -> EngineConstants:
    base = given.pop("base", None)
    if base is not None and (not isinstance(base, str) or base not in PRESETS):
        raise ValueError(f"base must be one of {', '.join(sorted(PRESETS))}")
    facts: dict[str, Any] = {
        "name": path.stem,
        "provenance": f"As given in {path.name}.",
        "prefill_derate": 1.0,
    }
    if base is not None:
        facts = asdict(PRESETS[base]) | {"name": path.stem}
        facts["provenance"] = f"As given in {path.name}; what is not there: {facts['provenance']}"
    for name, value in given.items():
        if name not in _TYPES:
            raise ValueError(f"unknown key {name!r}; known are base, {', '.join(_TYPES)}")
        facts[name] = _checked(name, value)
    missing = [name for name in _TYPES if name not in facts]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; name a base, or all of them")
    return EngineConstants(**facts)


def _checked(name: str, value: object) -> object:
    kind = _TYPES[name]
    if kind is str:
        if not isinstance(value, str) or not value or len(value) > 500 or not value.isprintable():
            raise ValueError(f"{name} must be a short text")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= _MAX:
        raise ValueError(f"{name} must be a number from 0 to {_MAX:g}")
    if kind is int:
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1")
        return int(value)
    if value == 0.0 and name in ("decode_base_ms", "prefill_derate"):
        raise ValueError(f"{name} must be above 0")  # else time would stand still
    return float(value)
