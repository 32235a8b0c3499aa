"""What stands between the HTTP client and its sockets, above a network that only writes down."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tao_client._timed_network import Deadline, TimedNetwork, TimedStream

INET = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
INET6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "")


class Inner:
    """A network and its stream; `fails` says of an address what happens to who connects to it."""

    def __init__(self, **fails: type[Exception]) -> None:
        self._fails = {name.replace("_", "."): error for name, error in fails.items()}
        self.asked: list[tuple[Any, ...]] = []

    def connect_tcp(self, host: str, port: int, timeout: float | None, **_: Any) -> "Inner":
        self.asked.append((host, port, timeout))
        if host in self._fails:
            raise self._fails[host]("as told")
        return self

    def read(self, max_bytes: int, timeout: float | None) -> bytes:
        self.asked.append(("read", timeout))
        return b"x"

    def write(self, buffer: bytes, timeout: float | None) -> None:
        self.asked.append(("write", timeout))

    def start_tls(self, context: Any, name: str | None, timeout: float | None) -> "Inner":
        self.asked.append(("tls", timeout))
        return self


def names(monkeypatch: pytest.MonkeyPatch, answer: Callable[[], list[Any]]) -> None:
    def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return answer()

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def of(*addresses: str) -> Callable[[], list[Any]]:
    return lambda: [(*INET, (address, 1)) for address in addresses]


def test_address_and_this_machine_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Inner()
    network = TimedNetwork(inner, Deadline())
    names(monkeypatch, lambda: pytest.fail("looked up"))
    for host in ("127.0.0.1", "::1", "fe80::1%lo", "localhost"):
        network.connect_tcp(host, 80)
    assert inner.asked == [
        (host, 80, None) for host in ("127.0.0.1", "::1", "fe80::1%lo", "localhost")
    ]


def test_addresses_that_do_not_answer_leave_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = Inner(**{"10_0_0_1": httpx2.ConnectTimeout, "10_0_0_2": httpx2.ConnectError})
    names(monkeypatch, of("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"))
    TimedNetwork(inner, Deadline()).connect_tcp("c.test", 80, timeout=8.0)
    hosts, _, limits_s = zip(*inner.asked, strict=True)
    assert hosts == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert list(limits_s) == pytest.approx([4.0, 4.0, 8.0], abs=0.5)  # in no time at all, here


def test_last_failure_is_the_one_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Inner(**{"10_0_0_1": httpx2.ConnectTimeout, "10_0_0_2": httpx2.ConnectError})
    names(monkeypatch, of("10.0.0.1", "10.0.0.2"))
    with pytest.raises(httpx2.ConnectError, match="as told"):
        TimedNetwork(inner, Deadline()).connect_tcp("c.test", 80, timeout=8.0)


def test_address_that_is_valid_on_one_interface_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Inner()
    names(monkeypatch, lambda: [(*INET6, ("fe80::1", 80, 0, 3)), (*INET6, ("::1", 80, 0, 0))])
    TimedNetwork(inner, Deadline()).connect_tcp("c.test", 80)
    assert inner.asked == [("fe80::1%3", 80, None)]


@pytest.mark.parametrize("what", [ValueError("odd"), None])
def test_whatever_a_resolver_does_is_a_refused_connection(
    monkeypatch: pytest.MonkeyPatch, what: Exception | None
) -> None:
    def answer() -> list[Any]:
        if what is not None:
            raise what
        return []

    names(monkeypatch, answer)
    network = TimedNetwork(Inner(), Deadline())
    for _ in range(2):
        with pytest.raises(httpx2.ConnectError, match=r"ValueError: odd|c\.test has no address"):
            network.connect_tcp("c.test", 80, timeout=5.0)


def test_without_a_thread_the_name_is_looked_up_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while the interpreter ends, when the last releases are delivered."""
    inner = Inner()
    names(monkeypatch, of("10.0.0.1"))
    network = TimedNetwork(inner, Deadline())

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        network.connect_tcp("c.test", 80, timeout=5.0)
    network.connect_tcp("c.test", 80, timeout=5.0)
    assert [host for host, *_ in inner.asked] == ["10.0.0.1"] * 2


def test_deadline_shortens_every_step_and_then_ends_them() -> None:
    inner, deadline = Inner(), Deadline()
    stream = TimedNetwork(inner, deadline).connect_tcp("127.0.0.1", 80, timeout=9.0)
    stream.write(b"x", 9.0)
    stream.read(1, None)
    deadline.at_s = time.monotonic() + 5.0
    stream.write(b"x", 9.0)
    stream.read(1, 9.0)
    stream.read(1, None)
    assert isinstance(stream.start_tls(None, "c.test", timeout=9.0), TimedStream)
    limits_s = [limit_s for *_, limit_s in inner.asked]
    assert limits_s[0] == pytest.approx(9.0, abs=0.5)
    assert limits_s[1:3] == [9.0, None]
    assert limits_s[3:] == pytest.approx([5.0] * 4, abs=0.5)
    deadline.at_s = time.monotonic()
    for act in (lambda: stream.write(b"x"), lambda: stream.read(1), lambda: stream.start_tls(None)):
        with pytest.raises(TimeoutError, match="is over"):
            act()
    assert len(inner.asked) == 7
