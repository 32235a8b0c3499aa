import logging
import multiprocessing
import multiprocessing.util
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from sdk_stubs import CoordinatorStub, free_url

import tao_client as tao
from tao_client import _connection, testing
from tao_client._events import make_event


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    yield
    testing.reset()


def test_connect_needs_an_endpoint() -> None:
    with pytest.raises(tao.ConfigurationError, match="TAO_ENDPOINT"):
        tao.connect()


def test_connect_is_idempotent_and_replaces() -> None:
    url = free_url()
    tao.connect(url)
    first = _connection.active()
    tao.connect(url + "/")
    assert _connection.active() is first
    tao.connect(url, events=False)
    second = _connection.active()
    assert second is not first
    assert first is not None
    assert first.channel.is_closed
    tao.disconnect()
    tao.disconnect()
    assert _connection.active() is None


def test_environment_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _connection.active() is None
    monkeypatch.setenv("TAO_ENDPOINT", free_url())
    assert _connection.active() is None
    testing.reset()
    assert _connection.active() is not None


def test_first_use_by_many_threads_makes_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_ENDPOINT", free_url())
    found: set[int] = set()
    threads = [
        threading.Thread(target=lambda: found.add(id(_connection.active()))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_turn_held_while_the_connection_is_replaced_is_let_go_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with CoordinatorStub() as coordinator:
        coordinator.poll_s = 0.3
        coordinator.script("hold")
        tao.connect(coordinator.url)
        done: list[object] = []

        def agent() -> None:
            with tao.session() as s, s.turn(model="m") as turn:
                done.append(turn.affinity)

        thread = threading.Thread(target=agent)
        thread.start()
        while len(coordinator.leases) < 2:
            time.sleep(0.005)
        tao.disconnect()
        thread.join(10)
    assert done == [None]
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_opentelemetry_that_does_not_load_costs_the_events_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tao_client._otlp", None)
    with CoordinatorStub() as coordinator:
        tao.connect(coordinator.url)
        with tao.session() as s, s.tool_call("x"), s.turn(model="m") as turn:
            assert turn.affinity is not None
        tao.disconnect()
        assert coordinator.releases
        assert not coordinator.events
    assert "no events are sent" in caplog.text


def test_workers_of_multiprocessing_flush_at_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end without atexit, but run the finalizers of multiprocessing."""
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    finalizers: list[Callable[[], None]] = []

    def register(obj: object, callback: Callable[[], None], exitpriority: int) -> None:
        finalizers.append(callback)

    monkeypatch.setattr(multiprocessing.util, "Finalize", register)
    tao.connect(free_url())
    for finalizer in finalizers:
        finalizer()
    assert _connection.active() is None


def test_captured_events_are_not_sent() -> None:
    with CoordinatorStub() as coordinator:
        tao.connect(coordinator.url)
        with testing.capture_events() as outer:
            with testing.capture_events() as inner, tao.session("a"):
                pass
            with tao.session("b"):
                pass
        tao.disconnect()
        assert not coordinator.events
    assert {one.attributes["gen_ai.conversation.id"] for one in inner} == {"a"}
    assert {one.attributes["gen_ai.conversation.id"] for one in outer} == {"b"}


def test_forked_child_starts_anew_with_the_same_settings() -> None:
    """The hook itself, called here; whole forked processes are in the integration tests."""
    with CoordinatorStub() as coordinator:
        tao.connect(coordinator.url, api_key="k")
        parent = _connection.active()
        assert parent is not None
        with tao.session("s") as s:
            call = s.tool_call("x", call_id="c")
            call.__enter__()
            _connection._restart_in_child()
            child = _connection.active()
            assert child is not None
            assert child is not parent
            assert child.config == parent.config
            assert not parent.channel.is_closed, "its sockets are the parent's"
            with testing.capture_events() as events:
                assert not s._beat(), "the open calls are the parent's to tell of"
                s.wait()
            assert events[0].attributes["tao.event.sequence"] == 1
        tao.disconnect()
        assert _connection.active() is None, "disconnected is disconnected"
        parent.close()


def test_fork_without_a_connection_makes_none() -> None:
    _connection._restart_in_child()
    assert _connection.active() is None


def test_disabled_connect_connects_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_DISABLED", "1")
    tao.connect("not even a URL")
    assert _connection.active() is None


def test_environment_that_cannot_work_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TAO_ENDPOINT", "coordinator:8700")
    assert _connection.active() is None
    assert _connection.active() is None
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "coordinator:8700" in caplog.text


def test_proxy_that_cannot_work_is_told_and_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ALL_PROXY", "gopher://x")
    with pytest.raises(tao.ConfigurationError, match="ALL_PROXY"):
        tao.connect(free_url())
    monkeypatch.setenv("TAO_ENDPOINT", free_url())
    testing.reset()
    with tao.session() as s, s.turn(model="m") as turn:
        assert turn.affinity is None
    assert [one.levelname for one in caplog.records] == ["WARNING"]


def test_events_that_come_while_all_are_away_are_dropped() -> None:
    tao.connect(free_url(), events=False)
    connection = _connection.active()
    assert connection is not None
    (endpoint,) = connection.config.endpoints
    connection.coordinators.record_no_answer(endpoint, "x")
    assert not connection._post_events(b"", "application/x-protobuf", 1.0)


def test_second_thread_at_the_first_use_finds_the_first_ones_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has waited for the lock, and must not make another."""
    monkeypatch.setenv("TAO_ENDPOINT", free_url())
    testing.reset()
    first = _connection.active()
    assert first is not None
    _connection._connect_by_itself()
    assert _connection.active() is first


def test_event_without_anybody_to_send_it_to_is_nothing() -> None:
    event = make_event("tao.session.start", "s", {})
    _connection.emit(event)
    tao.connect(free_url(), events=False)
    _connection.emit(event)
    assert not _connection.is_emitting()
