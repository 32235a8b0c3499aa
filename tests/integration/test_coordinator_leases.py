"""The lease protocol against a real coordinator process with the real engine."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinator_process import (
    POOL_TOKENS,
    CoordinatorProcess,
    StubBackend,
    coordinator,
    read_reply,
    stub_backends,
    wait_until,
)
from prometheus_client.parser import text_string_to_metric_families

RELEASE = {"outcome": "completed", "input_tokens": 10_000, "cached_tokens": 0, "output_tokens": 50}


@pytest.fixture
def backends() -> Iterator[list[StubBackend]]:
    with stub_backends(2) as stubs:
        yield stubs


@pytest.fixture
def service(backends: list[StubBackend], tmp_path: Path) -> Iterator[CoordinatorProcess]:
    flags = [f"--backend={name}={stub.url}" for name, stub in zip("ab", backends, strict=True)]
    with coordinator(tmp_path / "log", *flags) as process:
        yield process


def fill(service: CoordinatorProcess) -> list[str]:
    """One lease on each backend; a third session finds no room. Returns the leases."""
    replies = [service.ask(f"fill-{n}", f"filler-{n}") for n in range(2)]
    assert {reply.status for reply in replies} == {200}
    assert {reply.json()["affinity"]["backend_id"] for reply in replies} == {"a", "b"}
    return [reply.json()["lease_id"] for reply in replies]


def test_coordinator_lease_goes_round(
    service: CoordinatorProcess, backends: list[StubBackend]
) -> None:
    assert service.first_line.endswith("policy=tao backends=2\n")
    reply = service.ask("r1", "s1")
    lease = reply.json()
    assert reply.status == 200
    urls = {name: stub.url for name, stub in zip("ab", backends, strict=True)}
    assert lease["affinity"]["base_url"] == urls[lease["affinity"]["backend_id"]]
    assert service.ask("r1", "s1").json()["lease_id"] == lease["lease_id"]
    path = f"/tao/v1/leases/{lease['lease_id']}"
    assert service.call("POST", f"{path}/renew").status == 204
    for _ in range(2):
        assert service.call("POST", f"{path}/release", RELEASE).status == 204
    assert service.call("POST", f"{path}/renew").status == 404
    again = service.ask("r1", "s1")
    assert (again.status, again.json()["error"]["type"]) == (409, "lease_expired")
    next_turn = service.ask("r2", "s1").json()
    assert next_turn["affinity"]["backend_id"] == lease["affinity"]["backend_id"]
    assert next_turn["receipt"]["reason"] == "resident"
    assert service.state()["counters"]["released"] == {"completed": 1}


def test_ask_that_carries_the_release_before_it_is_no_parallel_call(
    service: CoordinatorProcess,
) -> None:
    first = service.ask("r1", "s1").json()
    ask = {"request_id": "r2", "session_id": "s1", "input_tokens": 1000}
    released = {"lease_id": first["lease_id"], "outcome": "completed", "input_tokens": 900}
    second = service.call("POST", "/tao/v1/leases", ask | {"released": released})
    assert second.json()["receipt"]["reason"] == "resident"
    assert service.state()["counters"]["released"] == {"completed": 1}


def test_coordinator_refuses_what_no_backend_can_take(service: CoordinatorProcess) -> None:
    large = service.ask("r1", "s1", tokens=10 * POOL_TOKENS)
    assert (large.status, large.json()["error"]["type"]) == (413, "larger_than_any_backend")
    ask = {"request_id": "r2", "session_id": "s2", "model": "llama"}
    unserved = service.call("POST", "/tao/v1/leases", ask)
    assert (unserved.status, unserved.json()["error"]["type"]) == (404, "model_not_served")


def test_coordinator_grants_a_held_turn_when_room_comes(service: CoordinatorProcess) -> None:
    leases = fill(service)
    held = service.ask("r", "s")
    assert held.status == 202
    assert held.json()["queue_position"] == 1
    assert held.json()["retry_after_s"] == 0
    with service.open_poll("r", "s") as poll:
        wait_until(lambda: service.num_held() == 1)
        service.call("POST", f"/tao/v1/leases/{leases[0]}/release", RELEASE)
        service.call("POST", "/tao/v1/sessions/filler-0/end")
        reply = read_reply(poll)
    assert reply.status == 200
    assert reply.json()["receipt"]["hold_s"] > 0
    assert service.num_held() == 0


def test_coordinator_forgets_a_deleted_turn(service: CoordinatorProcess) -> None:
    fill(service)
    with service.open_poll("r", "s") as poll:
        wait_until(lambda: service.num_held() == 1)
        for _ in range(2):
            assert service.call("DELETE", "/tao/v1/leases/r").status == 204
        assert service.num_held() == 0
        reply = read_reply(poll)
    assert (reply.status, reply.json()["error"]["type"]) == (409, "abandoned")


def test_coordinator_frees_the_place_of_a_killed_client(
    service: CoordinatorProcess, backends: list[StubBackend]
) -> None:
    leases = fill(service)
    code = (
        "import http.client, json\n"
        f"c = http.client.HTTPConnection('127.0.0.1', {service.port})\n"
        "c.request('POST', '/tao/v1/leases', json.dumps("
        "{'request_id': 'r', 'session_id': 's', 'input_tokens': 10000}),"
        " {'prefer': 'wait=10', 'content-type': 'application/json'})\n"
        "c.getresponse()\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: service.num_held() == 1)
        os.kill(client.pid, signal.SIGKILL)
        client.wait(10)
        wait_until(lambda: service.num_held() == 0, timeout_s=5.0)
    finally:
        client.kill()
        client.wait(10)
    for number, lease_id in enumerate(leases):
        service.call("POST", f"/tao/v1/leases/{lease_id}/release", RELEASE)
        service.call("POST", f"/tao/v1/sessions/filler-{number}/end")
    counters = service.state()["counters"]
    assert counters["abandoned"] == 1
    # The dead client's turn was never granted: only the two fillers were.
    assert sum(counters["granted"].values()) == 2
    assert not any(stub.other_paths for stub in backends)


def test_coordinator_keeps_the_turn_when_the_client_reconnects(service: CoordinatorProcess) -> None:
    leases = fill(service)
    with service.open_poll("r", "s") as old, service.open_poll("r", "s") as new:
        wait_until(lambda: service.num_held() == 1)
        old.close()
        wait_until(lambda: service.num_held() == 1)
        service.call("POST", f"/tao/v1/leases/{leases[0]}/release", RELEASE)
        service.call("POST", "/tao/v1/sessions/filler-0/end")
        assert read_reply(new).status == 200


def test_coordinator_survives_garbage(service: CoordinatorProcess) -> None:
    for garbage in (
        b"\x00\xff\xfe not http at all\r\n\r\n",
        b"GET /\xff\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /tao/v1/leases HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n{}",
        b"POST /tao/v1/leases HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /tao/v1/leases HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
        b"GET http://[bad HTTP/1.1\r\nhost: x\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", service.port), timeout=5) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            reply = connection.recv(4096)
        assert not reply or reply.startswith(b"HTTP/1.1 4"), garbage
    for body, status in ((b"{", 400), (b"\xff" * 100, 400), (b" " * (1 << 20) + b" ", 413)):
        reply = service.call("POST", "/tao/v1/leases", body)
        assert reply.status == status
        assert set(reply.json()) == {"error"}
    assert service.call("GET", "/healthz").status == 200
    assert "Traceback" not in service.log()


def test_coordinator_metrics_parse(service: CoordinatorProcess) -> None:
    fill(service)
    page = service.call("GET", "/metrics").body.decode()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["tao_backend_capacity_tokens", "a"] == POOL_TOKENS
    assert samples["tao_backend_healthy", "b"] == 1
    assert samples["tao_session_count", "inference"] == 2
    granted = [value for key, value in samples.items() if key[0] == "tao_lease_granted_total"]
    assert sum(granted) == 2
    assert "filler-0" not in page
    assert "_created" not in page
