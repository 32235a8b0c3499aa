"""What broke rival schedulers, done to ours: a real coordinator, real clients, dying backends.

The table in `docs/rivals.md` names the test of each failure; those that other tests show already
are not repeated here.
"""

import contextlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from coordinator_process import CoordinatorProcess, read_reply, wait_until
from relay_service import CHAT, LONG_CHAT, assert_nothing_is_left, open_call, post, relay
from relay_stubs import MODEL

import tao_client as tao
from tao_client import testing as tao_testing


@contextlib.contextmanager
def wrapped_client(service: CoordinatorProcess, own_url: str) -> Generator[openai.OpenAI]:
    """A real client under the SDK; `own_url` is where its calls go without the coordinator."""
    tao_testing.reset()
    tao.connect(service.url)
    try:
        with openai.OpenAI(base_url=f"{own_url}/v1", api_key="k", max_retries=0) as client:
            yield tao.wrap(client)
    finally:
        tao_testing.reset()


def backend_id_of(reply: Any) -> str:
    return json.loads(reply.headers["x-tao-receipt"])["backend_id"]


MEDIUM_CHAT = CHAT | {"messages": [{"role": "user", "content": "word " * 120}]}


def assert_room_for_all(service: CoordinatorProcess) -> None:
    """Nothing is left, and who needs most of the pool gets it at once."""
    assert_seats_are_gone(service)
    fresh = service.ask("fresh", "fresh", tokens=30_000)
    assert (fresh.status, fresh.json()["receipt"]["hold_s"]) == (200, 0)


def assert_seats_are_gone(service: CoordinatorProcess) -> None:
    assert_nothing_is_left(service)
    backends = service.state()["backends"]
    assert [(one["num_seats"], one["committed_tokens"]) for one in backends] == [(0, 0)] * len(
        backends
    )


# --- backends that die or refuse ----------------------------------------------------------------


def test_sdk_sessions_of_a_dead_backend_go_on_elsewhere(tmp_path: Path) -> None:
    """No session stays pinned: each one's next call but the first few reaches the other backend."""
    with (
        relay(tmp_path, num_backends=2) as (stubs, service),
        wrapped_client(service, "http://127.0.0.1:1") as client,
    ):

        def ask(session: tao.Session) -> None:
            session.run(client.chat.completions.create, model=MODEL, messages=[])

        sessions = [tao.session("s1"), tao.session("s2")]
        for session in sessions:
            ask(session)
        assert [len(stub.calls) for stub in stubs] == [1, 1]
        stubs[0].die()
        wait_until(lambda: [one["healthy"] for one in service.state()["backends"]] == [False, True])
        for session in sessions * 2:
            ask(session)
        assert len(stubs[1].calls) == 1 + 4


def test_refused_calls_of_many_sessions_take_no_room(tmp_path: Path) -> None:
    """Of some 150 tokens each, together more than the pool."""
    with relay(tmp_path) as ((stub,), service):
        stub.statuses = [400] * 400

        def fail(number: int) -> int:
            return post(service, MEDIUM_CHAT, headers={"x-session-id": f"s{number}"}).status

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(fail, range(400))) == [400] * 400
        assert service.state()["counters"]["released"] == {"error": 400}
        assert_room_for_all(service)


def test_cut_streams_of_many_sessions_take_no_room(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        for number in range(300):
            stub.breaks_off = True
            body = MEDIUM_CHAT | {"stream": True}
            cut = post(service, body, headers={"x-session-id": f"s{number}"})
            assert b"broke off its reply" in cut.body
            stub.breaks_off = False
            assert post(service).status == 200, "the backend is not taken for dead"
        assert service.state()["counters"]["released"] == {"error": 300, "completed": 300}
        assert_room_for_all(service)


def test_call_that_no_backend_can_take_delays_nobody(tmp_path: Path) -> None:
    """It is refused and sent nowhere; small calls go at once beside it, without a hold."""
    oversize = CHAT | {"messages": [{"role": "user", "content": "word " * 80_000}]}
    with relay(tmp_path) as ((stub,), service):
        for _ in range(4):
            refused = post(service, oversize, headers={"x-session-id": "giant"})
            assert (refused.status, refused.json()["error"]["code"]) == (
                413,
                "larger_than_any_backend",
            )
            small = post(service)
            assert json.loads(small.headers["x-tao-receipt"])["hold_s"] == 0
        assert len(stub.calls) == 4


# --- who calls ----------------------------------------------------------------------------------


def test_calls_without_a_session_are_spread(tmp_path: Path) -> None:
    """They share no `default` session that would glue all of them to one backend."""
    with relay(tmp_path, num_backends=2) as (stubs, service):
        for stub in stubs:
            stub.pause_s = 0.2
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(post, [service] * 20))
        assert {reply.status for reply in replies} == {200}
        took = Counter(backend_id_of(reply) for reply in replies)
        assert min(took["b0"], took["b1"]) >= 5
        assert service.state()["sessions"] == []
        assert_seats_are_gone(service)


