"""The SDK with a coordinator that holds, hangs, lies, dies and comes back."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterator

import anyio
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion
from sdk_stubs import BackendStub, CoordinatorStub, eventually, free_url

import tao_client as tao
from tao_client import _breaker, _connection, testing

SILENCES = ["hang", "reset", "garbage", "nonsense", "crash", "trickle", "dribble", "flood", "deep"]
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


class Fleet:
    def __init__(self) -> None:
        self.backend = BackendStub()
        self.own = BackendStub()
        self.coordinator = CoordinatorStub(self.backend.url)
        self.holds: list[tao.HoldInfo] = []
        self.client = tao.wrap(
            OpenAI(base_url=f"{self.own.url}/v1", api_key="k", max_retries=0, timeout=20)
        )

    def connect(self) -> None:
        """Connect and wait for the first contact, so that the tests see their own requests only."""
        tao.connect(self.coordinator.url, on_hold=self.holds.append)
        assert eventually(lambda: self.coordinator.seen("GET", "/healthz"))

    def ask(self, timeout: float = 20) -> ChatCompletion:
        client = self.client.with_options(timeout=timeout)
        return client.chat.completions.create(model="m", messages=[])

    @property
    def went(self) -> str:
        """Where the calls went."""
        return "own" * len(self.own.calls) + "backend" * len(self.backend.calls)

    def close(self) -> None:
        self.client.close()
        tao.disconnect()
        for stub in (self.coordinator, self.own, self.backend):
            stub.close()


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_breaker, "FIRST_PROBE_S", 0.1)
    testing.reset()
    fleet = Fleet()
    yield fleet
    fleet.close()
    testing.reset()


def is_open() -> bool:
    connection = _connection.active()
    return connection is not None and connection.coordinators.are_away


def run(backend: str, function: Callable[[], Coroutine[object, object, None]]) -> None:
    anyio.run(function, backend=backend)


def test_held_call_is_asked_for_again_until_it_is_granted(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.script("hold", "hold", "grant")
    fleet.ask()
    assert fleet.went == "backend"
    asked = fleet.coordinator.leases
    assert [one.headers.get("prefer") for one in asked] == [None, "wait=10", "wait=10"]
    assert len({one.json["request_id"] for one in asked}) == 1, "one request, one lease"
    assert [one.queue_position for one in fleet.holds] == [3, 3]
    assert fleet.holds[0].request_id == asked[0].json["request_id"]
    assert fleet.holds[0].estimated_wait_s == 1.5
    assert 0 < fleet.holds[0].held_s < fleet.holds[1].held_s
    assert not fleet.coordinator.withdrawals


def test_held_call_waits_as_long_as_it_is_told_to(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.retry_after_s = 0.3
    fleet.coordinator.script("hold", "grant")
    fleet.ask()
    first, second = fleet.coordinator.leases
    assert second.at_s - first.at_s >= 0.3


@LOOPS
def test_held_async_call_is_granted_in_the_end(fleet: Fleet, loop: str) -> None:
    fleet.connect()
    fleet.coordinator.retry_after_s = 0.05
    fleet.coordinator.script("hold", "hold", "grant")

    async def main() -> None:
        async with tao.wrap(AsyncOpenAI(base_url=fleet.own.url, api_key="k")) as client:
            await client.chat.completions.create(model="m", messages=[])

    run(loop, main)
    assert fleet.went == "backend"
    assert len(fleet.holds) == 2


def test_hook_that_fails_is_logged_once_and_harms_nothing(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(hold: tao.HoldInfo) -> None:
        raise RuntimeError("display is gone")

    tao.connect(fleet.coordinator.url, on_hold=fail)
    fleet.coordinator.script("hold", "hold", "grant")
    fleet.ask()
    assert fleet.went == "backend"
    assert [one.getMessage() for one in caplog.records if "on_hold" in one.getMessage()] == [
        "on_hold failed; further failures are not logged"
    ]


@pytest.mark.parametrize("word", SILENCES)
def test_coordinator_without_an_answer_is_passed_by(fleet: Fleet, word: str) -> None:
    fleet.connect()
    fleet.coordinator.script(word)
    fleet.coordinator.health_status = 503
    started_s = time.monotonic()
    fleet.ask()
    assert time.monotonic() - started_s < 5, "the call's own time-out is 20 s"
    assert fleet.went == "own"
    assert is_open()
    asked = len(fleet.coordinator.leases)
    fleet.ask()
    assert fleet.went == "ownown"
    assert len(fleet.coordinator.leases) == asked, "no second call is spent on it"


@LOOPS
@pytest.mark.parametrize("word", SILENCES)
def test_coordinator_without_an_answer_is_passed_by_async(
    fleet: Fleet, loop: str, word: str
) -> None:
    fleet.connect()
    fleet.coordinator.script(word)
    fleet.coordinator.health_status = 503

    async def main() -> None:
        async with tao.wrap(AsyncOpenAI(base_url=fleet.own.url, api_key="k")) as client:
            await client.chat.completions.create(model="m", messages=[])

    run(loop, main)
    assert fleet.went == "own"
    assert is_open()


def test_slow_coordinator_is_waited_for_and_then_no_longer(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.script("slow")
    fleet.ask()
    assert fleet.went == "backend"
    fleet.coordinator.slow_s = 5.0
    started_s = time.monotonic()
    fleet.ask()
    assert time.monotonic() - started_s < 4.5
    assert fleet.went == "ownbackend"
    assert eventually(lambda: fleet.coordinator.withdrawals)


@pytest.mark.parametrize("is_async", [False, True])
def test_call_goes_its_own_way_where_its_backend_takes_no_connection(
    fleet: Fleet, is_async: bool
) -> None:
    """A backend that has just died: the client's own retries would be sent there again."""
    fleet.coordinator.backend_url = free_url()
    fleet.connect()

    async def ask() -> None:
        async with tao.wrap(
            AsyncOpenAI(base_url=fleet.own.url, api_key="k", max_retries=0)
        ) as client:
            await client.chat.completions.create(model="m", messages=[])

    if is_async:
        asyncio.run(ask())
    else:
        fleet.ask()
    assert fleet.went == "own"
    assert eventually(lambda: fleet.coordinator.releases)
    assert [one["outcome"] for one in fleet.coordinator.releases] == ["error"]


