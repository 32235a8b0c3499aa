"""A name as a source of backends: addresses that come, go, flicker and fail."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from tao_coordinator.config import BackendConfig, DnsConfig
from tao_coordinator.service import dns_backends
from tao_coordinator.service.backend_settings import with_ranks
from tao_coordinator.service.dns_backends import MISSING_MAX, DnsBackends

TEMPLATE = BackendConfig(
    backend_id="t", base_url="http://engines.local:8000/api", capacity_tokens=7
)
Answer = Sequence[str] | Exception


def resolve(
    monkeypatch: pytest.MonkeyPatch, *answers: Answer, config: DnsConfig | None = None
) -> list[list[BackendConfig] | None]:
    """What each of these answers of the name server leads to."""
    dns = DnsBackends(config or DnsConfig(name="", templates=(TEMPLATE,)))

    async def body() -> list[list[BackendConfig] | None]:
        found: list[list[BackendConfig] | None] = []
        for answer in answers:

            async def getaddrinfo(host: str, port: int, answer: Answer = answer, **_: object):
                assert (host, port) == ("engines.local", 8000)
                if isinstance(answer, Exception):
                    raise answer
                return [(0, 0, 0, "", (address, port)) for address in answer]

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
            backends = await dns.resolve()
            found.append(None if backends is None else list(backends))
        return found

    return asyncio.run(body())


def ids(backends: list[BackendConfig] | None) -> list[str] | None:
    return None if backends is None else [backend.backend_id for backend in backends]


def test_each_address_is_a_backend_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = resolve(monkeypatch, ["10.0.0.2", "10.0.0.1", "10.0.0.1", "fd00::1"])
    assert found is not None
    assert [(b.backend_id, b.base_url) for b in found] == [
        ("10.0.0.1:8000", "http://10.0.0.1:8000/api"),
        ("10.0.0.2:8000", "http://10.0.0.2:8000/api"),
        ("fd00::1:8000", "http://[fd00::1]:8000/api"),
    ]
    assert {backend.capacity_tokens for backend in found} == {7}


def test_name_and_ranks_are_part_of_the_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    config = DnsConfig(name="pool", templates=with_ranks(TEMPLATE, 2))
    (found,) = resolve(monkeypatch, ["10.0.0.1"], config=config)
    assert ids(found) == ["pool-10.0.0.1:8000-dp0", "pool-10.0.0.1:8000-dp1"]


@pytest.mark.parametrize(
    "bad", [[], socket.gaierror(-2, "Name or service not known"), ["fe80::1%e"]]
)
def test_no_usable_answer_keeps_the_old_set_and_is_told_once(
    bad: Answer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = resolve(monkeypatch, ["10.0.0.1"], bad, bad, ["10.0.0.1"])
    assert [ids(one) for one in found] == [["10.0.0.1:8000"], None, None, ["10.0.0.1:8000"]]
    assert len(caplog.messages) == 1


def test_address_leaves_only_after_it_was_missing_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both, one = ["10.0.0.1", "10.0.0.2"], ["10.0.0.1"]
    found = resolve(monkeypatch, both, *[one] * (MISSING_MAX - 1), both, *[one] * MISSING_MAX)
    numbers = [len(answer or []) for answer in found]
    assert numbers == [2] * (1 + MISSING_MAX - 1 + 1 + MISSING_MAX - 1) + [1]


def test_failed_answers_do_not_count_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    both, one = ["10.0.0.1", "10.0.0.2"], ["10.0.0.1"]
    found = resolve(monkeypatch, both, *[OSError("down")] * 9, one)
    assert len(found[-1] or []) == 2


def test_endless_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [f"10.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(3_000)]
    (found,) = resolve(monkeypatch, many)
    assert len(found or []) == dns_backends.ADDRESSES_MAX


def test_name_server_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_backends, "RESOLVE_TIMEOUT_S", 0.02)

    async def body() -> None:
        async def getaddrinfo(*_: object, **__: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        assert await DnsBackends(DnsConfig(name="", templates=(TEMPLATE,))).resolve() is None

    asyncio.run(body())


def test_localhost_resolves_for_real() -> None:
    config = DnsConfig(
        name="", templates=(BackendConfig(backend_id="x", base_url="http://localhost:1234"),)
    )
    found = asyncio.run(DnsBackends(config).resolve())
    assert "http://127.0.0.1:1234" in {backend.base_url for backend in found or []}