def test_session_that_ends_while_held_is_sent_nowhere(tmp_path: Path) -> None:
    with relay(tmp_path, num_backends=2) as (stubs, service):
        leases = [service.ask(f"r{n}", f"filler{n}").json()["lease_id"] for n in range(2)]
        for lease in leases:
            assert service.call("POST", f"/tao/v1/leases/{lease}/renew").status == 204
        with open_call(service, LONG_CHAT, "s") as relayed, service.open_poll("r", "t") as asked:
            wait_until(lambda: service.num_held() == 2)
            for session_id in ("s", "t"):
                assert service.call("POST", f"/tao/v1/sessions/{session_id}/end").status == 204
            for connection in (relayed, asked):
                reply = read_reply(connection)
                assert (reply.status, reply.json()["error"]["type"]) == (409, "session_ended")
        for number, lease in enumerate(leases):
            service.call("POST", f"/tao/v1/leases/{lease}/release", {"outcome": "cancelled"})
            service.call("POST", f"/tao/v1/sessions/filler{number}/end")
        assert post(service, headers={"x-session-id": "later"}).status == 200
        assert sum(len(stub.calls) for stub in stubs) == 1, "only the later call"
        assert service.state()["counters"]["granted"].keys() == {"planned"}


def test_backends_that_come_and_go_under_running_sessions_cost_no_call(tmp_path: Path) -> None:
    """Between a decision and its sending the fleet may be another: never an error of ours."""
    stop = threading.Event()
    with relay(tmp_path, num_backends=3) as (stubs, service):

        def shake() -> None:
            number = 0
            while not stop.is_set():
                name, url = f"b{number % 2}", stubs[number % 2].url
                service.call("DELETE", f"/tao/v1/backends/{name}")
                body = {"backend_id": name, "base_url": url}
                assert service.call("POST", "/tao/v1/backends", body).status == 201
                number += 1

        def agent(number: int) -> list[int]:
            headers = {"x-session-id": f"s{number}"}
            statuses = [post(service, headers=headers).status for _ in range(40)]
            service.call("POST", f"/tao/v1/sessions/s{number}/end")
            return statuses

        with ThreadPoolExecutor(6) as pool:
            shaken = pool.submit(shake)
            agents = [pool.submit(agent, number) for number in range(5)]
            try:
                statuses = [status for one in agents for status in one.result(40)]
            finally:
                stop.set()
            shaken.result(10)
        assert statuses == [200] * 200
        assert sum(len(stub.calls) for stub in stubs) == 200
        assert_seats_are_gone(service)


# --- who may do what, and what is written down ---------------------------------------------------


def test_sessions_cannot_be_seen_or_ended_without_the_key(tmp_path: Path) -> None:
    key = {"authorization": "Bearer k"}
    with relay(tmp_path, "--api-key", "k") as (_, service):
        assert post(service, headers={"x-session-id": "s1", **key}).status == 200
        for method, path in (
            ("POST", "/tao/v1/sessions/s1/end"),
            ("GET", "/tao/v1/state"),
            ("GET", "/tao/v1/overview"),
            ("GET", "/tao/v1/backends"),
            ("POST", "/tao/v1/leases/l1/release"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/hooks/claude-code"),
            ("POST", "/v1/logs"),
            ("GET", "/metrics"),
        ):
            reply = service.call(method, path, b"{}" if method == "POST" else None)
            assert reply.status == 401, path
            assert b"s1" not in reply.body
        state = service.call("GET", "/tao/v1/state", headers=key).json()
        assert [one["session_id"] for one in state["sessions"]] == ["s1"]


@pytest.mark.parametrize("level", ["info", "warning"])
def test_coordinator_log_does_not_grow_with_its_calls(tmp_path: Path, level: str) -> None:
    with relay(tmp_path, "--log-level", level) as ((stub,), service):
        assert post(service).status == 200
        before = service.log()
        for number in range(100):
            assert post(service).status == 200
            lease = service.ask(f"r{number}", "s", tokens=10).json()["lease_id"]
            service.call("POST", f"/tao/v1/leases/{lease}/release", {"outcome": "completed"})
        polls = len(stub.seen("GET"))
        wait_until(lambda: len(stub.seen("GET")) > polls + 1)
        assert service.log() == before


def test_sdk_adds_no_line_to_the_agents_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The lines of the agent's own client stay: one per model call."""
    with (
        relay(tmp_path) as ((stub,), service),
        caplog.at_level(logging.INFO),
        caplog.at_level(logging.INFO, "httpx2"),
    ):
        with wrapped_client(service, stub.url) as client, tao.session("s"):
            caplog.clear()
            for _ in range(10):
                client.chat.completions.create(model=MODEL, messages=[])
        assert len(stub.calls) == 10
        requests = [one for one in caplog.messages if one.startswith("HTTP Request: ")]
        assert len(requests) == 10
        assert not [one for one in caplog.messages if service.url in one]
