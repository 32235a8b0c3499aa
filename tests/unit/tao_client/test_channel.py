import socket
import threading
import time
from typing import Any

import pytest
from sdk_stubs import CoordinatorStub, free_url

from tao_client import _channel
from tao_client._channel import AsyncChannel, SyncChannel
from tao_client._config import Config
from tao_client._lease import Ask, Grant, NoAnswer, TurnRequest


def ask(endpoint: str, time_limit_s: float = 5.0) -> Ask:
    return Ask(TurnRequest("r", "s"), endpoint, wait_s=0, time_limit_s=time_limit_s)


def test_requests_name_their_client_and_carry_the_key() -> None:
    with CoordinatorStub() as coordinator:
        channel = SyncChannel(Config((coordinator.url,), "secret"))
        assert isinstance(channel.ask(ask(coordinator.url)), Grant)
        channel.close()
        sent = coordinator.leases[0].headers
    assert sent["authorization"] == "Bearer secret"
    assert sent["x-tao-protocol"] == "1"
    assert sent["x-tao-client"].startswith("tao_client/")
    assert sent["content-type"] == "application/json"
    assert "prefer" not in sent


def test_connection_is_kept_for_the_next_request() -> None:
    with CoordinatorStub() as coordinator:
        channel = SyncChannel(Config((coordinator.url,)))
        accepted: list[object] = []
        get_request = coordinator._server.get_request
        coordinator._server.get_request = lambda: accepted.append(1) or get_request()
        for _ in range(3):
            assert isinstance(channel.ask(ask(coordinator.url)), Grant)
        channel.close()
    assert len(accepted) == 1


def test_connection_that_breaks_is_tried_once_more() -> None:
    with CoordinatorStub() as coordinator:
        coordinator.script("reset", "grant")
        channel = SyncChannel(Config((coordinator.url,)))
        assert isinstance(channel.ask(ask(coordinator.url)), Grant)
        coordinator.script("reset", "reset", "grant")
        assert isinstance(channel.ask(ask(coordinator.url)), NoAnswer)
        channel.close()
        assert len(coordinator.leases) == 4


def test_refused_connection_was_not_sent() -> None:
    url = free_url()
    channel = SyncChannel(Config((url,)))
    assert channel.ask(ask(url)) == NoAnswer("ConnectError", may_hold=False)
    assert channel.send(url, "GET", "/healthz", b"", 1.0) is None
    channel.close()
    assert channel.ask(ask(url)) == NoAnswer("disconnected", may_hold=False)


def test_tls_is_verified_and_costs_nothing_without() -> None:
    assert _channel._verification(Config(("http://a", "https://c"))) is True
    context = _channel._verification(Config(("http://c",)))
    assert not isinstance(context, bool)
    assert context.check_hostname, "it trusts nobody"
    assert not context.get_ca_certs()


def test_async_channel_outside_an_event_loop_of_a_known_kind_is_no_answer() -> None:
    """Any loop that anyio does not know: the call goes on without a lease."""
    url = free_url()
    channel = AsyncChannel(Config((url,)))
    coroutine = channel.ask(ask(url))
    with pytest.raises(Exception, match=r"."):
        coroutine.send(None)
    coroutine.close()


@pytest.mark.parametrize("word", ["trickle", "dribble"])
def test_slow_answer_is_given_up_at_the_limit(word: str) -> None:
    with CoordinatorStub() as coordinator:
        coordinator.script(word)
        channel = SyncChannel(Config((coordinator.url,)))
        started_s = time.monotonic()
        reply = channel.ask(ask(coordinator.url, 0.3))
        assert isinstance(reply, NoAnswer)
        assert time.monotonic() - started_s < 5
        channel.close()


class NameServer:
    """Stands in for the system's: answers when it is let to, with what it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.addresses: list[str] | OSError = ["127.0.0.1"]
        self.asked: list[str] = []
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if host != "coordinator.test":
            return self._real(host, port, *args, **kwargs)
        self.asked.append(host)
        assert self.answers.wait(20)
        if isinstance(self.addresses, OSError):
            raise self.addresses
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, port)) for address in self.addresses]


def named(url: str) -> str:
    return url.replace("127.0.0.1", "coordinator.test")


def test_name_server_that_hangs_is_given_up_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer(monkeypatch)
    with CoordinatorStub() as coordinator:
        url = named(coordinator.url)
        channel = SyncChannel(Config((url,)))
        started_s = time.monotonic()
        for _ in range(3):
            assert channel.ask(ask(url, 0.1)) == NoAnswer("ConnectTimeout", may_hold=False)
        assert time.monotonic() - started_s < 5
        assert names.asked == ["coordinator.test"], "each caller left a thread behind"
        names.answers.set()
        assert isinstance(channel.ask(ask(url)), Grant)
        channel.close()


def test_unknown_name_is_a_refused_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer(monkeypatch)
    names.addresses = socket.gaierror(-2, "Name or service not known")
    names.answers.set()
    url = named(free_url())
    channel = SyncChannel(Config((url,)))
    for _ in range(2):
        assert channel.ask(ask(url)) == NoAnswer("ConnectError", may_hold=False)
    assert len(names.asked) == 2, "a name that was unknown once may be known now"
    channel.close()


def test_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    names = NameServer(monkeypatch)
    names.answers.set()
    with CoordinatorStub() as coordinator:
        url = named(coordinator.url)
        names.addresses = ["127.0.0.2", "127.0.0.1"]
        channel = SyncChannel(Config((url,)))
        assert isinstance(channel.ask(ask(url)), Grant)
        channel.close()


@pytest.mark.parametrize("host", ["a" * 70 + ".test", "a..test"])
def test_host_that_is_no_name_is_no_answer(host: str) -> None:
    url = f"http://{host}:1"
    channel = SyncChannel(Config((url,)))
    assert channel.ask(ask(url)) == NoAnswer("ConnectError", may_hold=False)
    channel.close()
