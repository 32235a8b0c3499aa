"""Request bodies of the OpenAI API, checked and reduced to what the modelled engine needs."""

from dataclasses import dataclass
from typing import Final, cast

import orjson

from tao_coordinator.service.sim_backend.rendering import (
    RenderedCall,
    RenderedMessage,
    canonical_arguments,
    canonical_json,
    prompt_text,
)

BAD_REQUEST: Final = "BadRequestError"


class ApiError(Exception):
    """A request that is answered with an error in OpenAI's shape.

    Attributes:
        status: HTTP status, also the error's `code`.
        kind: The error's `type`, in vLLM's words.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


def bad_request(message: str) -> ApiError:
    """Return a 400."""
    return ApiError(400, BAD_REQUEST, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One request for a completion, chat or plain."""

    model: str | None
    prompt: str
    """The rendered prompt."""
    messages: tuple[RenderedMessage, ...]
    """Of a chat; empty for a plain completion."""
    chat: bool
    tokens_max: int | None
    stream: bool
    include_usage: bool


def parse_chat(body: bytes) -> CompletionRequest:
    """Check the body of `POST /v1/chat/completions`.

    Raises:
        ApiError: 400 that names what is wrong.
    """
    fields = _parse_object(body)
    raw = fields.get("messages")
    if not isinstance(raw, list) or not raw:
        raise bad_request("messages: must be a list of at least one message")
    messages = tuple(
        _message(message, f"messages[{index}]")
        for index, message in enumerate(cast("list[object]", raw))
    )
    tools = _optional_list(fields, "tools", "tools")
    tokens_max = _tokens_max(fields, "max_completion_tokens")
    if tokens_max is None:
        tokens_max = _tokens_max(fields, "max_tokens")
    return CompletionRequest(
        model=_optional_string(fields, "model"),
        prompt=prompt_text(tools, messages),
        messages=messages,
        chat=True,
        tokens_max=tokens_max,
        stream=_flag(fields, "stream"),
        include_usage=_include_usage(fields),
    )


def parse_completion(body: bytes) -> CompletionRequest:
    """Check the body of `POST /v1/completions`: one prompt, given as text.

    Raises:
        ApiError: 400 that names what is wrong.
    """
    fields = _parse_object(body)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(cast("list[object]", prompt)) == 1:
        prompt = cast("list[object]", prompt)[0]
    if not isinstance(prompt, str) or not prompt:
        raise bad_request("prompt: must be one string that is not empty")
    return CompletionRequest(
        model=_optional_string(fields, "model"),
        prompt=prompt,
        messages=(),
        chat=False,
        tokens_max=_tokens_max(fields, "max_tokens"),
        stream=_flag(fields, "stream"),
        include_usage=_include_usage(fields),
    )


def _parse_object(body: bytes) -> dict[str, object]:
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    fields = cast("dict[str, object]", value)
    count = fields.get("n")
    if count is not None and count != 1:
        raise bad_request("n: only 1 is supported")
    return fields


def _message(value: object, where: str) -> RenderedMessage:
    if not isinstance(value, dict):
        raise bad_request(f"{where}: must be an object")
    message = cast("dict[str, object]", value)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise bad_request(f"{where}.role: must be a string")
    calls = _optional_list(message, "tool_calls", f"{where}.tool_calls")
    return RenderedMessage(
        role,
        _content(message.get("content"), f"{where}.content"),
        tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)),
    )


def _content(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad_request(f"{where}: must be a string, a list of parts or null")
    texts: list[str] = []
    for index, item in enumerate(cast("list[object]", value)):
        if not isinstance(item, dict):
            raise bad_request(f"{where}[{index}]: must be an object")
        part = cast("dict[str, object]", item)
        text = part.get("text")
        # What is no text (an image, a file) is counted by its reference.
        texts.append(text if isinstance(text, str) else canonical_json(part))
    return "".join(texts)


def _call(value: object, where: str) -> RenderedCall:
    function = cast("dict[str, object]", value).get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        raise bad_request(f"{where}.function: must be an object")
    fields = cast("dict[str, object]", function)
    name, arguments = fields.get("name"), fields.get("arguments")
    if not isinstance(name, str) or not name:
        raise bad_request(f"{where}.function.name: must be a string")
    if isinstance(arguments, str):
        return RenderedCall(name, canonical_arguments(arguments))
    return RenderedCall(name, canonical_json(arguments or {}))


def _optional_list(fields: dict[str, object], name: str, where: str) -> list[object]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad_request(f"{where}: must be a list")
    return cast("list[object]", value)


def _optional_string(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{name}: must be a string")
    return value


def _tokens_max(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise bad_request(f"{name}: must be a whole number of at least 1")
    return value


def _flag(fields: dict[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"{name}: must be true or false")
    return bool(value)


def _include_usage(fields: dict[str, object]) -> bool:
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise bad_request("stream_options: must be an object")
    return _flag(cast("dict[str, object]", options), "include_usage")
