"""KV event payloads in both forms, and what is none."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.adapters.kv_events.wire import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
    decode,
)
from tao_coordinator.errors import MalformedPage


def batch(*events: object) -> list[KvEvent]:
    return decode(msgspec.msgpack.encode([1.5, list(events), 0]))


STORED = {
    "type": "BlockStored",
    "block_hashes": [11, 12],
    "parent_block_hash": None,
    "token_ids": [1, 2],
    "block_size": 16,
    "lora_id": None,
    "medium": "GPU",
    "group_idx": 0,
    "session_id": "s1",
}


def test_map_form_is_read() -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [11], "medium": "GPU"}
    assert batch(STORED, removed, {"type": "AllBlocksCleared"}) == [
        BlocksStored((11, 12), None, 16, "s1"),
        BlocksRemoved((11,)),
        AllCleared(),
    ]


def test_array_form_is_read() -> None:
    events = batch(
        ["BlockStored", [b"a", b"b"], b"p", [1, 2], 32, None, "GPU", "lora"],
        ["BlockStored", [b"c"], None, [], 32],
        ["BlockRemoved", [b"a"], "GPU"],
        ["BlockRemoved", [b"b"]],
        ["AllBlocksCleared"],
    )
    assert events == [
        BlocksStored((b"a", b"b"), b"p", 32, None),
        BlocksStored((b"c",), None, 32, None),
        BlocksRemoved((b"a",)),
        BlocksRemoved((b"b",)),
        AllCleared(),
    ]


def test_other_media_groups_and_kinds_are_left_out() -> None:
    assert batch({**STORED, "medium": "CPU"}, {**STORED, "group_idx": 1}, {"type": "New"}) == []
    assert batch(["BlockRemoved", [1], "CPU_PINNED"]) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"a": 1}),
        msgspec.msgpack.encode([1.0]),
        msgspec.msgpack.encode([1.0, "x"]),
        msgspec.msgpack.encode([1.0, [5]]),
        msgspec.msgpack.encode([1.0, [[]]]),
        msgspec.msgpack.encode([1.0, [{**STORED, "block_size": 0}]]),
        msgspec.msgpack.encode([1.0, [{**STORED, "block_size": "16"}]]),
        msgspec.msgpack.encode([1.0, [{**STORED, "block_hashes": [[1]]}]]),
        msgspec.msgpack.encode([1.0, [{**STORED, "parent_block_hash": {"a": 1}}]]),
        msgspec.msgpack.encode([1.0, [["BlockRemoved", [1]]] * 100_001]),
    ],
)
def test_rubbish_is_refused(payload: bytes) -> None:
    with pytest.raises(MalformedPage):
        decode(payload)


@given(st.binary(max_size=200))
def test_any_bytes_give_events_or_one_error(payload: bytes) -> None:
    with contextlib.suppress(MalformedPage):
        assert isinstance(decode(payload), list)


JSONISH = st.recursive(
    st.none() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["BlockStored"]),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from([*STORED, "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(st.lists(JSONISH, max_size=5))
def test_any_batch_gives_events_or_one_error(events: list[object]) -> None:
    with contextlib.suppress(MalformedPage):
        batch(*events)
