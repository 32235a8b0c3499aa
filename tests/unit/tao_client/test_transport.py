import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Self

import httpx2

from tao_client._model_call import Passage, read_model_call
from tao_client._transport import async_stream_type, sync_stream_type

LIBRARY = sys.modules["httpx2"]


class PlainStream(httpx2.AsyncByteStream):
    """As other transports have them: an iterator that is no generator."""

    def __init__(self) -> None:
        self.left = [b"a", b"b"]
        self.is_closed = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return PlainIterator(self.left)

    async def aclose(self) -> None:
        self.is_closed = True


class PlainIterator:
    def __init__(self, left: list[bytes]) -> None:
        self.left = left

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


def passage() -> Passage:
    call = read_model_call(
        httpx2.Request("POST", "http://own/v1/responses", content=b'{"model": "m"}')
    )
    assert call is not None
    return Passage(call, None)


def test_stream_of_any_transport_passes() -> None:
    inner = PlainStream()
    stream = async_stream_type(LIBRARY)(inner, passage())

    async def main() -> bytes:
        body = b"".join([part async for part in stream])
        await stream.aclose()
        return body

    assert asyncio.run(main()) == b"ab"
    assert inner.is_closed


def test_stream_types_are_those_of_the_library() -> None:
    assert isinstance(
        sync_stream_type(LIBRARY)(httpx2.ByteStream(b""), passage()), httpx2.SyncByteStream
    )
    assert sync_stream_type(LIBRARY) is sync_stream_type(LIBRARY)
