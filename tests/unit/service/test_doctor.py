"""Examinations of engines that cache and tell, that do not, and that fail."""

import asyncio
import json
from collections.abc import Callable

import httpx2
import pytest
from sim_backend_server import running_sim_backend, sim_settings

from tao_coordinator.config import BackendConfig
from tao_coordinator.service.doctor import Examination, examine

PAGE = 'vllm:cache_config_info{kv_cache_size_tokens="4096",enable_prefix_caching="True"} 1\n'
Handler = Callable[[httpx2.Request], httpx2.Response]


def examination(
    usage: object, *, status: int = 200, calls_model: bool = True, **settings: object
) -> tuple[Examination, list[httpx2.Request]]:
    """Of an engine whose second call is answered with `usage`."""
    calls: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/metrics":
            return httpx2.Response(200, text=PAGE)
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json={"data": [{"id": "m"}]})
        calls.append(request)
        return httpx2.Response(status, json={"usage": usage})

    return asyncio.run(_examine(handler, calls_model, settings)), calls


async def _examine(handler: Handler, calls_model: bool, settings: dict[str, object]) -> Examination:
    backend = BackendConfig(backend_id="b", base_url="http://b:1", **settings)  # pyright: ignore
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
        return await examine(backend, client, calls_model=calls_model)


def codes(one: Examination) -> list[str]:
    return [finding.code for finding in one.findings]


def test_good_engine_has_no_finding() -> None:
    one, calls = examination({"prompt_tokens_details": {"cached_tokens": 64}})
    assert one.findings == ()
    assert (one.engine_kind, one.capacity_tokens, one.cached_tokens_told) == ("vllm", 4096, True)
    first, second = (json.loads(call.content) for call in calls)
    assert first == second
    assert first["max_tokens"] == 1


@pytest.mark.parametrize(
    ("usage", "status", "code", "word"),
    [
        ({"prompt_tokens": 9}, 200, "cached_tokens_untold", "--enable-prompt-tokens-details"),
        ({"prompt_tokens_details": None}, 200, "cached_tokens_untold", "vLLM"),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 200, "no_cache_hit", "share this URL"),
        (None, 200, "call_failed", "log"),
        ({}, 500, "call_failed", "log"),
    ],
)
def test_each_defect_has_its_fix(usage: object, status: int, code: str, word: str) -> None:
    one, _ = examination(usage, status=status)
    assert codes(one) == [code]
    assert word in one.findings[0].fix


def test_gateway_and_credential_are_used_as_by_the_coordinator() -> None:
    _, calls = examination(
        {"prompt_tokens_details": {"cached_tokens": 64}},
        api_key="secret",
        gateway="smg",
        gateway_target="2",
        capacity_tokens=10,
    )
    assert calls[0].headers["authorization"] == "Bearer secret"
    assert calls[0].headers["x-smg-target-worker"] == "2"
    assert calls[0].headers["x-smg-routing-key"] == "tao-doctor"


def test_look_alone_calls_no_model() -> None:
    one, calls = examination({}, calls_model=False)
    assert calls == []
    assert (one.cached_tokens_told, one.findings) == (None, ())


def test_silent_backend_is_one_finding() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    one = asyncio.run(_examine(refuse, True, {}))
    assert codes(one) == ["unreachable"]
    assert one.engine_kind is None


def test_simulated_engine_is_healthy() -> None:
    async def body(url: str) -> Examination:
        async with httpx2.AsyncClient() as client:
            backend = BackendConfig(backend_id="sim", base_url=url)
            return await examine(backend, client, calls_model=True)

    with running_sim_backend(sim_settings()) as server:
        one = asyncio.run(body(server.url))
    assert one.findings == ()
    assert one.capacity_tokens == 306_992
