import httpx2
import pytest

import tao_client as tao
from tao_client import testing
from tao_client._transport import AsyncRouting, SyncRouting


def test_what_holds_no_client_is_refused_with_the_fix() -> None:
    with pytest.raises(tao.UnsupportedClientError, match=r"Session\.turn") as caught:
        tao.wrap("openai")
    assert isinstance(caught.value, TypeError)


def test_disabled_wrap_touches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_DISABLED", "1")
    assert tao.wrap("openai") == "openai"


def test_plain_http_clients_and_their_mounts_are_wrapped() -> None:
    mounted = httpx2.HTTPTransport()
    with httpx2.Client(mounts={"https://": mounted, "all://direct": None}) as client:
        assert tao.wrap(client) is client
        transport = client._transport
        assert isinstance(transport, SyncRouting)
        mounts = list(client._mounts.values())
        assert {type(one) for one in mounts} == {SyncRouting, type(None)}
        tao.wrap(client)
        assert client._transport is transport
        assert list(client._mounts.values()) == mounts


def test_rewritten_call_takes_the_transport_that_its_new_address_asks_for() -> None:
    """A proxy for the client's own address is no way to a backend."""
    proxied, direct = httpx2.HTTPTransport(), httpx2.HTTPTransport()
    with httpx2.Client(mounts={"all://own": proxied}, transport=direct) as client:
        tao.wrap(client)
        routing = client._mounts[next(iter(client._mounts))]
        assert isinstance(routing, SyncRouting)
        assert routing.transport_for(httpx2.URL("http://own/v1"), routing.inner) is proxied
        assert routing.transport_for(httpx2.URL("http://gpu/v1"), routing.inner) is direct
    del client
    assert routing.transport_for(httpx2.URL("http://gpu/v1"), routing.inner) is proxied


@pytest.mark.parametrize("enters", [False, True])
def test_wrapped_client_without_a_coordinator_works_as_before(
    monkeypatch: pytest.MonkeyPatch, enters: bool
) -> None:
    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    testing.reset()
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, json={})

    client = tao.wrap(httpx2.Client(transport=httpx2.MockTransport(answer)))
    if enters:
        with client:
            client.post("http://own/v1/chat/completions", json={"model": "m"})
    else:
        client.post("http://own/v1/chat/completions", json={"model": "m"})
        client.close()
    assert seen == ["http://own/v1/chat/completions"]


async def _use(client: httpx2.AsyncClient) -> None:
    async with client:
        await client.post("http://own/v1/chat/completions", json={"model": "m"})


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_wrapped_async_client_without_a_coordinator_works_as_before(
    monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    import anyio

    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    testing.reset()
    seen: list[str] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, json={})

    client = tao.wrap(httpx2.AsyncClient(transport=httpx2.MockTransport(answer)))
    assert isinstance(client._transport, AsyncRouting)
    anyio.run(_use, client, backend=loop)
    assert seen == ["http://own/v1/chat/completions"]
