"""Heads of requests are bounded in time and size, over real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from tao_coordinator.service import http_protocol
from tao_coordinator.service.http_protocol import BoundedHttpProtocol

LARGE = b"x" * 8_000_000
"""More than the kernel keeps for a peer that does not read."""
WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    if scope["path"] == "/echo":
        message = await receive()
        body = message["body"] + b"%d" % len(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})
        return
    if scope["path"] in ("/large", "/v1/messages"):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4):
            await send({"type": "http.response.body", "body": LARGE, "more_body": True})
        return
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


def converse(peer: Peer, keep_alive_s: int = 75, connections: set[object] | None = None) -> None:
    """Let `peer` talk to a server on a socket of its own.

    `connections`: gets those that the server has open, as long as it runs.
    """

    async def body() -> None:
        config = uvicorn.Config(
            application, lifespan="off", log_config=None, timeout_keep_alive=keep_alive_s
        )
        config.load()
        state = ServerState()
        if connections is not None:
            state.connections = connections  # pyright: ignore[reportAttributeAccessIssue]
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: BoundedHttpProtocol(config=config, server_state=state, app_state={}),
            "127.0.0.1",
            0,
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await asyncio.wait_for(peer(reader, writer), 20)
        finally:
            writer.close()
            server.close()
            await server.wait_closed()
            for task in list(state.tasks):
                await task

    asyncio.run(body())


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: "])
def test_head_that_never_ends_is_cut_off(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S_MAX", 0.2)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            writer.write(b"a")
            await asyncio.wait([answer], timeout=0.05)
        assert (await answer).startswith(b"HTTP/1.1 408 ")

    converse(peer)


def test_second_head_of_a_connection_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S_MAX", 0.2)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE)
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        writer.write(WHOLE[:-1])
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")

    converse(peer)


@pytest.mark.parametrize(
    "piece", [b"x" * 4096, b"x-name: value\r\n" * 300], ids=["one header", "many headers"]
)
def test_endless_head_is_cut_off(piece: bytes) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nx-more: ")
        answer = asyncio.create_task(reader.read())
        num_pieces = 0
        while not answer.done():
            writer.write(piece)
            num_pieces += 1
            assert num_pieces < 10_000
            await asyncio.wait([answer], timeout=0.001)
        # What was not read makes the kernel reset the connection, often before the answer is seen.
        if answer.exception() is None:
            assert (await answer)[:12] in (b"HTTP/1.1 431", b"")

    converse(peer)


def test_head_in_pieces_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in WHOLE:
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")

    converse(peer)


def test_answer_under_way_is_not_cut_by_the_head_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S_MAX", 0.1)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE.replace(b"GET /", b"GET /slow") + b"GET / HT")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")

    converse(peer)


def test_connection_that_says_nothing_is_closed() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    converse(peer, keep_alive_s=1)


OFFERS = {
    "java": b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEA\r\nUpgrade: h2c\r\n",
    "curl": b"upgrade: h2c\r\nconnection: upgrade\r\n",
    "websocket": b"UPGRADE: websocket\r\nConnection: Upgrade\r\n",
}


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_offer_of_another_protocol_is_passed_over_and_the_body_kept(
    offer: bytes, pause_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    said = b"\r\nupgrade: is said in the body as well"
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\n" + offer + b"content-length: %d\r\n\r\n"

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(3):
            writer.write(head % len(said))
            await asyncio.sleep(pause_s)
            writer.write(said)
            num_headers = 2 + offer.count(b"\r\n")
            assert said + b"%d" % num_headers in await reader.readuntil(b"0\r\n\r\n")

    converse(peer)
    assert caplog.text == ""


async def until_empty(connections: set[object]) -> None:
    async with asyncio.timeout(10):
        while connections:  # noqa: ASYNC110 - the server's own set tells nobody
            await asyncio.sleep(0.02)


def test_peer_that_never_reads_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "UNREAD_S_MAX", 0.1)
    connections: set[object] = set()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast("asyncio.Transport", writer.transport).pause_reading()
        writer.write(WHOLE.replace(b"GET /", b"GET /large"))
        await asyncio.sleep(0.05)
        assert connections
        await until_empty(connections)

    converse(peer, connections=connections)


def test_relayed_call_is_left_to_its_own_limit_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "UNREAD_S_MAX", 0.05)
    connections: set[object] = set()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast("asyncio.Transport", writer.transport).pause_reading()
        writer.write(WHOLE.replace(b"GET /", b"GET /v1/messages"))
        await asyncio.sleep(0.4)
        (connection,) = connections
        assert isinstance(connection, BoundedHttpProtocol)
        connection.transport.close()
        await until_empty(connections)

    converse(peer, connections=connections)


def test_slow_reader_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "UNREAD_S_MAX", 0.1)

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE.replace(b"GET /", b"GET /large"))
        num_bytes = 0
        while num_bytes < 4 * len(LARGE):
            num_bytes += len(await reader.readexactly(1_000_000))
            await asyncio.sleep(0.02)

    converse(peer)
