"""Start, backends that fail, configuration, and the end of a real coordinator process."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from coordinator_process import (
    coordinator,
    page,
    read_reply,
    refused_url,
    stub_backends,
    wait_until,
)

TAO = [sys.executable, "-m", "tao_coordinator"]


def run_tao(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*TAO, *arguments], capture_output=True, text=True, timeout=30)


def test_coordinator_answers_a_held_poll_and_exits_on_sigterm(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", stub.url) as service,
    ):
        assert service.ask("r1", "s1").status == 200
        with service.open_poll("r2", "s2") as poll:
            wait_until(lambda: service.num_held() == 1)
            elapsed_s = service.terminate()
            reply = read_reply(poll)
        assert (reply.status, reply.json()["error"]["type"]) == (503, "shutting_down")
        assert service.process.returncode == 0
        # The bound of the contract, not a measurement: the poll alone would have lasted ten.
        assert elapsed_s < 2.0
        assert "Traceback" not in service.log()


def test_lease_of_a_coordinator_before_is_nobodys_after_a_restart(tmp_path: Path) -> None:
    """Callers that outlive a coordinator give their leases back to the next one."""
    lease_ids: list[str] = []
    with stub_backends(1) as (stub,):
        for life in range(2):
            with coordinator(tmp_path / f"log{life}", "--backend", stub.url) as service:
                lease_ids.append(service.ask("r", f"s{life}").json()["lease_id"])
                body = {"outcome": "completed", "input_tokens": 9_000}
                service.call("POST", f"/tao/v1/leases/{lease_ids[0]}/release", body)
                running = service.call("GET", "/tao/v1/state").json()["backends"][0]
                assert running["num_in_flight"] == life
    assert len(set(lease_ids)) == 2


def test_coordinator_second_signal_ends_at_once(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", stub.url) as service,
    ):
        # A request whose body never comes keeps the first shutdown waiting.
        head = (
            b"POST /tao/v1/leases HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 9\r\n\r\n"
        )
        with service.open_poll("r1", "s1") as connection:
            read_reply(connection)
            connection.sendall(head)
            wait_until(lambda: service.call("GET", "/healthz").status == 200)
            service.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                service.process.wait(1.0)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(2.0) == 128 + signal.SIGTERM


def test_coordinator_interrupt_is_130_without_traceback(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", stub.url) as service,
    ):
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(5.0) == 130
        assert "Traceback" not in service.log()


def test_coordinator_uses_the_backend_that_answers(tmp_path: Path) -> None:
    dead_url = refused_url()
    flags = ["--backend", f"dead={dead_url}"]
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", *flags, "--backend", f"alive={stub.url}") as service,
    ):
        lease = service.ask("r1", "s1").json()
        assert lease["affinity"]["backend_id"] == "alive"
        assert service.call("GET", "/readyz").status == 200
        lines = [line for line in service.log().splitlines() if "WARNING" in line]
        assert len(lines) == 1
        for word in ("dead", dead_url, "is its URL right?"):
            assert word in lines[0]


def test_coordinator_without_healthy_backend_says_so_at_once(tmp_path: Path) -> None:
    with coordinator(tmp_path / "log", "--backend", refused_url()) as service:
        reply = service.ask("r1", "s1", wait_s=10)
        assert (reply.status, reply.json()["error"]["type"]) == (503, "no_healthy_backend")
        assert service.call("GET", "/healthz").status == 200
        assert service.call("GET", "/readyz").status == 503


def test_coordinator_notices_a_backend_that_dies_and_comes_back(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", f"a={stub.url}") as service,
    ):
        stub.status = 500
        wait_until(lambda: not service.state()["backends"][0]["healthy"])
        assert service.ask("r1", "s1").status == 503
        stub.status = 200
        wait_until(lambda: service.ask("r2", "s1").status == 200)
        assert "HTTP 500 on /metrics" in service.log()


@pytest.mark.parametrize("capacity", ["None", "0"])
def test_coordinator_without_capacity_warns_and_works(capacity: str, tmp_path: Path) -> None:
    with (
        stub_backends(1, page(capacity)) as (stub,),
        coordinator(tmp_path / "log", "--backend", f"a={stub.url}") as service,
    ):
        statuses = {service.ask(f"r{n}", f"s{n}").status for n in range(5)}
        assert statuses == {200}
        assert service.state()["backends"][0]["capacity_tokens"] is None
        wait_until(lambda: service.state()["uptime_s"] > 1.5)
        warnings = [line for line in service.log().splitlines() if "WARNING" in line]
        assert len(warnings) == 1
        assert "--capacity a=" in warnings[0]


def test_coordinator_takes_the_operator_s_word_for_the_capacity(tmp_path: Path) -> None:
    with (
        stub_backends(2, "") as stubs,
        coordinator(
            tmp_path / "log",
            *(f"--backend={name}={stub.url}" for name, stub in zip("ab", stubs, strict=True)),
            "--capacity=100000",
            "--capacity=b=50000",
            "--capacity-scale=b=0.5",
        ) as service,
    ):
        capacities = [backend["capacity_tokens"] for backend in service.state()["backends"]]
        assert capacities == [100_000, 25_000]
        assert "WARNING" not in service.log()


def test_coordinator_with_a_stalling_backend_starts_and_serves(tmp_path: Path) -> None:
    with stub_backends(2) as stubs:
        stubs[0].delay_s = 4.0
        flags = [f"--backend={name}={stub.url}" for name, stub in zip("ab", stubs, strict=True)]
        with coordinator(tmp_path / "log", *flags) as service:
            assert service.ask("r1", "s1").json()["affinity"]["backend_id"] == "b"
            wait_until(lambda: "no answer within 2 s" in service.log())
            service.terminate()
            assert service.process.returncode == 0


def test_coordinator_keeps_its_key(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(
            tmp_path / "log", "--backend", stub.url, "--api-key", "s3cret", "--log-level", "debug"
        ) as service,
    ):
        assert service.ask("r1", "s1").status == 401
        key = {"authorization": "Bearer s3cret"}
        ask = {"request_id": "r1", "session_id": "s1"}
        assert service.call("POST", "/tao/v1/leases", ask, key).status == 200
        assert service.call("GET", "/readyz").status == 200
        assert "s3cret" not in service.log()


def test_coordinator_port_in_use_is_one_line() -> None:
    with stub_backends(1) as (stub,):
        port = stub.url.rpartition(":")[2]
        result = run_tao("coordinator", "--backend", stub.url, "--port", port)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == f"tao: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ([], "--backend"),
        (["--backend", "http://127.0.0.1:1", "--policy", "no-such"], "no-such"),
        (["--backend", "http://127.0.0.1:1", "--host", "256.256.256.256"], "256.256.256.256"),
    ],
)
def test_coordinator_misuse_is_one_line(arguments: list[str], culprit: str) -> None:
    result = run_tao("coordinator", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("tao: ")
    assert result.stderr.count("\n") == 1
    assert culprit in result.stderr
