"""The relay when backends fail, clients leave, turns are held, and the process is told to stop."""

import contextlib
import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from coordinator_process import CoordinatorProcess, read_reply, wait_until
from relay_service import (
    CHAT,
    LONG_CHAT,
    MESSAGES,
    assert_nothing_is_left,
    open_call,
    post,
    relay,
)
from relay_stubs import MODEL, RelayBackendStub

# --- backends ---------------------------------------------------------------------------------


def test_error_of_a_backend_passes_and_frees_the_lease(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.statuses = [400, 404, 422, 429, 500, 503] * 2
        for number, status in enumerate(list(stub.statuses), start=1):
            stream = number > 6
            reply = post(service, CHAT | {"stream": stream}, headers={"x-session-id": "s1"})
            assert reply.status == status
            assert reply.json() == {"error": {"message": "as planned", "type": "x"}}
            assert "x-tao-receipt" in reply.headers
            assert service.state()["counters"]["released"] == {"error": number}
        assert_nothing_is_left(service)
        assert post(service, headers={"x-session-id": "s1"}).status == 200


def test_session_of_a_dead_backend_goes_elsewhere_within_one_call(tmp_path: Path) -> None:
    with relay(tmp_path, num_backends=2) as (stubs, service):
        first = post(service, headers={"x-session-id": "s1"})
        home = json.loads(first.headers["x-tao-receipt"])["backend_id"]
        dead, other = stubs if home == "b0" else reversed(stubs)
        dead.die()
        for stream in (False, True):
            reply = post(service, CHAT | {"stream": stream}, headers={"x-session-id": "s1"})
            assert reply.status == 200
            assert json.loads(reply.headers["x-tao-receipt"])["backend_id"] != home
        assert len(other.calls) == 2
        backends = {one["backend_id"]: one["healthy"] for one in service.state()["backends"]}
        assert backends[home] is False
        assert_nothing_is_left(service)


@pytest.mark.parametrize("fault", ["reset", "garbage"])
def test_backend_that_breaks_every_call_is_told_in_the_apis_own_form(
    tmp_path: Path, fault: str
) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.fault = fault
        with (
            openai.OpenAI(base_url=f"{service.url}/v1", api_key="k", max_retries=0) as one,
            anthropic.Anthropic(base_url=service.url, api_key="k", max_retries=0) as two,
        ):
            with pytest.raises(openai.InternalServerError) as caught:
                one.chat.completions.create(model=MODEL, messages=MESSAGES)
            assert caught.value.status_code in (502, 503)
            assert caught.value.response.headers["retry-after"] == "1"
            with pytest.raises(anthropic.InternalServerError) as other:
                two.messages.create(model=MODEL, max_tokens=9, messages=MESSAGES)
            body: Any = other.value.body
            assert body["type"] == "error"
        # A call that kills engines is not shown to them for ever.
        assert len(stub.calls) <= 4
        assert_nothing_is_left(service)


def test_stream_that_a_backend_cuts_ends_with_an_error_event(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.breaks_off = True
        with openai.OpenAI(base_url=f"{service.url}/v1", api_key="k", max_retries=0) as client:
            stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            texts: list[str] = []
            with pytest.raises(openai.APIError, match="broke off its reply"):
                texts += [chunk.choices[0].delta.content or "" for chunk in stream]
        assert len(stub.calls) == 1, "what the client has begun to read is not asked for twice"
        assert service.state()["counters"]["released"] == {"error": 1}
        assert_nothing_is_left(service)


def test_body_that_a_backend_cuts_is_a_broken_connection(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.fault = "cut-body"
        with pytest.raises(http.client.IncompleteRead):
            post(service)
        assert service.state()["counters"]["released"] == {"error": 1}
        assert_nothing_is_left(service)


def test_backend_that_never_answers_is_bounded(tmp_path: Path) -> None:
    with relay(tmp_path, "--relay-idle", "0.5") as ((stub,), service):
        stub.fault = "hang"
        reply = post(service)
        assert (reply.status, reply.json()["error"]["type"]) == (504, "backend_stalled")
        assert_nothing_is_left(service)
        stub.fault = "endless"
        started_s = time.monotonic()
        with open_call(service, CHAT | {"stream": True}, "s1") as connection:
            # It sends all the time: no idle limit ends it while the client reads.
            while time.monotonic() - started_s < 1.5:
                assert connection.recv(65536)


def test_no_backend_is_a_clear_error_at_once(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.metrics_status = 500
        wait_until(lambda: not service.state()["backends"][0]["healthy"])
        for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
            reply = post(service, CHAT | {"stream": True}, path)
            assert reply.status == 503
            assert reply.headers["retry-after"] == "1"
            assert json.loads(reply.headers["x-tao-receipt"])["reason"] == "no_healthy_backend"
        assert reply.json()["error"]["type"] == "overloaded_error"
        assert stub.calls == []


# --- clients ----------------------------------------------------------------------------------


def test_client_that_leaves_a_stream_ends_it_at_the_backend(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.fault = "endless"
        with open_call(service, CHAT | {"stream": True}, "s1") as connection:
            assert connection.recv(65536)
            assert service.state()["backends"][0]["num_in_flight"] == 1
        wait_until(lambda: stub.num_hung_up == 1)
        wait_until(lambda: service.state()["counters"]["released"] == {"cancelled": 1})
        assert_nothing_is_left(service)


def test_client_that_does_not_read_slows_its_backend_down(tmp_path: Path) -> None:
    """Nothing piles up in between, and the idle limit ends it."""
    with relay(tmp_path, "--relay-idle", "1") as ((stub,), service):
        stub.fault = "endless"
        stub.endless_pause_s = 0.0
        with open_call(service, CHAT | {"stream": True}, "s1") as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wait_until(lambda: stub.num_hung_up == 1, 40.0)
        assert_nothing_is_left(service)


def test_client_that_leaves_while_held_is_never_sent(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        lease = held(service)
        for stream in (False, True):
            with open_call(service, LONG_CHAT | {"stream": stream}, "s2"):
                wait_until(lambda: service.num_held() == 1)
            wait_until(lambda: service.num_held() == 0)
        assert service.state()["counters"]["abandoned"] == 2
        give_back(service, lease)
        assert post(service, LONG_CHAT, headers={"x-session-id": "s3"}).status == 200
        assert [call.headers["x-session-id"] for call in stub.calls] == ["s3"]


def held(service: CoordinatorProcess) -> str:
    """Fill the pool; returns the lease to give back."""
    lease = service.ask("r1", "s1").json()["lease_id"]
    assert service.call("POST", f"/tao/v1/leases/{lease}/renew").status == 204
    return lease


def give_back(service: CoordinatorProcess, lease: str) -> None:
    body = {"outcome": "completed", "input_tokens": 10_000, "output_tokens": 1}
    service.call("POST", f"/tao/v1/leases/{lease}/release", body)
    service.call("POST", "/tao/v1/sessions/s1/end")


def test_held_stream_shows_that_it_lives_and_then_answers(tmp_path: Path) -> None:
    with relay(tmp_path, "--relay-keep-alive", "0.2") as (_, service):
        lease = held(service)
        with open_call(service, LONG_CHAT | {"stream": True}, "s2") as connection:
            wait_until(lambda: service.num_held() == 1)
            time.sleep(0.7)
            give_back(service, lease)
            reply = read_reply(connection)
        assert reply.status == 200
        assert json.loads(reply.headers["x-tao-receipt"]) == {"path": "held"}
        events = reply.body.split(b"\n\n")
        assert events.count(b": held, position 1") >= 2
        receipt = next(event for event in events if event.startswith(b": x-tao-receipt "))
        assert json.loads(receipt.partition(b"receipt ")[2])["hold_s"] > 0.5
        assert events[-2] == b"data: [DONE]"
        assert b'"usage":{' not in reply.body.replace(b" ", b"")


def test_held_stream_reaches_a_real_client(tmp_path: Path) -> None:
    with (
        relay(tmp_path, "--relay-keep-alive", "0.1") as (_, service),
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="k", max_retries=0) as one,
        anthropic.Anthropic(base_url=service.url, api_key="k", max_retries=0) as two,
    ):
        lease = held(service)
        timer = threading.Timer(0.6, give_back, (service, lease))
        timer.start()
        long: Any = LONG_CHAT["messages"]
        chunks = one.chat.completions.create(model=MODEL, messages=long, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"
        timer.join()
        lease = service.ask("r2", "s1", tokens=30_000).json()["lease_id"]
        timer = threading.Timer(0.6, give_back, (service, lease))
        timer.start()
        with two.messages.stream(model=MODEL, max_tokens=9, messages=long) as stream:
            assert "".join(stream.text_stream) == "Hello world"
        timer.join()


def test_error_that_comes_after_a_hold_is_an_event(tmp_path: Path) -> None:
    with (
        relay(tmp_path, "--relay-keep-alive", "0.1") as ((stub,), service),
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="k", max_retries=0) as one,
        anthropic.Anthropic(base_url=service.url, api_key="k", max_retries=0) as two,
    ):
        long: Any = LONG_CHAT["messages"]
        for number, ask in enumerate(
            (
                lambda: list(one.chat.completions.create(model=MODEL, messages=long, stream=True)),
                lambda: list(one.responses.create(model=MODEL, input="x" * 40_000, stream=True)),
                lambda: list(
                    two.messages.create(model=MODEL, max_tokens=9, messages=long, stream=True)
                ),
            )
        ):
            stub.statuses = [400]
            asked = service.ask(f"r{number}", "s1", wait_s=5).json()
            timer = threading.Timer(0.5, give_back, (service, asked["lease_id"]))
            timer.start()
            with pytest.raises((openai.APIError, anthropic.APIError), match="as planned"):
                ask()
            timer.join()
        assert_nothing_is_left(service)


# --- the end of the process -------------------------------------------------------------------


def test_sigterm_refuses_held_calls_and_lets_streams_finish(tmp_path: Path) -> None:
    with relay(tmp_path, "--relay-keep-alive", "0.2") as ((stub,), service):
        stub.pause_s = 0.5
        with open_call(service, LONG_CHAT | {"stream": True}, "s1") as running:
            wait_until(lambda: len(stub.calls) == 1)
            with (
                open_call(service, LONG_CHAT, "s2") as waiting,
                open_call(service, LONG_CHAT | {"stream": True}, "s3") as streaming,
            ):
                wait_until(lambda: service.num_held() == 2)
                assert streaming.recv(10_000)
                started_s = time.monotonic()
                service.process.send_signal(signal.SIGTERM)
                reply = read_reply(waiting)
                assert (reply.status, reply.json()["error"]["type"]) == (503, "shutting_down")
                assert b"shutting_down" in read_to_end(streaming)
                assert b"[DONE]" in read_to_end(running)
                assert service.process.wait(10.0) == 0
                # The contract's bound, not a measurement.
                assert time.monotonic() - started_s < 10.0
        assert "Traceback" not in service.log()


def test_sigterm_does_not_wait_for_an_endless_stream(tmp_path: Path) -> None:
    with relay(tmp_path) as ((stub,), service):
        stub.fault = "endless"
        with open_call(service, CHAT | {"stream": True}, "s1") as connection:
            assert connection.recv(65536)
            started_s = time.monotonic()
            service.process.send_signal(signal.SIGTERM)
            read_to_end(connection)
            service.process.wait(10.0)
            assert time.monotonic() - started_s < 10.0
        wait_until(lambda: stub.num_hung_up == 1)


def read_to_end(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            received = (received + chunk)[-100_000:]
    return received


# --- hostile input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "status", "culprit"),
    [
        (b"", {}, 400, "JSON"),
        (b"not json", {}, 400, "JSON"),
        (b"[1]", {}, 400, "object"),
        (b"\xff\xfe{}", {}, 400, "JSON"),
        (b"[" * 200_000, {}, 400, "JSON"),
        (b'{"model":["x"]}', {}, 400, "model"),
        (b'{"model":"' + b"x" * 300 + b'"}', {}, 400, "model"),
        (b'{"model":"other"}', {}, 404, "other"),
        (b"{}", {"content-type": "text/plain"}, 415, "application/json"),
        (b"{}", {"content-encoding": "gzip"}, 415, "gzip"),
        (b"{}", {"x-tao-priority": "high"}, 400, "x-tao-priority"),
        (b"{}", {"x-tao-priority": "9999999"}, 400, "x-tao-priority"),
        (b"x" * (33 * 1024 * 1024), {}, 413, "33554432"),
    ],
)
def test_hostile_call_is_one_clear_error(
    hostile: tuple[RelayBackendStub, CoordinatorProcess],
    body: bytes,
    headers: dict[str, str],
    status: int,
    culprit: str,
) -> None:
    stub, service = hostile
    all_headers = {"content-type": "application/json", **headers}
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        reply = post(service, body, path, all_headers)
        assert reply.status == status
        assert culprit in reply.json()["error"]["message"]
        assert json.loads(reply.headers["x-tao-receipt"])["path"] == "rejected"
    assert stub.calls == []
    assert_nothing_is_left(service)


@pytest.fixture(scope="module")
def hostile(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[tuple[RelayBackendStub, CoordinatorProcess]]:
    with relay(tmp_path_factory.mktemp("hostile")) as ((stub,), service):
        yield stub, service


def test_body_larger_than_any_backend_is_refused(
    hostile: tuple[RelayBackendStub, CoordinatorProcess],
) -> None:
    _, service = hostile
    messages = [{"role": "user", "content": "x" * 400_000}]
    reply = post(service, CHAT | {"messages": messages})
    assert (reply.status, reply.json()["error"]["code"]) == (413, "larger_than_any_backend")


def test_paths_beside_the_relays_are_not_relayed(
    hostile: tuple[RelayBackendStub, CoordinatorProcess],
) -> None:
    stub, service = hostile
    for method, path, status in (
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/messages", 405),
        ("POST", "/v1/analytics/codex/turn-costs", 404),
        ("POST", "/v1/chat/completions/../../admin", 404),
        ("POST", "/v1/models", 405),
    ):
        assert service.call(method, path, b"{}").status == status
    assert stub.calls == []
