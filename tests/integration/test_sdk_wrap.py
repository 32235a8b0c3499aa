"""`wrap` with real openai clients, against a scripted coordinator and a model backend.

Runs with openai 3.x (httpx2) and 2.x (httpx) alike.
"""

import gc
import sys
from collections.abc import Callable, Coroutine, Iterator

import anyio
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageParam,
    ChatCompletionStreamOptionsParam,
)
from opentelemetry import baggage, context
from sdk_stubs import USAGE, BackendStub, CoordinatorStub, eventually

import tao_client as tao
from tao_client import testing

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "say hello"}]


class Fleet:
    """A coordinator, the backend it sends calls to, and the place that the client was set to."""

    def __init__(self) -> None:
        self.backend = BackendStub()
        self.own = BackendStub()
        self.coordinator = CoordinatorStub(self.backend.url)
        self.opened: list[OpenAI] = []

    def client(self, **options: object) -> OpenAI:
        settings = {"base_url": f"{self.own.url}/v1", "api_key": "own-key", "max_retries": 0}
        client = OpenAI(**(settings | options))  # pyright: ignore[reportArgumentType]
        self.opened.append(client)
        return tao.wrap(client)

    def async_client(self, **options: object) -> AsyncOpenAI:
        settings = {"base_url": f"{self.own.url}/v1", "api_key": "own-key", "max_retries": 0}
        return tao.wrap(AsyncOpenAI(**(settings | options)))  # pyright: ignore[reportArgumentType]

    def close(self) -> None:
        for client in self.opened:
            client.close()
        tao.disconnect()
        for stub in (self.coordinator, self.own, self.backend):
            stub.close()


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    fleet = Fleet()
    tao.connect(fleet.coordinator.url)
    yield fleet
    fleet.close()
    testing.reset()


def ask(client: OpenAI, max_tokens: int | None = None) -> ChatCompletion:
    return client.chat.completions.create(
        model="stub-model", messages=MESSAGES, max_tokens=max_tokens
    )


def ask_stream(
    client: OpenAI, stream_options: ChatCompletionStreamOptionsParam | None = None
) -> "openai.Stream[ChatCompletionChunk]":
    return client.chat.completions.create(
        model="stub-model",
        messages=MESSAGES,
        stream=True,
        stream_options=stream_options if stream_options is not None else openai.omit,
    )


def run(backend: str, function: Callable[[], Coroutine[object, object, None]]) -> None:
    anyio.run(function, backend=backend)


def transport_error() -> type[Exception]:
    """What the HTTP library beneath this openai raises when a connection breaks."""
    library = sys.modules["httpx2" if openai.__version__ >= "3" else "httpx"]
    return library.RemoteProtocolError


# openai leaves its own generators unfinished at `[DONE]`; trio warns of them with or without us.
OPENAI_LEAVES_GENERATORS = pytest.mark.filterwarnings("ignore:Async generator 'openai")
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


def test_call_goes_to_the_leased_backend_and_gives_the_lease_back(fleet: Fleet) -> None:
    client = fleet.client()
    fleet.coordinator.affinity_headers = {"x-gateway-pod": "pod-7"}
    with tao.session("swe-1"):
        reply = ask(client, max_tokens=64)
    assert reply.choices[0].message.content == "Hello world"
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == USAGE["prompt_tokens"]
    (call,) = fleet.backend.calls
    assert not fleet.own.calls
    assert call.path == "/v1/chat/completions"
    assert call.headers["host"] == fleet.backend.url.removeprefix("http://")
    assert call.headers["x-session-id"] == "swe-1"
    assert call.headers["x-gateway-pod"] == "pod-7"
    assert call.headers["authorization"] == "Bearer own-key"
    (asked,) = fleet.coordinator.leases
    assert asked.json["session_id"] == "swe-1"
    assert asked.json["model"] == "stub-model"
    assert asked.json["max_output_tokens"] == 64
    assert call.headers["x-request-id"] == asked.json["request_id"]
    assert eventually(lambda: fleet.coordinator.releases)
    (release,) = fleet.coordinator.releases
    assert release.pop("duration_s")
    assert release == {
        "outcome": "completed",
        "input_tokens": 1200,
        "cached_tokens": 1024,
        "output_tokens": 34,
    }


def test_wrap_returns_the_same_client_and_a_second_time_changes_nothing(fleet: Fleet) -> None:
    plain = OpenAI(base_url=f"{fleet.own.url}/v1", api_key="k")
    fleet.opened.append(plain)
    assert tao.wrap(plain) is plain
    transport = plain._client._transport
    assert tao.wrap(plain) is plain
    assert plain._client._transport is transport
    ask(plain)
    assert len(fleet.coordinator.leases) == 1


