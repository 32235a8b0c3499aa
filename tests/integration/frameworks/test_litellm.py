"""litellm itself, by the placed `completion` and `acompletion`."""

# litellm is typed in parts only.
# pyright: reportUnknownMemberType=false

import asyncio
import gc
import inspect
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from framework_site import Site
from sdk_stubs import USAGE, BackendStub, eventually, free_url

pytest.importorskip("litellm", reason="litellm is not installed")

import litellm

import tao_client as tao
from tao_integrations.litellm import acompletion, completion

MESSAGES = [{"role": "user", "content": "say hello"}]
T = TypeVar("T")
WAYS = ["plain", "async", "stream", "async stream"]


class Pair:
    """Two backends that stream too: the leased one, and the one that calls name."""

    def __init__(self, site: Site) -> None:
        self.leased = BackendStub()
        self.own = BackendStub()
        self.coordinator = site.coordinator
        self.coordinator.backend_url = self.leased.url

    def call(self, way: str, model: str = "openai/sim", **more: Any) -> str:
        return run(self.acall(way, model, **more))

    async def acall(self, way: str, model: str = "openai/sim", **more: Any) -> str:
        settings: dict[str, Any] = {
            "api_base": f"{self.own.url}/v1",
            "api_key": "own-key",
            "max_retries": 0,
            "timeout": 20,
            **more,
        }
        if "stream" in way:
            settings |= {"stream": True, "stream_options": {"include_usage": True}}
        if "async" in way:
            reply = await acompletion(model, MESSAGES, **settings)
        else:
            reply = completion(model, MESSAGES, **settings)
        if "stream" not in way:
            return reply.choices[0].message.content
        chunks: list[Any] = [each async for each in reply] if "async" in way else list(reply)
        return "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)

    def assert_released(self, outcome: str, count: int = 1) -> None:
        assert eventually(lambda: len(self.coordinator.releases) == count)
        assert [one["outcome"] for one in self.coordinator.releases] == [outcome] * count


async def close_clients() -> None:
    """Those that litellm keeps for later: of this loop, and of no loop."""
    kept: Any = litellm.in_memory_llm_clients_cache
    for client in kept.cache_dict.values():
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing
    kept.flush_cache()


def run(main: Coroutine[object, object, T]) -> T:
    """Run it in a loop of its own, and let nothing be left of that."""

    async def whole() -> T:
        try:
            return await main
        finally:
            await close_clients()

    return asyncio.run(whole())


@pytest.fixture
def pair(site: Site) -> Iterator[Pair]:
    made = Pair(site)
    # litellm's plain calls ask for this thread's event loop, and would leave a new one unclosed.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield made
    loop.run_until_complete(close_clients())
    asyncio.set_event_loop(None)
    loop.close()
    for stub in (made.own, made.leased):
        stub.close()


@pytest.mark.parametrize("model", ["openai/sim", "hosted_vllm/sim"])
@pytest.mark.parametrize("way", WAYS)
def test_litellm_call_goes_to_the_leased_backend(pair: Pair, way: str, model: str) -> None:
    tao.connect(pair.coordinator.url)

    with tao.session("swe-17"):
        assert pair.call(way, model, extra_headers={"x-own": "kept"}) == "Hello world"

    assert [len(pair.leased.calls), len(pair.own.calls)] == [1, 0]
    headers = pair.leased.calls[0].headers
    assert (headers["x-session-id"], headers["x-own"]) == ("swe-17", "kept")
    assert pair.leased.calls[0].json["model"] == "sim"
    assert [lease.json["model"] for lease in pair.coordinator.leases] == ["sim"]
    pair.assert_released("completed")
    (release,) = pair.coordinator.releases
    assert release["input_tokens"] == USAGE["prompt_tokens"]
    assert release["output_tokens"] == USAGE["completion_tokens"]
    assert release["cached_tokens"] == 1024


def test_litellm_calls_at_once_keep_their_sessions_apart(pair: Pair) -> None:
    tao.connect(pair.coordinator.url)

    async def one(name: str) -> None:
        async with tao.session(name):
            assert await pair.acall("async") == "Hello world"

    async def both() -> None:
        await asyncio.gather(one("a"), one("b"))

    run(both())

    assert sorted(call.headers["x-session-id"] for call in pair.leased.calls) == ["a", "b"]
    pair.assert_released("completed", 2)


@pytest.mark.parametrize("way", WAYS)
def test_litellm_call_goes_its_own_way_where_its_backend_takes_no_connection(
    pair: Pair, way: str
) -> None:
    pair.coordinator.backend_url = free_url()
    tao.connect(pair.coordinator.url)

    with tao.session("swe-17"):
        assert pair.call(way) == "Hello world"

    assert len(pair.own.calls) == 1
    pair.assert_released("error")


@pytest.mark.parametrize("way", WAYS)
def test_litellm_error_gives_the_lease_back(pair: Pair, way: str) -> None:
    pair.leased.statuses = [500]
    tao.connect(pair.coordinator.url)

    with tao.session("swe-17"), pytest.raises(litellm.exceptions.InternalServerError):
        pair.call(way)

    pair.assert_released("error")


def test_litellm_stream_that_is_forgotten_gives_the_lease_back(pair: Pair) -> None:
    tao.connect(pair.coordinator.url)

    with tao.session("swe-17"):
        stream = completion(
            "openai/sim", MESSAGES, api_base=f"{pair.own.url}/v1", api_key="k", stream=True
        )
        assert next(stream).choices[0].delta.content == "Hello"
        assert not pair.coordinator.releases
        del stream
        gc.collect()

    pair.assert_released("cancelled")


@pytest.mark.parametrize("way", ["plain", "async"])
def test_litellm_call_held_too_long_times_out_as_litellm_does(pair: Pair, way: str) -> None:
    pair.coordinator.script("hold")
    tao.connect(pair.coordinator.url)

    with tao.session("swe-17"), pytest.raises(litellm.exceptions.Timeout):
        pair.call(way, timeout=0.3)

    assert not pair.leased.calls
    assert not pair.own.calls


def test_litellm_models_with_an_address_of_their_own_are_passed_through(pair: Pair) -> None:
    tao.connect(pair.coordinator.url)

    with tao.session("swe-17"):
        reply = completion("anthropic/some-model", MESSAGES, mock_response="mocked")

    assert reply.choices[0].message.content == "mocked"
    assert not pair.coordinator.leases


@pytest.mark.parametrize("how", ["no session", "disabled", "dead", "broken"])
@pytest.mark.parametrize("way", WAYS)
def test_litellm_call_is_unchanged_without_the_scheduler(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, how: str, way: str
) -> None:
    if how == "disabled":
        monkeypatch.setenv("TAO_DISABLED", "1")
    if how == "broken":
        monkeypatch.setattr(tao.Session, "turn", None)
    tao.connect(free_url() if how == "dead" else pair.coordinator.url)

    if how == "no session":
        assert pair.call(way) == "Hello world"
    else:
        with tao.session("swe-17"):
            assert pair.call(way) == "Hello world"

    assert [len(pair.leased.calls), len(pair.own.calls)] == [0, 1]
    assert not pair.coordinator.leases