def test_own_backend_that_takes_no_connection_is_the_callers_error(fleet: Fleet) -> None:
    fleet.coordinator.backend_url = free_url()
    fleet.connect()
    client = tao.wrap(
        OpenAI(base_url=f"{fleet.coordinator.backend_url}/v1", api_key="k", max_retries=0)
    )
    with client, pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model="m", messages=[])


@pytest.mark.parametrize("is_async", [False, True])
def test_refused_connection_is_passed_by(fleet: Fleet, is_async: bool) -> None:
    tao.connect(free_url())

    async def ask() -> None:
        async with tao.wrap(AsyncOpenAI(base_url=fleet.own.url, api_key="k")) as client:
            await client.chat.completions.create(model="m", messages=[])

    if is_async:
        asyncio.run(ask())
    else:
        fleet.ask()
    assert fleet.went == "own"
    assert is_open()


def test_passed_by_call_goes_out_exactly_as_it_would_have(fleet: Fleet) -> None:
    def send() -> None:
        stream = fleet.client.chat.completions.create(model="m", messages=[], stream=True)
        assert len(list(stream)) == len(fleet.own.words)

    send()
    fleet.connect()
    fleet.coordinator.script("404:model_not_served")
    send()
    without, passed_by = fleet.own.calls
    assert passed_by.body == without.body
    assert passed_by.path == without.path
    ignored = {"host"}
    assert {name: value for name, value in passed_by.headers.items() if name not in ignored} == {
        name: value for name, value in without.headers.items() if name not in ignored
    }


@pytest.mark.parametrize(
    "refusal",
    [
        "404:model_not_served",
        "409:session_ended",
        "413:larger_than_any_backend",
        "429:queue_full",
        "429:waited_too_long",
        "503:no_healthy_backend",
    ],
)
def test_refused_call_passes_and_the_coordinator_is_asked_again(fleet: Fleet, refusal: str) -> None:
    fleet.connect()
    fleet.coordinator.script(refusal)
    fleet.ask()
    fleet.ask()
    assert fleet.went == "ownown"
    assert len(fleet.coordinator.leases) == 2
    assert not is_open()
    assert not fleet.coordinator.withdrawals


