"""The relay's benchmark on a small load: what it measures is what it says."""

import asyncio
import json

import pytest

from tao_coordinator.bench import lease_rate, relay
from tao_coordinator.bench.load import LoadError, drive, request_bytes
from tao_coordinator.bench.relay import Cell, body_of


@pytest.mark.parametrize("cell", list(relay.cells()))
def test_body_has_the_size_that_its_cell_names(cell: Cell) -> None:
    body = body_of(cell, "s1")
    assert len(body) == cell.body_bytes
    assert json.loads(body).get("stream", False) is cell.is_stream


def test_cells_are_every_kind_of_load() -> None:
    assert len(set(relay.cells())) == 8


class Answering(asyncio.Protocol):
    """Answers each request; the status is given."""

    def __init__(self, status: int) -> None:
        self.status = status

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.status == 0:
            self.transport.close()
            return
        reply = b"HTTP/1.1 %d X\r\ncontent-length: 2\r\n\r\nok" % self.status
        self.transport.write(reply * data.count(b"POST "))


async def load(status: int, concurrency: int, num_calls: int) -> list[tuple[int, int, bytes]]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(status), "127.0.0.1", 0)
    asked: list[tuple[int, int, bytes]] = []

    def request(number: int, num_sent: int, reply: bytes) -> bytes:
        asked.append((number, num_sent, reply))
        return request_bytes("/x", b"{}")

    async with server:
        port = server.sockets[0].getsockname()[1]
        times_s = await drive(f"http://127.0.0.1:{port}", concurrency, num_calls, request)
    assert len(times_s) == num_calls
    assert min(times_s) > 0.0
    return asked


@pytest.mark.parametrize(("concurrency", "num_calls"), [(1, 1), (1, 9), (4, 9), (4, 4)])
def test_load_is_as_many_calls_as_were_asked_for(concurrency: int, num_calls: int) -> None:
    asked = asyncio.run(load(200, concurrency, num_calls))
    assert len(asked) == num_calls
    assert {number for number, _, _ in asked} == set(range(concurrency))
    assert all(reply == (b"ok" if num_sent else b"") for _, num_sent, reply in asked)


@pytest.mark.parametrize(("status", "words"), [(503, "503"), (0, "closed")])
def test_load_that_fails_is_an_error_and_no_figure(status: int, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        asyncio.run(load(status, 2, 10))


def test_whole_benchmark_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "BODY_BYTES", (2_000,))
    monkeypatch.setattr(relay, "CONCURRENCIES", (2,))
    results = relay.run(64, 1, lambda _: None)
    assert [one.cell.is_stream for one in results] == [False, True]
    for one in results:
        assert one.relay.cpu_ms is not None
        assert one.direct_p50_ms > 0.0
    assert len(list(relay.table(results))) == 3
    rates = lease_rate.run(64, 1, lambda _: None)
    assert rates.lease.turns_per_s > 0.0
    assert rates.journal_bytes > 100, "ids, times and tokens"
    first, second = rates.lines()
    assert "turns/s" in first
    assert "with a journal" in second
