"""The watch turns its own cancellation into the reason, and no other."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from tao_coordinator.service.relay.watch import CallStalled, CallWatch


class Client:
    """The client's end of a connection."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}


def run(body: Callable[[Client], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await body(Client())
        # Nothing stays behind.
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(bounded())


def test_client_that_leaves_ends_the_block() -> None:
    async def body(client: Client) -> None:
        asyncio.get_running_loop().call_later(0.01, client.gone.set)
        cleaned: list[bool] = []

        async def watched() -> None:
            async with CallWatch(client.receive, 60.0):
                try:
                    await asyncio.sleep(60)
                finally:
                    cleaned.append(True)

        with pytest.raises(ClientDisconnect):
            await watched()
        assert cleaned
        # The cancellation is used up: the task goes on.
        await asyncio.sleep(0.001)

    run(body)


def test_block_in_which_nothing_moves_ends() -> None:
    async def body(client: Client) -> None:
        async def watched() -> None:
            async with CallWatch(client.receive, 0.05) as watch:
                watch.start_clock()
                await asyncio.sleep(60)

        with pytest.raises(CallStalled):
            await watched()

    run(body)


def test_what_moves_goes_on() -> None:
    async def body(client: Client) -> None:
        async with CallWatch(client.receive, 0.2) as watch:
            watch.start_clock()
            for _ in range(10):
                await asyncio.sleep(0.04)
                watch.moved()

    run(body)


def test_hold_before_the_clock_is_no_stall() -> None:
    async def body(client: Client) -> None:
        async with CallWatch(client.receive, 0.01):
            await asyncio.sleep(0.1)

    run(body)


def test_cancellation_from_outside_stays_one() -> None:
    async def body(client: Client) -> None:
        async def watched() -> None:
            async with CallWatch(client.receive, 60.0):
                await asyncio.sleep(60)

        task = asyncio.create_task(watched())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(body)


def test_cancellation_beside_a_reason_stays_one() -> None:
    async def body(client: Client) -> None:
        async def watched() -> None:
            async with CallWatch(client.receive, 60.0):
                await asyncio.sleep(60)

        task = asyncio.create_task(watched())
        await asyncio.sleep(0.01)
        client.gone.set()
        task.cancel()
        with pytest.raises((asyncio.CancelledError, ClientDisconnect)):
            await task
        assert task.cancelled()

    run(body)


def test_own_errors_pass() -> None:
    async def body(client: Client) -> None:
        with pytest.raises(ValueError, match="mine"):
            async with CallWatch(client.receive, 60.0):
                raise ValueError("mine")

    run(body)


def test_after_stop_the_client_may_go() -> None:
    async def body(client: Client) -> None:
        async with CallWatch(client.receive, 60.0) as watch:
            watch.stop()
            client.gone.set()
            await asyncio.sleep(0.01)

    run(body)
