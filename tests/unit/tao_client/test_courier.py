"""The courier with a wire that records and can be cut."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tao_client import _breaker, _courier
from tao_client._coordinators import Coordinators
from tao_client._courier import Courier, HeldLease

C = "http://c"
OTHER = "http://other"


class FakeWire:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.bodies: list[bytes] = []
        self.status: int | None = 204
        self.health: int | None = 200
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.dead: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def send(
        self, endpoint: str, method: str, path: str, body: bytes, time_limit_s: float
    ) -> int | None:
        self.gate.wait(10)
        if self.fails:
            self.fails = False
            raise RuntimeError("of the wire")
        self.asked.append((endpoint, path.rsplit("/", 1)[-1]))
        if endpoint in self.dead:
            return None
        self.sent.append(f"{method} {path.removeprefix('/tao/v1/leases/')}")
        self.bodies.append(body)
        return self.health if path in ("/healthz", "/readyz") else self.status


@pytest.fixture
def wire() -> FakeWire:
    return FakeWire()


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Coordinators:
    """One coordinator, as most have it."""
    monkeypatch.setattr(_breaker, "FIRST_PROBE_S", 0.02)
    return Coordinators([C])


@pytest.fixture
def courier(wire: FakeWire, only: Coordinators) -> Iterator[Courier]:
    courier = Courier(wire, only)
    yield courier
    wire.gate.set()
    courier.close(5)


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.002)


def test_release_and_withdrawal_are_delivered(courier: Courier, wire: FakeWire) -> None:
    lease = HeldLease("a/b", C)
    courier.release(lease, b"{}")
    courier.release(lease, b"{}")
    courier.abandon("r 1", C)
    courier.close(5)
    assert wire.sent == ["POST a%2Fb/release", "DELETE r%201"]
    courier.abandon("r2", C)
    assert courier.dropped == 1, "it is closed"
    assert lease.is_delivered


def test_release_that_nobody_answered_is_not_delivered(courier: Courier, wire: FakeWire) -> None:
    wire.status = None
    lease = HeldLease("a", C)
    courier.release(lease, b"{}")
    until(lambda: wire.sent)
    assert not lease.is_delivered


def test_lease_is_renewed_while_it_runs(
    courier: Courier, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.02)
    monkeypatch.setattr(_courier, "RENEWAL_S", 0.03)
    lease = HeldLease("a", C)
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
    courier.keep(HeldLease("a", C))
    until(lambda: wire.sent)
    time.sleep(0.1)
    assert wire.sent == ["POST a/renew"]


def test_silence_opens_the_breaker_and_what_is_parked_is_delivered_later(
    courier: Courier, wire: FakeWire, only: Coordinators
) -> None:
    wire.status = wire.health = None
    courier.release(HeldLease("a", C), b"1")
    until(lambda: only.are_away)
    courier.release(HeldLease("b", C), b"2")
    until(lambda: "GET /healthz" in wire.sent)
    assert "POST b/release" not in wire.sent, "nothing is sent while it is away"
    wire.status, wire.health = 204, 200
    until(lambda: not only.are_away)
    until(lambda: "POST b/release" in wire.sent)
    assert wire.sent.index("POST b/release") > len(wire.sent) - 3
    assert wire.sent.count("POST a/release") == 2


def test_running_lease_is_renewed_again_soon_after_an_outage(
    courier: Courier, wire: FakeWire, only: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.02)
    only.record_no_answer(C, "x")
    courier.keep(HeldLease("a", C))
    time.sleep(0.1)
    assert not wire.sent
    courier.start_probing(C)
    until(lambda: "POST a/renew" in wire.sent)
    assert not only.are_away


def test_what_nobody_wants_any_more_after_a_minute_is_dropped(
    courier: Courier, wire: FakeWire, only: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "PARKED_LIFE_S", -1.0)
    only.record_no_answer(C, "x")
    courier.abandon("r", C)
    courier.start_probing(C)
    until(lambda: courier.dropped == 1)
    assert wire.sent == ["GET /healthz"]


def test_parked_commands_are_bounded(
    courier: Courier, wire: FakeWire, only: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "PARKED_LIMIT", 2)
    only.record_no_answer(C, "x")
    for name in "abc":
        courier.abandon(name, C)
    courier.start_probing(C)
    until(lambda: "DELETE c" in wire.sent)
    assert wire.sent == ["GET /healthz", "DELETE b", "DELETE c"]
    assert courier.dropped == 1


def test_full_queue_drops_and_counts(only: Coordinators, wire: FakeWire) -> None:
    wire.gate.clear()
    courier = Courier(wire, only, limit=3)
    courier.abandon("first", C)
    until(lambda: courier._queue.qsize() == 0)
    for name in "abcde":
        courier.abandon(name, C)
    assert courier.dropped == 2
    wire.gate.set()
    courier.close(5)
    assert wire.sent == ["DELETE first", "DELETE a", "DELETE b", "DELETE c"]


def test_first_contact_without_an_answer_opens_the_breaker(
    courier: Courier, wire: FakeWire, only: Coordinators, caplog: pytest.LogCaptureFixture
) -> None:
    wire.health = 404
    courier.warm_up()
    until(lambda: only.are_away)
    until(lambda: "status 404" in caplog.text)
    wire.health = 200
    until(lambda: not only.are_away)


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
    courier.abandon("a", C)
    courier.abandon("b", C)
    courier.close(5)
    assert wire.sent == ["DELETE b"]


def test_close_waits_no_longer_than_told(only: Coordinators, wire: FakeWire) -> None:
    wire.gate.clear()
    courier = Courier(wire, only)
    for name in "abc":
        courier.abandon(name, C)
    started_s = time.monotonic()
    courier.close(0.05)
    assert time.monotonic() - started_s < 5
    wire.gate.set()
    assert courier._finished.wait(5)
    assert wire.sent == ["DELETE a"], "what was not sent in time is not sent late"


def test_courier_that_was_never_used_closes_at_once(only: Coordinators, wire: FakeWire) -> None:
    Courier(wire, only).close(5)
    assert not wire.sent


def test_destructor_that_gives_back_while_the_thread_starts_starts_no_second(
    only: Coordinators, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def collect_garbage_then_start(thread: threading.Thread) -> None:
        started.append(thread)
        courier._start()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", collect_garbage_then_start)
    courier = Courier(wire, only)
    courier.abandon("a", C)
    courier.close(5)
    assert len(started) == 1
    assert wire.sent == ["DELETE a"]


def test_courier_without_a_thread_is_silent(
    only: Coordinators, wire: FakeWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At interpreter shutdown no thread can be started."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    courier = Courier(wire, only)
    courier.abandon("a", C)
    courier.close(5)
    assert not wire.sent


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Coordinators:
    monkeypatch.setattr(_breaker, "FIRST_PROBE_S", 0.02)
    return Coordinators([C, OTHER])


def test_first_contact_finds_the_one_that_is_there(wire: FakeWire, two: Coordinators) -> None:
    wire.dead = {C}
    courier = Courier(wire, two)
    courier.warm_up()
    until(lambda: (OTHER, "readyz") in wire.asked)
    assert two.in_charge() == OTHER
    wire.dead.clear()
    until(lambda: two.in_charge() == C)
    courier.close(5)


def test_leases_stay_with_the_coordinator_that_gave_them(
    wire: FakeWire, two: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.02)
    monkeypatch.setattr(_courier, "RENEWAL_S", 0.02)
    courier = Courier(wire, two)
    lease = HeldLease("a", OTHER)
    courier.keep(lease)
    until(lambda: (OTHER, "renew") in wire.asked)
    wire.status = 404  # of whoever has not given it
    wire.dead = {OTHER}
    until(lambda: wire.asked.count((C, "renew")) >= 2)
    courier.release(lease, b"{}")
    courier.abandon("r", OTHER)
    until(lambda: wire.asked.count((OTHER, "readyz")) >= 2)
    assert not lease.is_delivered
    assert (C, "release") not in wire.asked
    wire.status, wire.dead = 204, set()
    until(lambda: lease.is_delivered)
    courier.close(5)
    assert (OTHER, "r") in wire.asked


def test_running_lease_is_kept_for_later_while_all_are_away(
    wire: FakeWire, two: Coordinators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "FIRST_RENEWAL_S", 0.02)
    for endpoint in (C, OTHER):
        two.record_no_answer(endpoint, "x")
    courier = Courier(wire, two)
    courier.keep(HeldLease("a", C))
    time.sleep(0.1)
    assert not wire.asked
    courier.start_probing(C)
    until(lambda: (C, "renew") in wire.asked)
    courier.close(5)


def test_one_that_something_did_not_get_through_to_is_looked_after(
    wire: FakeWire, two: Coordinators
) -> None:
    courier = Courier(wire, two)
    courier.look_after(C)
    until(lambda: wire.asked)
    assert two.in_charge() == C, "it is well"
    wire.health = 503
    courier.look_after(C)
    until(lambda: two.in_charge() == OTHER)
    courier.close(5)
