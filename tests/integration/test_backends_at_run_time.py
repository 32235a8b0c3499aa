"""A real coordinator whose fleet changes while it runs: admin API, file, drain, death, return."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from coordinator_process import (
    CoordinatorProcess,
    coordinator,
    refused_url,
    stub_backends,
    wait_until,
)

from tao_coordinator.cli import main

JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def ids(service: CoordinatorProcess) -> set[str]:
    return {
        shown["backend_id"] for shown in service.call("GET", "/tao/v1/backends").json()["backends"]
    }


def healthy(service: CoordinatorProcess) -> set[str]:
    return {b["backend_id"] for b in service.state()["backends"] if b["healthy"]}


def test_backend_is_added_shown_used_drained_and_forgotten(tmp_path: Path) -> None:
    with (
        stub_backends(2) as (first, second),
        coordinator(tmp_path / "log", "--backend", f"a={first.url}") as service,
    ):
        added = service.call(
            "POST",
            "/tao/v1/backends",
            {
                "backend_id": "b",
                "base_url": second.url,
                "api_key": "secret",
                "capacity_tokens": 9000,
            },
        )
        assert added.status == 201
        wait_until(lambda: healthy(service) == {"a", "b"})
        shown = service.call("GET", "/tao/v1/backends/b")
        assert b"secret" not in shown.body
        assert shown.json()["engine_kind"] == "vllm"
        assert shown.json()["source"] == "admin API"
        assert shown.json()["settings"]["has_api_key"] is True
        assert shown.json()["state"]["capacity_tokens"] == 9000
        assert service.call("DELETE", "/tao/v1/backends/a").status == 202
        wait_until(lambda: ids(service) == {"b"})
        lease = service.ask("r1", "s1", tokens=1000).json()
        assert lease["affinity"]["backend_id"] == "b"
        # The last one drains too, but a turn still runs there.
        assert service.call("DELETE", "/tao/v1/backends/b").json()["state"]["draining"] is True
        assert service.ask("r2", "s2", tokens=1000).json()["error"]["type"] == "no_healthy_backend"
        assert ids(service) == {"b"}
        service.call(
            "POST", f"/tao/v1/leases/{lease['lease_id']}/release", {"outcome": "completed"}
        )
        wait_until(lambda: not ids(service))
        assert "no backend is left" in service.log()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "", {"base_url": "gpu-1"}, 400, "no http"),
        ("POST", "", {"base_url": "http://x", "capacity": 1}, 400, "unknown key"),
        ("POST", "", {"backend_id": "a b", "base_url": "http://x"}, 400, "128 characters"),
        ("POST", "", b"[1]", 400, "JSON object"),
        ("POST", "", b"{", 400, "JSON"),
        ("GET", "/none", None, 404, "no backend is called 'none'"),
        ("DELETE", "/none", None, 404, "no backend is called 'none'"),
        ("DELETE", "/" + "x" * 200, None, 400, "128 characters"),
        ("PUT", "/none", None, 405, "Method"),
    ],
)
def test_nonsense_gets_one_clear_error(
    method: str, path: str, body: bytes | None, status: int, message: str, live: CoordinatorProcess
) -> None:
    reply = live.call(method, f"/tao/v1/backends{path}", body, JSON if body else None)
    assert reply.status == status
    assert message in reply.json()["error"]["message"]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorProcess]:
    log = tmp_path_factory.mktemp("live") / "log"
    with (
        stub_backends(1) as (stub,),
        coordinator(log, "--backend", f"a={stub.url}") as service,
    ):
        yield service


def test_same_engine_under_another_name_is_refused(live: CoordinatorProcess) -> None:
    url = live.state()["backends"][0]["base_url"]
    reply = live.call("POST", "/tao/v1/backends", {"backend_id": "twin", "base_url": url})
    assert reply.status == 400
    assert "is backend a already" in reply.json()["error"]["message"]


def test_key_guards_the_fleet(tmp_path: Path) -> None:
    with (
        stub_backends(1) as (stub,),
        coordinator(tmp_path / "log", "--backend", f"a={stub.url}", "--api-key", "k") as service,
    ):
        for method, path in (("GET", ""), ("POST", ""), ("DELETE", "/a")):
            assert service.call(method, f"/tao/v1/backends{path}").status == 401
        assert ids_with_key(service) == {"a"}


def ids_with_key(service: CoordinatorProcess) -> set[str]:
    reply = service.call("GET", "/tao/v1/backends", headers={"authorization": "Bearer k"})
    return {shown["backend_id"] for shown in reply.json()["backends"]}


def test_file_is_followed_and_a_broken_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "backends.jsonl"
    with stub_backends(2) as (first, second):
        line = json.dumps({"backend_id": "a", "base_url": first.url}) + "\n"
        file.write_text(line)
        with coordinator(tmp_path / "log", "--backends-file", str(file)) as service:
            wait_until(lambda: healthy(service) == {"a"})
            file.write_text(line + json.dumps({"backend_id": "b", "base_url": second.url}))
            wait_until(lambda: healthy(service) == {"a", "b"})
            file.write_text("not JSON")
            wait_until(lambda: "stay as they are" in service.log())
            assert ids(service) == {"a", "b"}
            file.write_text(line)
            wait_until(lambda: ids(service) == {"a"})


def test_killed_backend_is_noticed_and_its_return_too(tmp_path: Path) -> None:
    with (
        stub_backends(2) as (first, second),
        coordinator(
            tmp_path / "log", "--backend", f"a={first.url}", "--backend", f"b={second.url}"
        ) as service,
    ):
        wait_until(lambda: healthy(service) == {"a", "b"})
        first.status = 503
        wait_until(lambda: healthy(service) == {"b"})
        shown = service.call("GET", "/tao/v1/backends/a").json()
        assert shown["error"] == "HTTP 503 on /metrics"
        assert service.ask("r1", "s1").json()["affinity"]["backend_id"] == "b"
        first.status = 200
        wait_until(lambda: healthy(service) == {"a", "b"})


def test_drain_command_waits_until_the_backend_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        stub_backends(2) as (first, second),
        coordinator(
            tmp_path / "log", "--backend", f"a={first.url}", "--backend", f"b={second.url}"
        ) as service,
    ):
        wait_until(lambda: healthy(service) == {"a", "b"})
        lease = service.ask("r1", "s1").json()
        home = lease["affinity"]["backend_id"]
        at = ["--endpoint", service.url]
        assert main(["drain", home, "--wait", "1.5", "--json", *at]) == 1
        report = json.loads(capsys.readouterr().out)
        assert report == {"backend_id": home, "drained": False, "turns_left": 1}
        release = f"/tao/v1/leases/{lease['lease_id']}/release"
        end = threading.Timer(1.0, service.call, ("POST", release, {"outcome": "completed"}))
        end.start()
        assert main(["drain", home, *at]) == 0
        end.join()
        out = capsys.readouterr().out
        body = re.search(r"-d '(.*)'", out)
        assert body is not None
        again = service.call("POST", "/tao/v1/backends", json.loads(body[1]))
        assert again.status == 201
        assert ids(service) == {"a", "b"}


def test_commands_say_in_one_line_that_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    url = refused_url()
    assert main(["drain", "a", "--endpoint", url]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert url in error
    assert main(["doctor", "--endpoint", url]) == 1
    assert url in capsys.readouterr().out
