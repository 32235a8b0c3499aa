"""HTTP clients that other libraries are given: their model calls are scheduled all the same."""

import os
import subprocess
import sys
from collections.abc import Iterator

import anyio
import httpx2
import openai
import pytest
from sdk_stubs import BackendStub, CoordinatorStub, eventually

import tao_client as tao
from tao_client import testing

BODY = {"model": "stub-model", "messages": [{"role": "user", "content": "say hello"}]}


@pytest.fixture
def own() -> Iterator[BackendStub]:
    with BackendStub() as stub:
        yield stub


@pytest.fixture
def backend() -> Iterator[BackendStub]:
    with BackendStub() as stub:
        yield stub


@pytest.fixture
def coordinator(backend: BackendStub, monkeypatch: pytest.MonkeyPatch) -> Iterator[CoordinatorStub]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    with CoordinatorStub(backend.url) as stub:
        tao.connect(stub.url)
        yield stub
        tao.disconnect()
    testing.reset()


def test_model_calls_of_an_http_client_go_to_the_leased_backend(
    coordinator: CoordinatorStub, backend: BackendStub, own: BackendStub
) -> None:
    with tao.session("swe-1"), tao.http_client() as client:
        reply = client.post(f"{own.url}/v1/chat/completions", json=BODY)
        client.post(f"{own.url}/v1/embeddings", json={"model": "e", "input": "x"})
    assert reply.json()["usage"]["prompt_tokens"] == 1200
    assert [one.path for one in backend.calls] == ["/v1/chat/completions"]
    assert [one.path for one in own.calls] == ["/v1/embeddings"]
    (asked,) = coordinator.leases
    assert (asked.json["session_id"], asked.json["timeout_s"]) == ("swe-1", 600)
    assert eventually(lambda: coordinator.releases)
    assert coordinator.releases[0]["cached_tokens"] == 1024


def test_model_calls_of_an_async_http_client_go_to_the_leased_backend(
    coordinator: CoordinatorStub, backend: BackendStub, own: BackendStub
) -> None:
    async def main() -> None:
        async with tao.session("swe-2"), tao.async_http_client(timeout_s=30) as client:
            await client.post(f"{own.url}/v1/chat/completions", json=BODY)

    anyio.run(main)
    assert (len(backend.calls), len(own.calls)) == (1, 0)
    (asked,) = coordinator.leases
    assert (asked.json["session_id"], asked.json["timeout_s"]) == ("swe-2", 30)


def test_client_of_the_openai_package_takes_it(
    coordinator: CoordinatorStub, backend: BackendStub, own: BackendStub
) -> None:
    with (
        tao.http_client() as http_client,
        openai.OpenAI(base_url=f"{own.url}/v1", api_key="k", http_client=http_client) as client,
    ):
        reply = client.chat.completions.create(model="stub-model", messages=[])
    assert reply.choices[0].message.content == "Hello world"
    assert (len(backend.calls), len(own.calls)) == (1, 0)
    assert len(coordinator.leases) == 1


def test_litellm_takes_a_wrapped_client(
    coordinator: CoordinatorStub, backend: BackendStub, own: BackendStub
) -> None:
    """In a process of its own: its import takes seconds and warns of its own models."""
    script = f"""
import httpx, litellm
import tao_client as tao
litellm.client_session = tao.wrap(httpx.Client(timeout=60))
with tao.session("swe-3"):
    reply = litellm.completion(
        "openai/stub-model",
        [{{"role": "user", "content": "say hello"}}],
        api_base="{own.url}/v1",
        api_key="k",
    )
assert reply.choices[0].message.content == "Hello world"
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TAO_ENDPOINT": coordinator.url, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (len(backend.calls), len(own.calls)) == (1, 0)
    assert coordinator.leases[0].json["session_id"] == "swe-3"


def test_disabled_http_client_is_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_DISABLED", "1")
    with tao.http_client(timeout_s=None) as client:
        assert type(client._transport) is httpx2.HTTPTransport
        assert client.timeout == httpx2.Timeout(None, connect=5)
