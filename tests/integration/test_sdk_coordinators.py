"""Several coordinators: the SDK follows whoever answers and leads, without the agent's doing."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import anyio
import pytest
from coordinator_process import CoordinatorProcess, page, wait_until
from openai import AsyncOpenAI, OpenAI
from sdk_stubs import BackendStub, CoordinatorStub, Recorded, eventually, free_url, send

import tao_client as tao
from tao_client import _breaker, _connection, testing

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


class Fleet:
    """Two coordinators that send calls to the same backend, and the client's own place."""

    def __init__(self) -> None:
        self.backend = BackendStub()
        self.own = BackendStub()
        self.first = CoordinatorStub(self.backend.url)
        self.second = CoordinatorStub(self.backend.url)
        self.client = tao.wrap(
            OpenAI(base_url=f"{self.own.url}/v1", api_key="k", max_retries=0, timeout=20)
        )

    def connect(self, *endpoints: str) -> None:
        tao.connect(endpoints or (self.first.url, self.second.url))

    def ask(self) -> None:
        self.client.chat.completions.create(model="m", messages=[])

    @property
    def went(self) -> list[int]:
        """Calls to the leased backend and to the client's own place."""
        return [len(self.backend.calls), len(self.own.calls)]

    @property
    def asked(self) -> list[int]:
        return [len(self.first.leases), len(self.second.leases)]

    def close(self) -> None:
        self.client.close()
        tao.disconnect()
        for stub in (self.first, self.second, self.own, self.backend):
            stub.close()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_breaker, "FIRST_PROBE_S", 0.1)
    testing.reset()
    yield
    testing.reset()


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    made = Fleet()
    yield made
    made.close()


def in_charge() -> str | None:
    connection = _connection.active()
    assert connection is not None
    return connection.coordinators.in_charge()


def test_first_that_answers_gets_everything(fleet: Fleet) -> None:
    fleet.connect()
    with tao.session("swe-1") as s:
        fleet.ask()
        with s.tool_call("x"):
            pass
    tao.disconnect()
    assert fleet.went == [1, 0]
    assert len(fleet.first.releases) == 1
    assert [one.name for one in fleet.first.events] == [
        "tao.session.start", "tao.tool.start", "tao.tool.end", "tao.session.end"
    ]  # fmt: skip
    assert not fleet.second.requests


@pytest.mark.parametrize(
    "word", ["hang", "reset", "garbage", "nonsense", "crash", "trickle", "503:shutting_down"]
)
def test_call_is_placed_by_the_second_when_the_first_gives_no_answer(
    fleet: Fleet, word: str
) -> None:
    fleet.connect()
    assert eventually(lambda: fleet.first.seen("GET", "/readyz"))
    fleet.first.script(word)
    fleet.first.health_status = 503
    with tao.session():
        fleet.ask()
        fleet.ask()
    assert fleet.went == [2, 0], "placed, not let pass"
    asked = 2 if word == "reset" else 1  # a broken connection may be an old one: asked once more
    assert fleet.asked == [asked, 2], "the second call does not ask the first any more"
    tao.disconnect()
    assert len(fleet.second.releases) == 2
    assert fleet.second.events_named("tao.session.end"), "events go where leases go"


def test_dead_first_is_passed_over_from_the_start(fleet: Fleet) -> None:
    fleet.connect(free_url(), fleet.second.url)
    fleet.ask()
    assert fleet.went == [1, 0]


def test_first_that_accepts_and_never_answers_is_passed_over(fleet: Fleet) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        fleet.connect(f"http://127.0.0.1:{silent.getsockname()[1]}", fleet.second.url)
        for _ in range(3):
            fleet.ask()
    assert fleet.went == [3, 0]


@LOOPS
@pytest.mark.parametrize("word", ["hang", "reset", "garbage"])
def test_async_call_is_placed_by_the_second(fleet: Fleet, loop: str, word: str) -> None:
    fleet.connect()
    fleet.first.script(word)

    async def main() -> None:
        async with tao.wrap(AsyncOpenAI(base_url=fleet.own.url, api_key="k")) as client:
            for _ in range(2):
                await client.chat.completions.create(model="m", messages=[])

    anyio.run(main, backend=loop)
    assert fleet.went == [2, 0]


