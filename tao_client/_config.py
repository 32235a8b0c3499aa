"""Settings of one connection, checked once at the door.

Arguments win over the environment: `TAO_ENDPOINT` (one URL, or several with commas between them),
`TAO_API_KEY`, `TAO_TOOL_KEYS`, `TAO_SPANS`, and `OTEL_SDK_DISABLED`, the standard switch that turns
telemetry (our events) off. `TAO_DISABLED` stands above all of them and is read at each `connect`
and `wrap`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tao_client.errors import ConfigurationError

if TYPE_CHECKING:
    from tao_client._lease import HoldInfo

ENDPOINT_VARIABLE = "TAO_ENDPOINT"
API_KEY_VARIABLE = "TAO_API_KEY"
DISABLED_VARIABLE = "TAO_DISABLED"
TOOL_KEYS_VARIABLE = "TAO_TOOL_KEYS"
SPANS_VARIABLE = "TAO_SPANS"
CHARS_PER_TOKEN_VARIABLE = "TAO_CHARS_PER_TOKEN"
CHARS_PER_TOKEN = 4.0
MOST_ENDPOINTS = 4
"""They share the half second that a call may lose on coordinators which do not answer."""
OTEL_DISABLED_VARIABLE = "OTEL_SDK_DISABLED"

_EXAMPLE = 'for example "http://coordinator:8700"'
_TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
_FALSE_WORDS = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that a connection is made of."""

    endpoints: tuple[str, ...]
    """Base URLs of the coordinators, without a trailing slash, in the order of preference."""
    api_key: str | None = field(default=None, repr=False)
    """Sent as a bearer token to the coordinator, never to a backend."""
    on_hold: "Callable[[HoldInfo], object] | None" = None
    """Called when a turn is first held and at each further poll."""
    events: bool = True
    """False sends no events; leases stay."""
    tool_keys: bool = True
    """False keeps command heads out of the events."""
    spans: bool = False
    """True makes spans of sessions and tool calls on the agent's own tracer provider."""
    chars_per_token: float = CHARS_PER_TOKEN
    """Characters of a prompt per token, until an engine has counted one. (0, 100]."""


def resolve_config(
    endpoint: str | Sequence[str] | None = None,
    *,
    api_key: str | None = None,
    on_hold: "Callable[[HoldInfo], object] | None" = None,
    events: bool | None = None,
    tool_keys: bool | None = None,
    spans: bool | None = None,
    chars_per_token: float | None = None,
) -> Config:
    """Settings from arguments, else the environment, else defaults.

    Raises:
        ConfigurationError: an endpoint is missing or no http(s) URL, or the key cannot be sent.
    """
    if events is None:
        events = os.environ.get(OTEL_DISABLED_VARIABLE, "").strip().lower() != "true"
    if tool_keys is None:
        tool_keys = os.environ.get(TOOL_KEYS_VARIABLE, "").strip().lower() not in _FALSE_WORDS
    if spans is None:
        spans = os.environ.get(SPANS_VARIABLE, "").strip().lower() in _TRUE_WORDS
    return Config(
        endpoints=_checked_endpoints(endpoint or os.environ.get(ENDPOINT_VARIABLE, "")),
        api_key=_checked_key(api_key or os.environ.get(API_KEY_VARIABLE)),
        on_hold=on_hold,
        events=events,
        tool_keys=tool_keys,
        spans=spans,
        chars_per_token=_checked_ratio(chars_per_token),
    )


def is_disabled() -> bool:
    """Whether `TAO_DISABLED` switches the whole SDK off."""
    return os.environ.get(DISABLED_VARIABLE, "").strip().lower() in _TRUE_WORDS


def has_endpoint_variable() -> bool:
    """Whether the environment names a coordinator to connect to at first use."""
    return bool(os.environ.get(ENDPOINT_VARIABLE))


def _checked_endpoints(given: str | Sequence[str]) -> tuple[str, ...]:
    try:
        texts = given.split(",") if isinstance(given, str) else [str.strip(one) for one in given]
    except TypeError:
        raise ConfigurationError(
            f"the endpoint {given!r} is neither a URL nor a sequence of URLs: pass text, {_EXAMPLE}"
        ) from None
    if not any(text.strip() for text in texts):
        raise ConfigurationError(
            f"no coordinator named: pass its URL to connect() or set {ENDPOINT_VARIABLE}, "
            f"{_EXAMPLE}"
        )
    # Each once, in the order given.
    endpoints = tuple(dict.fromkeys(_checked_endpoint(text) for text in texts if text.strip()))
    if len(endpoints) > MOST_ENDPOINTS:
        raise ConfigurationError(
            f"{len(endpoints)} coordinators named, of which at most {MOST_ENDPOINTS} can share the "
            "time of one question: give the leader and its standbys"
        )
    return endpoints


def _checked_endpoint(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint.strip())
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise ConfigurationError(
            f"the endpoint {endpoint!r} is no URL: write scheme, host and port, {_EXAMPLE}"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        raise ConfigurationError(
            f"the endpoint {endpoint!r} is no http(s) URL: write scheme, host and port, {_EXAMPLE}"
        )
    if parts.query or parts.fragment or parts.username or parts.password:
        raise ConfigurationError(
            f"the endpoint for host {parts.hostname!r} carries a query, a fragment or credentials: "
            f"give the plain URL, {_EXAMPLE}, and the key as api_key"
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _checked_ratio(chars_per_token: float | None) -> float:
    text = os.environ.get(CHARS_PER_TOKEN_VARIABLE)
    try:
        ratio = float(text or CHARS_PER_TOKEN) if chars_per_token is None else chars_per_token
    except ValueError:
        ratio = 0.0
    if not 0.0 < ratio <= 100.0:
        raise ConfigurationError(
            f"chars_per_token (or {CHARS_PER_TOKEN_VARIABLE}) must be a number in (0, 100], "
            f"not {text if chars_per_token is None else chars_per_token}"
        )
    return ratio


def _checked_key(api_key: str | None) -> str | None:
    if not api_key:
        return None
    if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise ConfigurationError(
            f"the api_key (or {API_KEY_VARIABLE}) holds blanks or control characters, which no "
            "header can carry: check for a stray line break"
        )
    return api_key