def test_copies_of_a_wrapped_client_are_scheduled(fleet: Fleet) -> None:
    copy = fleet.client().with_options(timeout=30, default_headers={"x-own": "1"})
    ask(copy)
    (call,) = fleet.backend.calls
    assert call.headers["x-own"] == "1"
    assert fleet.coordinator.leases[0].json["timeout_s"] == 30


def test_base_url_with_a_path_is_replaced_as_a_whole(fleet: Fleet) -> None:
    client = fleet.client(base_url=f"{fleet.own.url}/gateway/openai/v1")
    fleet.coordinator.backend_url = f"{fleet.backend.url}/pool-a"
    client.chat.completions.create(
        model="stub-model", messages=MESSAGES, extra_query={"api-version": "7"}
    )
    assert fleet.backend.calls[0].path == "/pool-a/v1/chat/completions?api-version=7"


def test_raw_response_shows_the_callers_own_request(fleet: Fleet) -> None:
    client = fleet.client()
    raw = client.chat.completions.with_raw_response.create(
        model="stub-model",
        messages=MESSAGES,
    )
    assert raw.parse().choices[0].message.content == "Hello world"
    assert str(raw.http_request.url) == f"{fleet.own.url}/v1/chat/completions"
    assert eventually(lambda: fleet.coordinator.releases)


def test_other_requests_pass_untouched(fleet: Fleet) -> None:
    client = fleet.client()
    with pytest.raises(openai.APIError):
        client.models.list()
    client.post("/embeddings", body={"model": "e", "input": "x"}, cast_to=object)
    client.post("/threads/7/messages", body={"role": "user"}, cast_to=object)
    assert [one.path for one in fleet.own.requests] == [
        "/v1/models",
        "/v1/embeddings",
        "/v1/threads/7/messages",
    ]
    assert not fleet.coordinator.leases


def test_stream_hides_the_usage_chunk_that_the_caller_did_not_ask_for(fleet: Fleet) -> None:
    client = fleet.client()
    chunks = list(ask_stream(client))
    assert [chunk.choices[0].delta.content for chunk in chunks] == fleet.backend.words
    sent = fleet.backend.calls[0].json
    assert sent.pop("stream_options") == {"include_usage": True}
    assert sent == {"messages": MESSAGES, "model": "stub-model", "stream": True}
    assert eventually(lambda: fleet.coordinator.releases)
    (release,) = fleet.coordinator.releases
    assert release["outcome"] == "completed"
    assert (release["input_tokens"], release["output_tokens"]) == (1200, 34)
    ttft_s, duration_s = release["ttft_s"], release["duration_s"]
    assert isinstance(ttft_s, float)
    assert isinstance(duration_s, float)
    assert 0 < ttft_s <= duration_s


def test_stream_with_usage_asked_for_passes_unchanged(fleet: Fleet) -> None:
    client = fleet.client()
    chunks = list(ask_stream(client, stream_options={"include_usage": True}))
    assert len(chunks) == len(fleet.backend.words) + 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 1234
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["cached_tokens"] == 1024


def test_stream_options_without_usage_are_kept(fleet: Fleet) -> None:
    client = fleet.client()
    given: ChatCompletionStreamOptionsParam = {"include_usage": False, "include_obfuscation": False}
    chunks = list(ask_stream(client, stream_options=given))
    assert len(chunks) == len(fleet.backend.words)
    sent = fleet.backend.calls[0].json["stream_options"]
    assert sent == {"include_usage": True, "include_obfuscation": False}


def test_stream_of_an_encoded_reply_passes_unread(fleet: Fleet) -> None:
    """Readable bytes are asked for; a backend that encodes all the same is not interfered with."""
    client = fleet.client()
    fleet.backend.content_encoding = "identity, identity"
    chunks = list(ask_stream(client))
    assert len(chunks) == len(fleet.backend.words) + 1
    assert fleet.backend.calls[0].headers["accept-encoding"] == "identity"
    assert eventually(lambda: fleet.coordinator.releases)
    assert "input_tokens" not in fleet.coordinator.releases[0]


