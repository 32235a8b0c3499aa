import time

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