def test_call_passes_only_when_none_answers(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.connect()
    assert eventually(lambda: fleet.first.seen("GET", "/readyz"))
    for stub in (fleet.first, fleet.second):
        stub.script("hang")
        stub.health_status = 503
    started_s = time.monotonic()
    fleet.ask()
    assert time.monotonic() - started_s < 5, "the call's own time-out is 20 s"
    fleet.ask()
    assert fleet.went == [0, 2]
    assert fleet.asked == [1, 1]
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(told) == 2
    assert told[0].endswith(f"calls are scheduled by {fleet.second.url}")
    assert told[1].endswith("no other does: calls pass through until one does")


def test_standby_that_names_the_leader_is_believed(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with CoordinatorStub() as between:
        fleet.connect(fleet.first.url, between.url, fleet.second.url)
        assert eventually(lambda: fleet.first.seen("GET", "/readyz"))
        fleet.first.leader = f"{fleet.second.url}/"
        fleet.first.script("503:not_leader")
        fleet.ask()
        fleet.ask()
        assert not between.leases
    assert fleet.went == [2, 0]
    assert not fleet.first.withdrawals, "a standby keeps nothing"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_standby_is_no_trouble_at_the_start(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.first.leader = fleet.second.url
    fleet.connect()
    assert eventually(lambda: in_charge() == fleet.second.url)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_leader_that_is_not_in_the_list_is_not_followed(fleet: Fleet) -> None:
    fleet.first.leader = fleet.second.url
    fleet.first.script("503:not_leader")
    fleet.connect(fleet.first.url, free_url())
    fleet.ask()
    assert fleet.went == [0, 1]
    assert not fleet.second.requests, "the key goes to nobody that the user has not named"


def test_change_of_leader_moves_all_and_the_running_lease_goes_back_where_it_came_from(
    fleet: Fleet,
) -> None:
    fleet.second.leader = fleet.first.url
    fleet.second.script("503:not_leader")
    fleet.connect()
    with tao.session():
        stream = fleet.client.chat.completions.create(model="m", messages=[], stream=True)
        fleet.first.leader, fleet.second.leader = fleet.second.url, ""
        fleet.first.script("503:not_leader")
        fleet.second.script("grant")
        fleet.ask()
        fleet.ask()
        assert fleet.went == [3, 0]
        assert len(fleet.second.leases) == 2
        fleet.first.leader = ""
        assert eventually(lambda: in_charge() == fleet.first.url)
        assert len(list(stream)) == len(fleet.backend.words)
    assert eventually(lambda: fleet.first.releases)


def test_hold_goes_on_at_the_second_when_the_first_dies(fleet: Fleet) -> None:
    fleet.first.script("hold", "reset")
    fleet.first.health_status = 503
    fleet.second.script("hold", "grant")
    fleet.connect(fleet.first.url, fleet.second.url)
    _connection.active()
    fleet.ask()
    assert fleet.went == [1, 0]
    ids = {one.json["request_id"] for one in (*fleet.first.leases, *fleet.second.leases)}
    assert len(ids) == 1


def test_lost_events_alone_move_to_the_next(fleet: Fleet) -> None:
    """An agent that only runs tools notices as well."""
    fleet.connect()
    assert eventually(lambda: fleet.first.seen("GET", "/readyz"))
    fleet.first.logs_word = "crash"
    fleet.first.health_status = 503
    with tao.session("s") as s:
        assert eventually(lambda: in_charge() == fleet.second.url)
        with s.tool_call("x"):
            pass
    tao.disconnect()
    assert fleet.second.events_named("tao.tool.end")
    assert not fleet.asked[0]


class MeteredBackend(BackendStub):
    """One that a real coordinator takes for an engine."""

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        if request.path == "/metrics":
            send(handler, 200, page().encode(), "text/plain")
        elif request.path == "/v1/models":
            send(handler, 200, b'{"object":"list","data":[{"id":"m"}]}')
        else:
            super().handle(handler, request)


def ready(log_path: Path, *arguments: str) -> CoordinatorProcess:
    process = CoordinatorProcess(list(arguments), log_path)
    wait_until(lambda: process.call("GET", "/readyz").status == 200)
    return process


def test_two_real_coordinators_one_killed_and_restarted(tmp_path: Path, fleet: Fleet) -> None:
    calls: list[str] = []
    stop = threading.Event()

    def agent() -> None:
        with tao.session("swe-17"):
            while not stop.is_set():
                fleet.ask()
                calls.append(str(in_charge()))
                time.sleep(0.01)

    thread = threading.Thread(target=agent)
    with MeteredBackend() as backend:
        first = ready(tmp_path / "1", "--backend", backend.url)
        second = ready(tmp_path / "2", "--backend", backend.url)
        try:
            fleet.connect(first.url, second.url)
            thread.start()
            wait_until(lambda: len(calls) >= 5)
            first.process.kill()
            first.close()
            wait_until(lambda: calls.count(second.url) >= 5)
            first = ready(
                tmp_path / "3", "--backend", backend.url, "--port", first.url.rsplit(":", 1)[1]
            )
            at_first = calls.count(first.url)
            wait_until(lambda: calls.count(first.url) >= at_first + 5)
            assert "swe-17" in str(first.state()["sessions"])
            stop.set()
            thread.join(10)
            assert [len(fleet.own.calls), len(backend.calls)] == [0, len(calls)], "none let pass"
        finally:
            stop.set()
            thread.join(10)
            for process in (first, second):
                process.close()
