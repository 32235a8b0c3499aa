"""The nesting that OTLP's requests share, in JSON: resources hold scopes, scopes hold records.

JSON is mapped by hand: OTLP's JSON differs from protobuf's own mapping (hex ids, enums as numbers),
and the generic mapper is twenty times slower.
"""

import binascii
from collections.abc import Iterator, Mapping
from typing import cast

import orjson

from tao_coordinator.errors import MalformedRequest

JsonObject = Mapping[str, object]


def json_scopes(body: bytes, resources_key: str, scopes_key: str) -> Iterator[JsonObject]:
    """The scopes of a JSON request, in order. Unknown fields are ignored.

    Raises:
        MalformedRequest: The body is no JSON, or has other values where these must stand.
    """
    try:
        request: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedRequest("body is no JSON") from None
    for resource in json_messages(request, resources_key):
        yield from json_messages(resource, scopes_key)


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