def test_wrong_key_is_told_once(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.connect()
    fleet.coordinator.script("401:unauthorized")
    fleet.ask()
    fleet.ask()
    warned = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "401 unauthorized" in warned[0].getMessage()


def test_hold_past_the_callers_time_out_is_the_callers_time_out(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.poll_s = 30
    fleet.coordinator.script("hold")
    started_s = time.monotonic()
    with pytest.raises(openai.APITimeoutError) as caught:
        fleet.ask(timeout=0.7)
    assert 0.7 <= time.monotonic() - started_s < 5
    assert str(caught.value.request.url) == f"{fleet.own.url}/v1/chat/completions"
    assert fleet.went == ""
    assert eventually(lambda: fleet.coordinator.withdrawals)
    asked = fleet.coordinator.leases
    assert fleet.coordinator.withdrawals == [asked[0].json["request_id"]]
    assert asked[1].headers["prefer"] == "wait=1"
    assert not is_open(), "its silence was our own doing"


@LOOPS
def test_hold_past_the_callers_time_out_async(fleet: Fleet, loop: str) -> None:
    fleet.connect()
    fleet.coordinator.poll_s = 30
    fleet.coordinator.script("hold")

    async def main() -> None:
        client = tao.wrap(
            AsyncOpenAI(base_url=fleet.own.url, api_key="k", timeout=0.7, max_retries=0)
        )
        async with client:
            with pytest.raises(openai.APITimeoutError):
                await client.chat.completions.create(model="m", messages=[])

    run(loop, main)
    assert fleet.went == ""
    assert eventually(lambda: fleet.coordinator.withdrawals)


def test_hold_counts_against_the_time_out_of_the_call_itself(fleet: Fleet) -> None:
    """0.8 s held of 1.5 s: a backend that takes 1 s more is over the time-out."""
    fleet.connect()
    fleet.coordinator.retry_after_s = 0.8
    fleet.coordinator.script("hold", "grant")
    fleet.backend.pause_s = 1.0
    with pytest.raises(openai.APITimeoutError):
        fleet.ask(timeout=1.5)
    assert fleet.went == "backend"


def test_pause_that_outlasts_the_time_out_is_cut_short(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.retry_after_s = 60
    fleet.coordinator.script("hold")
    with pytest.raises(openai.APITimeoutError):
        fleet.ask(timeout=0.5)
    assert fleet.went == ""


@LOOPS
def test_cancelled_hold_is_withdrawn(fleet: Fleet, loop: str) -> None:
    fleet.connect()
    fleet.coordinator.poll_s = 30
    fleet.coordinator.script("hold")

    async def main() -> None:
        async with tao.wrap(AsyncOpenAI(base_url=fleet.own.url, api_key="k")) as client:
            with anyio.move_on_after(0.3) as scope:
                await client.chat.completions.create(model="m", messages=[])
            assert scope.cancelled_caught

    run(loop, main)
    assert fleet.went == ""
    assert eventually(lambda: fleet.coordinator.withdrawals)
    assert fleet.coordinator.withdrawals == [fleet.coordinator.leases[0].json["request_id"]]


def test_task_cancelled_by_asyncio_itself_is_withdrawn(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.poll_s = 30
    fleet.coordinator.script("hold")

    async def main() -> None:
        async with tao.wrap(AsyncOpenAI(base_url=fleet.own.url, api_key="k")) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(
                    client.chat.completions.create(model="m", messages=[]), timeout=0.3
                )

    asyncio.run(main())
    assert eventually(lambda: fleet.coordinator.withdrawals)


def test_keyboard_interrupt_in_a_hold_passes_and_withdraws(fleet: Fleet) -> None:
    """The hook runs on the held thread, as Ctrl-C would."""

    def interrupt(hold: tao.HoldInfo) -> None:
        raise KeyboardInterrupt

    tao.connect(fleet.coordinator.url, on_hold=interrupt)
    fleet.coordinator.script("hold")
    with pytest.raises(KeyboardInterrupt):
        fleet.ask()
    assert fleet.went == ""
    assert eventually(lambda: fleet.coordinator.withdrawals)


def test_coordinator_that_dies_in_a_hold_lets_the_call_go(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.script("hold", "reset")
    fleet.coordinator.health_status = 503
    fleet.ask()
    assert fleet.went == "own"
    assert is_open()


def test_breaker_opens_once_recovers_and_says_so(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tao_client")
    fleet.connect()
    fleet.coordinator.health_status = 503
    fleet.coordinator.script("crash", "grant")
    fleet.ask()
    fleet.ask()
    assert fleet.went == "ownown"
    fleet.coordinator.health_status = 200
    assert eventually(lambda: not is_open())
    fleet.ask()
    assert fleet.went == "ownownbackend"
    told = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "tao_client"]
    assert [level for level, _ in told] == ["WARNING", "INFO"]
    assert "does not answer" in told[0][1]
    assert "answers again" in told[1][1]


def test_release_of_an_outage_is_delivered_after_it(fleet: Fleet) -> None:
    fleet.connect()
    fleet.coordinator.script("grant", "crash")
    stream = fleet.client.chat.completions.create(model="m", messages=[], stream=True)
    fleet.coordinator.health_status = 503
    fleet.ask()
    assert is_open()
    assert len(list(stream)) == len(fleet.backend.words)
    time.sleep(0.1)
    assert not fleet.coordinator.releases, "the coordinator is away"
    fleet.coordinator.health_status = 200
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["output_tokens"] == 34


def test_request_that_was_given_up_is_withdrawn(fleet: Fleet) -> None:
    """A late grant would hold a seat that nobody uses."""
    fleet.connect()
    fleet.coordinator.script("hang")
    fleet.ask()
    assert eventually(lambda: fleet.coordinator.withdrawals)
    assert fleet.coordinator.withdrawals == [fleet.coordinator.leases[0].json["request_id"]]


def test_running_call_is_renewed_until_it_ends(fleet: Fleet) -> None:
    fleet.connect()
    fleet.backend.pause_s = 1.5
    fleet.ask()
    assert len(fleet.coordinator.seen("POST", "/renew")) == 1
    assert eventually(lambda: fleet.coordinator.releases)


def test_short_call_is_never_renewed(fleet: Fleet) -> None:
    fleet.connect()
    fleet.ask()
    assert eventually(lambda: fleet.coordinator.releases)
    time.sleep(1.2)
    assert not fleet.coordinator.seen("POST", "/renew")


def test_many_threads_share_one_connection_of_the_process(fleet: Fleet) -> None:
    fleet.connect()
    threads = [threading.Thread(target=fleet.ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fleet.backend.calls) == 16
    assert eventually(lambda: len(fleet.coordinator.releases) == 16)