def test_stream_that_ends_without_a_blank_line_is_passed_whole(fleet: Fleet) -> None:
    """What is held back until an event is whole must come out at the end."""
    fleet.backend.ends_in_a_blank_line = False
    with fleet.client().chat.completions.with_streaming_response.create(
        model="stub-model", messages=MESSAGES, stream=True
    ) as raw:
        body = b"".join(raw.iter_bytes())
    assert body.endswith(b"\n\ndata: [DONE]")
    assert b'"usage": {' not in body

    async def main() -> None:
        async with (
            fleet.async_client() as client,
            client.chat.completions.with_streaming_response.create(
                model="stub-model", messages=MESSAGES, stream=True
            ) as response,
        ):
            assert b"".join([part async for part in response.iter_bytes()]) == body

    run("asyncio", main)


def test_stream_closed_early_is_cancelled(fleet: Fleet) -> None:
    client = fleet.client()
    stream = ask_stream(client)
    next(stream)
    stream.close()
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["outcome"] == "cancelled"


def test_stream_dropped_unread_is_given_back_by_garbage_collection(fleet: Fleet) -> None:
    client = fleet.client()
    stream = ask_stream(client)
    assert not fleet.coordinator.releases
    del stream
    gc.collect()
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["outcome"] == "cancelled"


def test_stream_that_breaks_off_is_an_error_of_the_callers_own_kind(fleet: Fleet) -> None:
    fleet.backend.breaks_off = True
    plain = OpenAI(base_url=f"{fleet.backend.url}/v1", api_key="k", max_retries=0)
    fleet.opened.append(plain)
    with pytest.raises(Exception, match=r".") as expected:
        list(ask_stream(plain))
    with pytest.raises(type(expected.value)) as caught:
        list(ask_stream(fleet.client()))
    assert str(caught.value) == str(expected.value)
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["outcome"] == "error"


def test_each_retry_asks_for_a_lease_of_its_own(fleet: Fleet) -> None:
    client = fleet.client(max_retries=2)
    fleet.backend.statuses = [503, 429, 200]
    reply = ask(client)
    assert reply.choices[0].message.content == "Hello world"
    asked = [one.json["request_id"] for one in fleet.coordinator.leases]
    assert len(set(asked)) == 3
    assert eventually(lambda: len(fleet.coordinator.releases) == 3)
    outcomes = [one["outcome"] for one in fleet.coordinator.releases]
    assert outcomes == ["error", "error", "completed"]


def test_error_status_raises_what_it_always_raised(fleet: Fleet) -> None:
    client = fleet.client()
    fleet.backend.statuses = [400]
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client)
    assert str(caught.value.request.url) == f"{fleet.own.url}/v1/chat/completions"


def test_backends_that_are_all_dead_raise_what_they_always_raised(fleet: Fleet) -> None:
    client = fleet.client().with_options(base_url="http://127.0.0.1:2/v1")
    fleet.coordinator.backend_url = "http://127.0.0.1:1"
    with pytest.raises(openai.APIConnectionError):
        ask(client)
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["outcome"] == "error"


def test_call_outside_any_session_is_a_session_of_its_own(fleet: Fleet) -> None:
    client = fleet.client()
    ask(client)
    ask(client)
    first, second = (one.json["session_id"] for one in fleet.coordinator.leases)
    assert first != second
    assert eventually(lambda: len(fleet.coordinator.events_named("tao.session.end")) == 2)
    ended = fleet.coordinator.events_named("tao.session.end")
    assert {one.attributes["gen_ai.conversation.id"] for one in ended} == {first, second}


def test_call_outside_any_session_belongs_to_the_conversation_of_the_baggage(fleet: Fleet) -> None:
    """As Pydantic AI sets it; it has one name for all its turns, and no end that we know."""
    client = fleet.client()
    token = context.attach(baggage.set_baggage("gen_ai.conversation.id", "swe-7"))
    try:
        ask(client)
        ask(client)
        with tao.session("of-the-sdk"):
            ask(client)
    finally:
        context.detach(token)
    ids = [one.json["session_id"] for one in fleet.coordinator.leases]
    assert ids == ["swe-7", "swe-7", "of-the-sdk"]
    assert fleet.coordinator.leases[1].json["input_tokens"] == USAGE["prompt_tokens"]
    assert eventually(lambda: fleet.coordinator.events_named("tao.session.end"))
    (end,) = fleet.coordinator.events_named("tao.session.end")
    assert end.attributes["gen_ai.conversation.id"] == "of-the-sdk"


