"""The payload of KV events as vLLM, SGLang and TensorRT-LLM publish it, in both of its forms.

One message is a MessagePack array `[timestamp, [event, ...], data-parallel rank]`. An event is a
map with its name under `type`, or, in older releases, an array with its name first:

    ["BlockStored", block_hashes, parent_block_hash, token_ids, block_size, lora_id, medium, ...]
    ["BlockRemoved", block_hashes, medium]
    ["AllBlocksCleared"]

Only blocks in GPU memory count, and of hybrid models only the first group of layers: the other
groups tell of the same tokens again.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from tao_coordinator.errors import MalformedPage

EVENTS_MAX: Final = 100_000
BLOCKS_MAX: Final = 100_000
"""Of one event."""
BLOCK_SIZE_MAX: Final = 65_536
_GPU_MEDIA: Final = (None, "", "GPU")


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """These blocks follow `parent` and are cached from now on."""

    hashes: tuple[Hashable, ...]
    parent: Hashable | None
    """`None`: the first of them begins a prompt."""
    block_size_tokens: int
    session_id: str | None
    """The `X-Session-ID` of the request that computed them; older engines do not tell."""


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """These blocks were evicted."""

    hashes: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class AllCleared:
    """The whole cache was emptied."""


KvEvent = BlocksStored | BlocksRemoved | AllCleared


def decode(payload: bytes) -> list[KvEvent]:
    """The events of one message, in order; those of no interest are left out.

    Raises:
        MalformedPage: It is not what an engine publishes.
    """
    try:
        batch: object = msgspec.msgpack.decode(payload)
    except msgspec.DecodeError as error:
        raise MalformedPage(f"KV events are no MessagePack: {error}") from error
    parts = cast("list[object]", batch) if isinstance(batch, list) else []
    events = parts[1] if len(parts) >= 2 else None
    if not isinstance(events, list):
        raise MalformedPage("KV events are no batch of [time, events, ...]")
    listed = cast("list[object]", events)
    if len(listed) > EVENTS_MAX:
        raise MalformedPage(f"more than {EVENTS_MAX} KV events in one batch")
    found = [_event(_fields(event)) for event in listed]
    return [event for event in found if event is not None]


_POSITIONS: Final = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
    ),
    "BlockRemoved": ("block_hashes", "medium"),
}


def _fields(event: object) -> dict[str, object]:
    if isinstance(event, dict):
        return cast("dict[str, object]", event)
    if not isinstance(event, list) or not event:
        raise MalformedPage("a KV event is neither map nor array")
    values = cast("list[object]", event)
    names = _POSITIONS.get(str(values[0]), ())
    return {"type": values[0], **dict(zip(names, values[1:], strict=False))}


def _event(fields: dict[str, object]) -> KvEvent | None:
    kind = fields.get("type")
    if kind == "AllBlocksCleared":
        return AllCleared()
    is_of_interest = fields.get("medium") in _GPU_MEDIA and fields.get("group_idx") in (None, 0)
    if kind not in ("BlockStored", "BlockRemoved") or not is_of_interest:
        return None
    hashes = _hashes(fields.get("block_hashes"))
    if kind == "BlockRemoved":
        return BlocksRemoved(hashes)
    size, session_id = fields.get("block_size"), fields.get("session_id")
    if type(size) is not int or not 0 < size <= BLOCK_SIZE_MAX:
        raise MalformedPage("a KV event has no block size")
    parent = fields.get("parent_block_hash")
    if parent is not None:
        (parent,) = _hashes([parent])
    return BlocksStored(hashes, parent, size, session_id if isinstance(session_id, str) else None)


def _hashes(value: object) -> tuple[Hashable, ...]:
    hashes = cast("list[object]", value) if isinstance(value, list) else []
    if len(hashes) > BLOCKS_MAX or not all(isinstance(item, int | bytes | str) for item in hashes):
        raise MalformedPage("a KV event has no list of block hashes")
    return cast("tuple[Hashable, ...]", tuple(hashes))
