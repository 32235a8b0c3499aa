"""Real openai and anthropic clients whose base URL is a real coordinator process."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import sdk_api_stubs as api
from coordinator_process import CoordinatorProcess, coordinator
from relay_stubs import MODEL, RelayBackendStub
from sim_backend_server import running_sim_backend, sim_settings

from tao_coordinator.service.sim_backend.server import SimBackendServer

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
SESSION = {"x-session-id": "s1"}


@contextmanager
def relay(log_path: Path, *flags: str) -> Generator[tuple[RelayBackendStub, CoordinatorProcess]]:
    with (
        RelayBackendStub() as stub,
        coordinator(log_path, "--backend", f"a={stub.url}", *flags) as service,
    ):
        yield stub, service


@pytest.fixture(scope="module")
def sim() -> Iterator[SimBackendServer]:
    with running_sim_backend(sim_settings()) as server:
        yield server


def released(service: CoordinatorProcess) -> dict[str, int]:
    return service.state()["counters"]["released"]


def openai_client(service: CoordinatorProcess) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="own", max_retries=0)


def anthropic_client(service: CoordinatorProcess) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=service.url, api_key="own", max_retries=0)


Call = Callable[[openai.OpenAI, anthropic.Anthropic], str]


def chat(client: openai.OpenAI, _: anthropic.Anthropic) -> str:
    reply = client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_headers=SESSION)
    return reply.choices[0].message.content or ""


def chat_stream(client: openai.OpenAI, _: anthropic.Anthropic) -> str:
    text = ""
    for chunk in client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, extra_headers=SESSION
    ):
        # The usage chunk that the relay asked for has no choices: it must not be seen.
        assert chunk.usage is None
        text += chunk.choices[0].delta.content or ""
    return text


def completion_stream(client: openai.OpenAI, _: anthropic.Anthropic) -> str:
    chunks = client.completions.create(model=MODEL, prompt="Hi", stream=True, extra_headers=SESSION)
    return "".join(chunk.choices[0].text for chunk in chunks)


def response(client: openai.OpenAI, _: anthropic.Anthropic) -> str:
    return client.responses.create(model=MODEL, input="Hi", extra_headers=SESSION).output_text


def response_stream(client: openai.OpenAI, _: anthropic.Anthropic) -> str:
    events = client.responses.create(model=MODEL, input="Hi", stream=True, extra_headers=SESSION)
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def message(_: openai.OpenAI, client: anthropic.Anthropic) -> str:
    reply = client.messages.create(
        model=MODEL, max_tokens=50, messages=MESSAGES, extra_headers=SESSION
    )
    block = reply.content[0]
    assert block.type == "text"
    return block.text


def message_stream(_: openai.OpenAI, client: anthropic.Anthropic) -> str:
    with client.messages.stream(
        model=MODEL, max_tokens=50, messages=MESSAGES, extra_headers=SESSION
    ) as stream:
        return "".join(stream.text_stream)


CALLS: list[Call] = [
    chat,
    chat_stream,
    completion_stream,
    response,
    response_stream,
    message,
    message_stream,
]


def test_every_api_passes_and_tells_its_usage(tmp_path: Path) -> None:
    with relay(tmp_path / "log") as (stub, service):
        for number, call in enumerate(CALLS, start=1):
            with openai_client(service) as one, anthropic_client(service) as two:
                assert call(one, two) == api.TEXT, call.__name__
            assert released(service) == {"completed": number}
            backend = service.state()["backends"][0]
            assert (backend["num_in_flight"], backend["in_flight_tokens"]) == (0, 0)
            assert stub.calls[-1].headers["x-session-id"] == "s1"
        state = service.state()
        session = next(one for one in state["sessions"] if one["session_id"] == "s1")
        assert session["turns"] == len(CALLS)
        # The last reply's prompt and output, as the engine counted them.
        assert session["context_tokens"] == api.PROMPT_TOKENS + api.OUTPUT_TOKENS
        # Two replies are the stub's own chat replies, with other counts.
        prompts = 2 * 1200 + (len(CALLS) - 2) * api.PROMPT_TOKENS
        assert state["counters"]["prompt_tokens"] == prompts
        assert state["counters"]["cached_tokens"] == 2 * 1024 + (len(CALLS) - 2) * 1664
        assert service.log().count("WARNING") == 0


def test_usage_that_the_client_asks_for_it_gets(tmp_path: Path) -> None:
    with relay(tmp_path / "log") as (stub, service), openai_client(service) as client:
        chunks = list(
            client.chat.completions.create(
                model=MODEL,
                messages=MESSAGES,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.prompt_tokens == 1200
        assert json.loads(stub.calls[-1].body)["stream_options"] == {"include_usage": True}


def test_bytes_are_the_backends_own(tmp_path: Path) -> None:
    """Compared with a client that talks to the backend itself."""
    body = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}}
    with relay(tmp_path / "log") as (stub, service), openai_client(service) as client:
        direct = openai.OpenAI(base_url=f"{stub.url}/v1", api_key="own")
        for path in ("/chat/completions", "/responses", "/messages", "/completions"):
            replies = [
                one.post(path, body=body, cast_to=str).encode()  # type: ignore[call-overload]
                for one in (client, direct)
            ]
            assert replies[0] == replies[1]
            assert len(replies[0]) > 200
        assert stub.calls[0].body == stub.calls[1].body
        direct.close()


async def ask_async(service: CoordinatorProcess) -> list[str]:
    async with (
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="own", max_retries=0) as one,
        anthropic.AsyncAnthropic(base_url=service.url, api_key="own", max_retries=0) as two,
    ):

        async def chat_text() -> str:
            chunks = await one.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        async def message_text() -> str:
            async with two.messages.stream(model=MODEL, max_tokens=50, messages=MESSAGES) as stream:
                texts: AsyncIterator[str] = stream.text_stream
                return "".join([text async for text in texts])

        return await asyncio.gather(*(ask() for ask in [chat_text, message_text] * 8))


def test_async_clients_in_parallel(tmp_path: Path) -> None:
    with relay(tmp_path / "log") as (_, service):
        assert set(asyncio.run(ask_async(service))) == {api.TEXT}
        assert released(service) == {"completed": 16}
        # Calls without a session leave none behind.
        assert service.state()["sessions"] == []
        assert service.state()["backends"][0]["committed_tokens"] == 0


def test_embeddings_and_models(tmp_path: Path) -> None:
    flags = ("--model-alias", f"gpt-oss={MODEL}", "--model-alias", f"claude-*={MODEL}")
    with relay(tmp_path / "log", *flags) as (_, service):
        with openai_client(service) as client:
            vector = client.embeddings.create(
                model=MODEL, input="x", encoding_format="float", extra_headers=SESSION
            )
            assert vector.data[0].embedding == [0.5, 0.25]
            assert service.state()["sessions"] == []
            assert [model.id for model in client.models.list()] == [MODEL, "gpt-oss"]
            assert client.models.retrieve(MODEL).id == MODEL
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("nothing")
        with anthropic_client(service) as other:
            assert [model.id for model in other.models.list()] == [MODEL, "gpt-oss"]


def test_alias_is_the_served_model_and_nothing_else_changes(tmp_path: Path) -> None:
    with relay(tmp_path / "log", "--model-alias", f"claude-*={MODEL}") as (stub, service):
        with anthropic_client(service) as client:
            client.messages.create(model="claude-opus-5", max_tokens=9, messages=MESSAGES)
        sent = json.loads(stub.calls[-1].body)
        assert sent == {"model": MODEL, "max_tokens": 9, "messages": MESSAGES}


def test_headers_that_pass_and_headers_that_do_not(tmp_path: Path) -> None:
    given = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=1",
        "x-request-id": "mine-1",
        "x-custom": "kept",
        "connection": "keep-alive, x-hop",
        "x-hop": "dropped",
        "x-tao-session": "s9",
        "te": "trailers",
    }
    body = {"model": MODEL, "messages": MESSAGES}
    with relay(tmp_path / "log") as (stub, service):
        headers = {**given, "content-type": "application/json", "authorization": "Bearer own"}
        reply = service.call("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        assert reply.status == 200
        sent = stub.calls[-1].headers
        for name in ("traceparent", "tracestate", "x-request-id", "x-custom"):
            assert sent[name] == given[name]
        assert sent["authorization"] == "Bearer own"
        assert sent["x-session-id"] == "s9"
        assert sent["host"] == stub.url.removeprefix("http://")
        assert not {"x-hop", "te", "x-tao-session", "x-tao-protocol"} & set(sent)
        receipt = json.loads(reply.headers["x-tao-receipt"])
        assert receipt["backend_id"] == "a"
        assert (receipt["path"], receipt["policy"]) == ("planned", "tao")


def test_key_of_the_coordinator_goes_no_further(tmp_path: Path) -> None:
    keys = ("--api-key", "front", "--backend-api-key", "a=behind")
    with relay(tmp_path / "log", *keys) as (stub, service):
        for key in ("wrong", "front"):
            with (
                openai.OpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0) as one,
                anthropic.Anthropic(base_url=service.url, api_key=key, max_retries=0) as two,
            ):
                if key == "wrong":
                    with pytest.raises(openai.AuthenticationError):
                        chat(one, two)
                    with pytest.raises(anthropic.AuthenticationError):
                        message(one, two)
                    assert stub.calls == []
                else:
                    assert chat(one, two) == message(one, two) == api.TEXT
        assert {call.headers.get("authorization") for call in stub.calls} == {"Bearer behind"}
        assert all("x-api-key" not in call.headers for call in stub.calls)
        polls = [request for request in stub.seen("GET") if request.path == "/v1/models"]
        assert {poll.headers.get("authorization") for poll in polls} == {"Bearer behind"}


def test_without_a_key_of_its_own_a_backend_gets_none_of_the_coordinators(tmp_path: Path) -> None:
    with (
        relay(tmp_path / "log", "--api-key", "front") as (stub, service),
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="front", max_retries=0) as client,
        anthropic_client(service) as unused,
    ):
        assert chat(client, unused) == api.TEXT
        assert "authorization" not in stub.calls[-1].headers


def test_conversation_on_the_modelled_engine_goes_home(
    tmp_path: Path, sim: SimBackendServer
) -> None:
    with (
        running_sim_backend(sim_settings()) as other,
        coordinator(
            tmp_path / "log", f"--backend=a={sim.url}", f"--backend=b={other.url}"
        ) as service,
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="own", max_retries=0) as client,
    ):
        messages: Any = [{"role": "user", "content": "word " * 2000}]
        seen: list[tuple[str, str]] = []
        for _ in range(4):
            raw = client.chat.completions.with_raw_response.create(
                model="sim/test", messages=messages, max_tokens=20, extra_headers=SESSION
            )
            receipt = json.loads(raw.headers["x-tao-receipt"])
            seen.append((receipt["backend_id"], receipt["path"]))
            reply = raw.parse()
            messages += [
                reply.choices[0].message.model_dump(),
                {"role": "user", "content": "go on"},
            ]
        assert len({backend for backend, _ in seen}) == 1
        assert [path for _, path in seen] == ["planned", "bypass", "bypass", "bypass"]
        counters = service.state()["counters"]
        assert counters["cached_tokens"] > 0.7 * counters["prompt_tokens"]
