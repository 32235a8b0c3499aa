"""The courier with a wire that records and can be cut."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tao_client import _breaker, _courier
from tao_client._breaker import Breaker
from tao_client._courier import Courier, HeldLease


class FakeWire:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.bodies: list[bytes] = []
        self.status: int | None = 204
        self.health: int | None = 200
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def send(self, method: str, path: str, body: bytes, time_limit_s: float) -> int | None:
        self.gate.wait(10)
        if self.fails:
            self.fails = False
            raise RuntimeError("of the wire")
        self.sent.append(f"{method} {path.removeprefix('/tao/v1/leases/')}")
        self.bodies.append(body)
        return self.health if path == "/healthz" else self.status


@pytest.fixture
def wire() -> FakeWire:
    return FakeWire()


@pytest.fixture
def breaker(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    monkeypatch.setattr(_breaker, "FIRST_PROBE_S", 0.02)
    return Breaker("http://c")


@pytest.fixture
def courier(wire: FakeWire, breaker: Breaker) -> Iterator[Courier]:
    courier = Courier(wire, breaker)
    yield courier
    wire.gate.set()
    courier.close(5)


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def test_release_and_withdrawal_are_delivered(courier: Courier, wire: FakeWire) -> None:
    lease = HeldLease("a/b")
    courier.release(lease, b"{}")
    courier.release(lease, b"{}")
    courier.abandon("r 1")
    courier.close(5)
    assert wire.sent == ["POST a%2Fb/release", "DELETE r%201"]
    courier.abandon("r2")
    assert courier.dropped == 1, "it is closed"
    assert lease.is_delivered


def test_release_that_nobody_answered_is_not_delivered(courier: Courier, wire: FakeWire) -> None:
    wire.status = None
    lease = HeldLease("a")
    courier.release(lease, b"{}")
    until(lambda: wire.sent)
    assert not lease.is_delivered


def test_lease_is_renewed_while_it_runs(
    courier: Courier, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.02)
    monkeypatch.setattr(_courier, "RENEWAL_S", 0.03)
    lease = HeldLease("a")
    courier.keep(lease)
    until(lambda: wire.sent.count("POST a/renew") >= 3)
    courier.release(lease, b"{}")
    until(lambda: "POST a/release" in wire.sent)
    renewals = wire.sent.count("POST a/renew")
    time.sleep(0.1)
    assert wire.sent.count("POST a/renew") == renewals


def test_unknown_lease_is_renewed_no_more(
    courier: Courier, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.01)
    monkeypatch.setattr(_courier, "RENEWAL_S", 0.01)
    wire.status = 404
    courier.keep(HeldLease("a"))
    until(lambda: wire.sent)
    time.sleep(0.1)
    assert wire.sent == ["POST a/renew"]


def test_silence_opens_the_breaker_and_what_is_parked_is_delivered_later(
    courier: Courier, wire: FakeWire, breaker: Breaker
) -> None:
    wire.status = wire.health = None
    courier.release(HeldLease("a"), b"1")
    until(lambda: breaker.is_open)
    courier.release(HeldLease("b"), b"2")
    until(lambda: "GET /healthz" in wire.sent)
    assert "POST b/release" not in wire.sent, "nothing is sent while it is away"
    wire.status, wire.health = 204, 200
    until(lambda: not breaker.is_open)
    until(lambda: "POST b/release" in wire.sent)
    assert wire.sent.index("POST b/release") > len(wire.sent) - 3
    assert wire.sent.count("POST a/release") == 2


def test_running_lease_is_renewed_again_soon_after_an_outage(
    courier: Courier, wire: FakeWire, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.02)
    breaker.record_no_answer("x")
    courier.keep(HeldLease("a"))
    time.sleep(0.1)
    assert not wire.sent
    courier.start_probing()
    until(lambda: "POST a/renew" in wire.sent)
    assert not breaker.is_open


def test_what_nobody_wants_any_more_after_a_minute_is_dropped(
    courier: Courier, wire: FakeWire, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "PARKED_LIFE_S", -1.0)
    breaker.record_no_answer("x")
    courier.abandon("r")
    courier.start_probing()
    until(lambda: courier.dropped == 1)
    assert wire.sent == ["GET /healthz"]


def test_parked_commands_are_bounded(
    courier: Courier, wire: FakeWire, breaker: Breaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "PARKED_LIMIT", 2)
    breaker.record_no_answer("x")
    for name in "abc":
        courier.abandon(name)
    courier.start_probing()
    until(lambda: "DELETE c" in wire.sent)
    assert wire.sent == ["GET /healthz", "DELETE b", "DELETE c"]
    assert courier.dropped == 1


def test_full_queue_drops_and_counts(breaker: Breaker, wire: FakeWire) -> None:
    wire.gate.clear()
    courier = Courier(wire, breaker, limit=3)
    courier.abandon("first")
    until(lambda: courier._queue.qsize() == 0)
    for name in "abcde":
        courier.abandon(name)
    assert courier.dropped == 2
    wire.gate.set()
    courier.close(5)
    assert wire.sent == ["DELETE first", "DELETE a", "DELETE b", "DELETE c"]


def test_first_contact_without_an_answer_opens_the_breaker(
    courier: Courier, wire: FakeWire, breaker: Breaker, caplog: pytest.LogCaptureFixture
) -> None:
    wire.health = 404
    courier.warm_up()
    until(lambda: breaker.is_open)
    until(lambda: "status 404" in caplog.text)
    wire.health = 200
    until(lambda: not breaker.is_open)


def test_repeated_action_ends_when_it_says_so(
    courier: Courier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "HEARTBEAT_S", 0.01)
    calls: list[int] = []

    def act() -> bool:
        calls.append(1)
        return len(calls) < 3

    courier.repeat(act)
    until(lambda: len(calls) == 3)
    time.sleep(0.05)
    assert len(calls) == 3


def test_command_that_fails_does_not_end_the_courier(courier: Courier, wire: FakeWire) -> None:
    wire.fails = True
    courier.abandon("a")
    courier.abandon("b")
    courier.close(5)
    assert wire.sent == ["DELETE b"]


def test_close_waits_no_longer_than_told(breaker: Breaker, wire: FakeWire) -> None:
    wire.gate.clear()
    courier = Courier(wire, breaker)
    for name in "abc":
        courier.abandon(name)
    started_s = time.monotonic()
    courier.close(0.05)
    assert time.monotonic() - started_s < 5
    wire.gate.set()
    assert courier._finished.wait(5)
    assert wire.sent == ["DELETE a"], "what was not sent in time is not sent late"


def test_courier_that_was_never_used_closes_at_once(breaker: Breaker, wire: FakeWire) -> None:
    Courier(wire, breaker).close(5)
    assert not wire.sent


def test_destructor_that_gives_back_while_the_thread_starts_starts_no_second(
    breaker: Breaker, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def collect_garbage_then_start(thread: threading.Thread) -> None:
        started.append(thread)
        courier._start()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", collect_garbage_then_start)
    courier = Courier(wire, breaker)
    courier.abandon("a")
    courier.close(5)
    assert len(started) == 1
    assert wire.sent == ["DELETE a"]


def test_courier_without_a_thread_is_silent(
    breaker: Breaker, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At interpreter shutdown no thread can be started."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    courier = Courier(wire, breaker)
    courier.abandon("a")
    courier.close(5)
    assert not wire.sent