def test_prompt_size_is_learned_from_turn_to_turn(fleet: Fleet) -> None:
    client = fleet.client()
    with tao.session():
        ask(client)
        ask(client)
    first, second = (one.json["input_tokens"] for one in fleet.coordinator.leases)
    sent_chars = len(fleet.backend.calls[0].body)
    assert first == round(sent_chars / 4)
    assert second == USAGE["prompt_tokens"], "the same prompt again, as the engine counted it"


def test_client_closes_as_before(fleet: Fleet) -> None:
    with fleet.client() as client:
        ask(client)
    assert client.is_closed()


@LOOPS
def test_async_call_goes_to_the_leased_backend(fleet: Fleet, loop: str) -> None:
    async def main() -> None:
        async with fleet.async_client() as client, tao.session("swe-2"):
            for _ in range(2):
                reply = await client.chat.completions.create(
                    model="stub-model",
                    messages=MESSAGES,
                )
                assert reply.choices[0].message.content == "Hello world"

    run(loop, main)
    assert len(fleet.backend.calls) == 2
    assert not fleet.own.calls
    assert {one.json["session_id"] for one in fleet.coordinator.leases} == {"swe-2"}
    assert eventually(lambda: len(fleet.coordinator.releases) == 2)
    assert fleet.coordinator.releases[0]["input_tokens"] == 1200


@OPENAI_LEAVES_GENERATORS
@LOOPS
def test_async_stream_hides_the_usage_chunk(fleet: Fleet, loop: str) -> None:
    seen: list[str | None] = []

    async def main() -> None:
        async with fleet.async_client() as client:
            stream = await client.chat.completions.create(
                model="stub-model",
                messages=MESSAGES,
                stream=True,
            )
            seen.extend([chunk.choices[0].delta.content async for chunk in stream])

    run(loop, main)
    assert seen == fleet.backend.words
    assert eventually(lambda: fleet.coordinator.releases)
    release = fleet.coordinator.releases[0]
    assert (release["outcome"], release["output_tokens"]) == ("completed", 34)


@OPENAI_LEAVES_GENERATORS
@LOOPS
def test_async_stream_closed_early_is_cancelled(fleet: Fleet, loop: str) -> None:
    async def main() -> None:
        async with fleet.async_client() as client:
            stream = await client.chat.completions.create(
                model="stub-model",
                messages=MESSAGES,
                stream=True,
            )
            await anext(aiter(stream))
            await stream.close()

    run(loop, main)
    assert eventually(lambda: fleet.coordinator.releases)
    assert fleet.coordinator.releases[0]["outcome"] == "cancelled"


@OPENAI_LEAVES_GENERATORS
@LOOPS
def test_async_errors_keep_their_type(fleet: Fleet, loop: str) -> None:
    async def main() -> None:
        async with fleet.async_client() as client:
            fleet.backend.statuses = [400]
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="m", messages=[])
            fleet.backend.breaks_off = True
            stream = await client.chat.completions.create(model="m", messages=[], stream=True)
            with pytest.raises((openai.APIConnectionError, transport_error())):
                _ = [chunk async for chunk in stream]
            fleet.coordinator.backend_url = "http://127.0.0.1:1"
            alone = client.with_options(base_url="http://127.0.0.1:2/v1")
            with pytest.raises(openai.APIConnectionError):
                await alone.chat.completions.create(model="m", messages=[])

    run(loop, main)
    assert eventually(lambda: len(fleet.coordinator.releases) == 3)
    assert {one["outcome"] for one in fleet.coordinator.releases} == {"error"}


@LOOPS
def test_parallel_calls_of_several_sessions_keep_apart(fleet: Fleet, loop: str) -> None:
    async def main() -> None:
        client = fleet.async_client()

        async def agent(name: str) -> None:
            async with tao.session(name):
                for _ in range(2):
                    await client.chat.completions.create(model="m", messages=[])

        async with client, anyio.create_task_group() as group:
            for name in ("a", "b", "c", "d"):
                group.start_soon(agent, name)

    run(loop, main)
    asked = sorted(str(one.json["session_id"]) for one in fleet.coordinator.leases)
    assert asked == ["a", "a", "b", "b", "c", "c", "d", "d"]
    sent = sorted(one.headers["x-session-id"] for one in fleet.backend.calls)
    assert sent == asked


def test_each_event_loop_gets_its_own_connections(fleet: Fleet) -> None:
    async def main() -> None:
        async with fleet.async_client() as client:
            await client.chat.completions.create(model="m", messages=[])

    for _ in range(3):
        run("asyncio", main)
    gc.collect()  # an unclosed connection would warn here, and warnings are errors
    assert len(fleet.backend.calls) == 3
