"""Scripts: what the modelled engine answers, turn by turn, so that real agents get real tool calls.

A script file is `{"scripts": {NAME: {"turns": [{"text", "tool_calls", "output_tokens"}, ...]}}}`. A
request plays NAME when one of its messages contains `[[script NAME]]`; which turn follows from the
number of assistant messages in the request, so a repeated request gets the same answer.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.sim_backend.rendering import (
    RenderedCall,
    RenderedMessage,
    canonical_json,
)

MARKER: Final = re.compile(r"\[\[script ([^\[\]]+)\]\]")
FINAL_TEXT: Final = "The task is complete."
"""Said in every turn past a script's last one."""


@dataclass(frozen=True, slots=True)
class ScriptTurn:
    """One scripted reply."""

    text: str
    tool_calls: tuple[RenderedCall, ...] = ()
    output_tokens: int | None = None
    """Length of the reply; `None`: as long as it naturally is."""


class ScriptLibrary:
    """The scripts of one file, by name."""

    def __init__(self, scripts: Mapping[str, tuple[ScriptTurn, ...]] | None = None) -> None:
        self._scripts = dict(scripts or {})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the scripts, in the file's order."""
        return tuple(self._scripts)

    def turn_for(self, messages: Iterable[RenderedMessage]) -> ScriptTurn | None:
        """Return the scripted reply to a chat; `None` when it names no script of this library."""
        turns: tuple[ScriptTurn, ...] | None = None
        number = 0
        for message in messages:
            number += message.role == "assistant"
            if turns is None:
                for match in MARKER.finditer(message.content):
                    turns = turns or self._scripts.get(match.group(1).strip())
        if turns is None:
            return None
        return turns[number] if number < len(turns) else ScriptTurn(FINAL_TEXT)


def load_scripts(path: Path) -> ScriptLibrary:
    """Read and check a script file.

    Raises:
        ConfigurationError: It cannot be read or is not as described above; one line that says
            where.
    """
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read script file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"script file {path} is no JSON: {error}") from error
    try:
        return parse_scripts(document)
    except ConfigurationError as error:
        raise ConfigurationError(f"script file {path}: {error}") from error


def parse_scripts(document: object) -> ScriptLibrary:
    """Check the content of a script file.

    Raises:
        ConfigurationError: It is not as described above; the message names the place.
    """
    top = _object(document, "the file", allowed=("scripts",))
    scripts: dict[str, tuple[ScriptTurn, ...]] = {}
    for name, script in _object(top.get("scripts"), "scripts").items():
        where = f"scripts.{name}"
        if not name.strip() or MARKER.fullmatch(f"[[script {name}]]") is None:
            raise ConfigurationError(f"{where}: a name is not blank and has no square brackets")
        turns = _list(_object(script, where, allowed=("turns",)).get("turns"), f"{where}.turns")
        if not turns:
            raise ConfigurationError(f"{where}.turns: has no turns")
        scripts[name.strip()] = tuple(
            _turn(turn, f"{where}.turns[{index}]") for index, turn in enumerate(turns)
        )
    return ScriptLibrary(scripts)


def _turn(value: object, where: str) -> ScriptTurn:
    turn = _object(value, where, allowed=("text", "tool_calls", "output_tokens"))
    text = turn.get("text", "")
    if not isinstance(text, str):
        raise ConfigurationError(f"{where}.text: must be a string")
    output_tokens = turn.get("output_tokens")
    if output_tokens is not None and (type(output_tokens) is not int or output_tokens < 1):
        raise ConfigurationError(f"{where}.output_tokens: must be a whole number above 0")
    calls = _list(turn.get("tool_calls", []), f"{where}.tool_calls")
    if not text and not calls:
        raise ConfigurationError(f"{where}: needs a text or a tool call")
    return ScriptTurn(
        text,
        tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
        output_tokens,
    )


def _call(value: object, where: str) -> RenderedCall:
    call = _object(value, where, allowed=("name", "arguments"))
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{where}.name: must be a string that is not empty")
    arguments = _object(call.get("arguments"), f"{where}.arguments")
    return RenderedCall(name, canonical_json(arguments))


def _object(
    value: object, where: str, *, allowed: tuple[str, ...] | None = None
) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: must be an object")
    mapping = cast("dict[str, object]", value)
    if allowed is not None:
        for key in mapping:
            if key not in allowed:
                known = ", ".join(allowed)
                raise ConfigurationError(f"{where}: unknown key {key!r} (known: {known})")
    return mapping


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise ConfigurationError(f"{where}: must be a list")
    return cast("list[object]", value)
