"""The APIs that the relay speaks, and what an error looks like in each of them.

OpenAI's clients read `error.message`, `error.type` and `error.code`; Anthropic's want
`{"type": "error", "error": {...}}` with types of their own. A stream that has begun carries its
error as an event.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import orjson

from tao_coordinator.errors import RequestError


class Dialect(Enum):
    """Whose API an endpoint belongs to."""

    CHAT = "chat"
    """Chat completions, completions, embeddings, models."""
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path of the relay."""

    path: str
    dialect: Dialect
    takes_stream_options: bool = False
    """Usage of a stream has to be asked for with `stream_options`."""
    is_single: bool = False
    """Calls leave nothing behind that a later one could use: each is a session of its own."""


ENDPOINTS: Final = (
    Endpoint("/v1/chat/completions", Dialect.CHAT, takes_stream_options=True),
    Endpoint("/v1/messages", Dialect.MESSAGES),
    Endpoint("/v1/responses", Dialect.RESPONSES),
    Endpoint("/v1/completions", Dialect.CHAT, takes_stream_options=True),
    Endpoint("/v1/embeddings", Dialect.CHAT, is_single=True),
)
"""Calls that need a lease, the busiest first."""
MODELS_PATH: Final = "/v1/models"

LAST_EVENT_MARKS: Final = {
    Dialect.CHAT: b"[DONE]",
    Dialect.RESPONSES: b'"response.completed"',
    Dialect.MESSAGES: b'"message_stop"',
}
"""What the last event of a good stream contains."""

_DIALECTS = {endpoint.path: endpoint.dialect for endpoint in ENDPOINTS}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def is_relayed(path: str) -> bool:
    """Whether errors on this path are told in the form of a model API."""
    return path in _DIALECTS or path.startswith(MODELS_PATH)


def dialect_of(path: str) -> Dialect:
    """The API of a relayed path."""
    return _DIALECTS.get(path, Dialect.CHAT)


def error_document(dialect: Dialect, error: RequestError) -> dict[str, object]:
    """The body of an error answer, in the API's own form."""
    if dialect is Dialect.MESSAGES:
        kind = _ANTHROPIC_TYPES.get(error.status, "api_error")
        inner: dict[str, object] = {"type": kind, "message": f"{error.type}: {error.message}"}
        return {"type": "error", "error": inner}
    inner = {"type": error.type, "message": error.message, "param": None, "code": error.type}
    if error.retry_after_s is not None:
        inner["retry_after_s"] = error.retry_after_s
    return {"error": inner}


def error_event(dialect: Dialect, error: RequestError) -> bytes:
    """The same as an event of a stream that has begun."""
    document = error_document(dialect, error)
    if dialect is Dialect.CHAT:
        return b"data: %b\n\n" % orjson.dumps(document)
    if dialect is Dialect.RESPONSES:
        # The event's own fields, and `error` beside them: by it the Python client raises.
        document |= {
            "type": "error",
            "code": error.type,
            "message": error.message,
            "param": None,
            "sequence_number": 0,
        }
    return b"event: error\ndata: %b\n\n" % orjson.dumps(document)
