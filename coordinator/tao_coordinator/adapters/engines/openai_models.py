"""What every OpenAI-compatible server has: its list of models. For unknown engines that is all.

Without metrics the KV capacity is unknown: nothing is held for the sake of such a backend until the
operator gives its capacity.
"""

from typing import Final, cast

import orjson

from tao_coordinator.errors import MalformedPage

KIND: Final = "openai"
PATH: Final = "/v1/models"

_MODELS_MAX = 1_024
_NAME_LENGTH_MAX = 256


def models_from_reply(body: bytes) -> tuple[str, ...]:
    """Names served according to `GET /v1/models`, each once.

    Raises:
        MalformedPage: The body is no model list.
    """
    try:
        reply: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedPage(f"{PATH} is no JSON") from error
    entries = cast("dict[str, object]", reply).get("data") if isinstance(reply, dict) else None
    if not isinstance(entries, list):
        raise MalformedPage(f"{PATH} has no list `data`")
    names: dict[str, None] = {}
    for entry in cast("list[object]", entries)[:_MODELS_MAX]:
        name = cast("dict[str, object]", entry).get("id") if isinstance(entry, dict) else None
        if isinstance(name, str) and 0 < len(name) <= _NAME_LENGTH_MAX:
            names[name] = None
    return tuple(names)
