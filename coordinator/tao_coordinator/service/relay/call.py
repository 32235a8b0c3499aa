"""What the body of a relayed call says, and the body that is sent on.

The client's bytes are kept as they are. Two things are spliced in where they must be: the served
model's name for an alias, and the request for usage that the client did not make.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, cast

import orjson

from tao_client.semconv import TOKENS_MAX
from tao_coordinator.errors import MalformedRequest
from tao_coordinator.service.relay.dialects import Endpoint
from tao_coordinator.service.schemas import NAME_LENGTH_MAX

INLINE_DATA_CHARS: Final = 4_000
"""What an inline image or file is taken to add to a prompt, in characters (about 1,000 tokens)."""

_INLINE_DATA = re.compile(rb";base64,[A-Za-z0-9+/=_-]{256,}")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")

Aliases = Sequence[tuple[str, str]]
"""Pattern and served model, in order."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call to a model, as far as it concerns scheduler and relay."""

    endpoint: Endpoint
    model: str
    """The served model: an alias is resolved."""
    wants_stream: bool
    takes_usage_out: bool
    """The client streams without asking for usage: it is asked for and taken out again."""
    is_rewritten: bool
    """The model's name was replaced: the client's own bytes would not do."""
    input_chars: int
    max_output_tokens: int | None
    content: bytes
    """The body to send to a backend."""


def read_call(
    endpoint: Endpoint, body: bytes, aliases: Aliases
) -> tuple[ModelCall, dict[str, object]]:
    """The call, and the document it was read from.

    Raises:
        MalformedRequest: No JSON object, or a model that is no name.
    """
    document = _parse(body)
    name = document.get("model")
    if name is None:
        name = ""
    if not isinstance(name, str) or len(name) > NAME_LENGTH_MAX:
        raise MalformedRequest(f"model must be a string of at most {NAME_LENGTH_MAX} characters")
    model = resolve(name, aliases)
    content = body if model == name else _with_model(body, document, name, model)
    wants_stream = document.get("stream") is True
    takes_usage_out = endpoint.takes_stream_options and wants_stream and _lacks_usage(document)
    if takes_usage_out:
        content = _with_usage(content, document)
    call = ModelCall(
        endpoint=endpoint,
        model=model,
        wants_stream=wants_stream,
        takes_usage_out=takes_usage_out,
        is_rewritten=model != name,
        input_chars=_count_chars(body),
        max_output_tokens=_output_limit(document),
        content=content,
    )
    return call, document


def resolve(name: str, aliases: Aliases) -> str:
    """The served model that `name` means."""
    for pattern, model in aliases:
        if fnmatchcase(name, pattern):
            return model
    return name


def _parse(body: bytes) -> dict[str, object]:
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        # Python's reader takes what some clients send and engines accept: escaped lone surrogates.
        try:
            document = json.loads(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            raise MalformedRequest("body must be JSON in UTF-8") from None
    if not isinstance(document, dict):
        raise MalformedRequest("body must be a JSON object")
    return cast("dict[str, object]", document)


def _with_model(body: bytes, document: dict[str, object], name: str, model: str) -> bytes:
    document["model"] = model
    given = rb'"model"(\s*:\s*)' + re.escape(orjson.dumps(name))
    places = list(re.finditer(given, body))
    if len(places) == 1 and body.count(b'"model"') == 1:
        place = places[0]
        renamed = b'"model"' + place[1] + orjson.dumps(model)
        return body[: place.start()] + renamed + body[place.end() :]
    return _written(document)


def _with_usage(content: bytes, document: dict[str, object]) -> bytes:
    if "stream_options" not in document:
        # The common case without writing a long prompt out again.
        return content.rstrip()[:-1] + b',"stream_options":{"include_usage":true}}'
    options = document["stream_options"]
    asked = {**cast("dict[str, object]", options)} if isinstance(options, dict) else {}
    asked["include_usage"] = True
    return _written({**document, "stream_options": asked})


def _written(document: dict[str, object]) -> bytes:
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return json.dumps(document, separators=(",", ":")).encode("ascii")


def _lacks_usage(document: dict[str, object]) -> bool:
    options = document.get("stream_options")
    return not (
        isinstance(options, dict) and cast("dict[str, object]", options).get("include_usage")
    )


def _output_limit(document: dict[str, object]) -> int | None:
    for name in _LIMITS:
        limit = document.get(name)
        if type(limit) is int and 0 < limit <= TOKENS_MAX:
            return limit
    return None


def _count_chars(body: bytes) -> int:
    if b";base64," not in body:
        return len(body)
    return sum(len(part) + INLINE_DATA_CHARS for part in _INLINE_DATA.split(body)) - (
        INLINE_DATA_CHARS
    )
