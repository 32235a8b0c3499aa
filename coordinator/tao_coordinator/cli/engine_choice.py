"""`--engine`: a preset's name, or a JSON file with the constants of an engine of one's own."""

import argparse
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, cast

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.simulation.backend_model import TOKEN_BUDGET
from tao_coordinator.simulation.engine_constants import (
    DEFAULT_PRESET,
    MS_PER_S,
    PRESETS,
    EngineConstants,
)

_TYPES: Final[dict[str, type]] = {
    field.name: cast("type", field.type) for field in fields(EngineConstants)
}
_MAX: Final = 1e12
_MS_MAX: Final = 1e5
"""Of a step of any kind; a run of longer ones would never end."""
_RANGES: Final = {"decode_base_ms": (1e-3, _MS_MAX), "prefill_derate": (1e-2, 1e2)}
"""Where others than 0 to a most: without them time would stand still."""
_KEY_SHOWN: Final = 40
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
            raise ValueError(f"neither a file nor one of {', '.join(sorted(PRESETS))}")
        with path.open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
        if len(data) > _BYTES_MAX:
            raise ValueError(f"more than {_BYTES_MAX} bytes")
        given = json.loads(data)
        if not isinstance(given, dict):
            raise ValueError("a JSON object is needed")
        return _constants(cast("dict[str, Any]", given), path)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"--engine {text}: {error}") from error


def _constants(given: dict[str, Any], path: Path) -> EngineConstants:
    base = given.pop("base", None)
    if base is not None and (not isinstance(base, str) or base not in PRESETS):
        raise ValueError(f"base must be one of {', '.join(sorted(PRESETS))}")
    source = f"As given in {path.name}." if path.name.isprintable() else "As given in a file."
    facts: dict[str, Any] = {"provenance": source, "prefill_derate": 1.0}
    if base is not None:
        facts = asdict(PRESETS[base])
        facts["provenance"] = f"{source} What is not there: {facts['provenance']}"
    for name, value in ({"name": path.stem} | given).items():
        if name not in _TYPES:
            known = f"known are base, {', '.join(_TYPES)}"
            raise ValueError(f"unknown key {name[:_KEY_SHOWN]!r}; {known}")
        facts[name] = _checked(name, value)
    missing = [name for name in _TYPES if name not in facts]
    if missing:
        raise ValueError(f"{', '.join(missing)} missing; name a base, or all of them")
    found = EngineConstants(**facts)
    _check_steps(found)
    return found


def _check_steps(constants: EngineConstants) -> None:
    """Each constant may be what it is, and all of them together make no sense."""
    attention = TOKEN_BUDGET * TOKEN_BUDGET / 2
    for what, step_s in (
        (
            f"a step of {TOKEN_BUDGET:,} new prompt tokens",
            constants.prefill_step_s(0, 0, TOKEN_BUDGET, attention),
        ),
        ("a decode step of one sequence", constants.decode_s(1, 1, TOKEN_BUDGET)),
    ):
        if step_s * MS_PER_S > _MS_MAX:
            raise ValueError(f"{what} would take {step_s:,.1f} s; at most {_MS_MAX / MS_PER_S:g} s")


def _checked(name: str, value: object) -> object:
    kind = _TYPES[name]
    if kind is str:
        if not isinstance(value, str) or not value or len(value) > 500 or not value.isprintable():
            raise ValueError(f"{name} must be a short text")
        return value
    least, most = _RANGES.get(name, (0.0, _MS_MAX if name.endswith("_ms") else _MAX))
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}")
    if kind is int:
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1")
        return int(value)
    return float(value)
