"""The nesting that OTLP's requests share, in JSON: resources hold scopes, scopes hold records.

JSON is mapped by hand: OTLP's JSON differs from protobuf's own mapping (hex ids, enums as numbers),
and the generic mapper is twenty times slower.
"""

import binascii
from collections.abc import Iterator, Mapping
from typing import Final, cast

import orjson

from tao_coordinator.errors import MalformedRequest

JsonObject = Mapping[str, object]

GROUPS_MAX: Final = 20_000
"""Resources, or scopes, in one request: two million empty ones fit into 4 MiB."""


def check_groups(number: int) -> None:
    """Refuse a request whose nesting alone would hold the loop for seconds.

    Raises:
        MalformedRequest: More than `GROUPS_MAX`.
    """
    if number > GROUPS_MAX:
        raise MalformedRequest(f"more than {GROUPS_MAX} resources or scopes in one request")


def json_scopes(body: bytes, resources_key: str, scopes_key: str) -> Iterator[JsonObject]:
    """The scopes of a JSON request, in order. Unknown fields are ignored.

    Raises:
        MalformedRequest: The body is no JSON, or has other values where these must stand.
    """
    try:
        request: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedRequest("body is no JSON") from None
    resources = json_messages(request, resources_key)
    check_groups(len(resources))
    num_scopes = 0
    for resource in resources:
        scopes = json_messages(resource, scopes_key)
        num_scopes += len(scopes)
        check_groups(num_scopes)
        yield from scopes


def json_messages(parent: object, key: str) -> list[JsonObject]:
    """The repeated message field `key`; a wrong shape makes the whole request undecodable.

    Raises:
        MalformedRequest: Something else than an array of objects stands there.
    """
    if not isinstance(parent, dict):
        raise MalformedRequest("body is no OTLP JSON: an object is missing")
    children = cast("dict[str, object]", parent).get(key)
    if children is None:
        return []
    if not isinstance(children, list):
        raise MalformedRequest(f"body is no OTLP JSON: {key} is no array")
    for child in cast("list[object]", children):
        if not isinstance(child, dict):
            raise MalformedRequest(f"body is no OTLP JSON: an item of {key} is no object")
    return cast("list[JsonObject]", children)


def json_id(value: object) -> bytes:
    """A trace or span id: hex as OTLP asks, or base64 as protobuf's own mapping writes it.

    Returns:
        16 or 8 bytes; empty: absent or unreadable.
    """
    if not isinstance(value, str):
        return b""
    try:
        if len(value) in (16, 32):
            return binascii.unhexlify(value)
        if len(value) in (12, 24):
            return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        pass
    return b""
