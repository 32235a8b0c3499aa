"""The APIs beside chat, with the real openai and anthropic packages and a scripted backend.

For each of completions, responses and messages: whole and streamed, plain and async; what the
caller sees is what the backend sent, and what is told with the lease is what the backend counted.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import cast

import anthropic
import anyio
import openai
import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import MessageParam
from openai import AsyncOpenAI, OpenAI
from sdk_api_stubs import COUNTED, OUTPUT_TOKENS, PROMPT_TOKENS, TEXT, ApiBackendStub
from sdk_stubs import CoordinatorStub, eventually

import tao_client as tao
from tao_client import testing

MODEL = "stub-model"
MESSAGES: list[MessageParam] = [{"role": "user", "content": "say hello"}]


class Fleet:
    """A coordinator, the backend it sends calls to, and the place that the clients were set to."""

    def __init__(self) -> None:
        self.backend = ApiBackendStub()
        self.own = ApiBackendStub()
        self.coordinator = CoordinatorStub(self.backend.url)
        openai_url = f"{self.own.url}/v1"
        self.openai = tao.wrap(OpenAI(base_url=openai_url, api_key="k", max_retries=0))
        self.async_openai = tao.wrap(AsyncOpenAI(base_url=openai_url, api_key="k", max_retries=0))
        own_url = self.own.url
        self.anthropic = tao.wrap(Anthropic(base_url=own_url, api_key="own-key", max_retries=0))
        self.async_anthropic = tao.wrap(
            AsyncAnthropic(base_url=own_url, api_key="own-key", max_retries=0)
        )

    def run(self, function: Callable[[], Coroutine[object, object, None]]) -> None:
        async def main() -> None:
            async with self.async_openai, self.async_anthropic:
                await function()

        anyio.run(main)

    def close(self) -> None:
        self.openai.close()
        self.anthropic.close()
        tao.disconnect()
        for stub in (self.coordinator, self.own, self.backend):
            stub.close()

    def released(self) -> dict[str, object]:
        """The one release, when it has arrived, without its times."""
        assert eventually(lambda: self.coordinator.releases)
        (release,) = self.coordinator.releases
        return {name: value for name, value in release.items() if not name.endswith("_s")}


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


def completion(fleet: Fleet) -> str:
    return fleet.openai.completions.create(model=MODEL, prompt="hi").choices[0].text


def completion_stream(fleet: Fleet) -> str:
    chunks = fleet.openai.completions.create(model=MODEL, prompt="hi", stream=True)
    # The usage chunk that the caller did not ask for would have no choices.
    return "".join(chunk.choices[0].text for chunk in chunks)


def completion_async(fleet: Fleet) -> str:
    seen: list[str] = []

    async def main() -> None:
        reply = await fleet.async_openai.completions.create(model=MODEL, prompt="hi")
        seen.append(reply.choices[0].text)

    fleet.run(main)
    return "".join(seen)


def completion_async_stream(fleet: Fleet) -> str:
    seen: list[str] = []

    async def main() -> None:
        chunks = await fleet.async_openai.completions.create(model=MODEL, prompt="hi", stream=True)
        seen.extend([chunk.choices[0].text async for chunk in chunks])

    fleet.run(main)
    return "".join(seen)


def response(fleet: Fleet) -> str:
    return fleet.openai.responses.create(model=MODEL, input="hi").output_text


def response_stream(fleet: Fleet) -> str:
    events = fleet.openai.responses.create(model=MODEL, input="hi", stream=True)
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


def response_async(fleet: Fleet) -> str:
    seen: list[str] = []

    async def main() -> None:
        reply = await fleet.async_openai.responses.create(model=MODEL, input="hi")
        seen.append(reply.output_text)

    fleet.run(main)
    return "".join(seen)


def response_async_stream(fleet: Fleet) -> str:
    seen: list[str] = []

    async def main() -> None:
        events = await fleet.async_openai.responses.create(model=MODEL, input="hi", stream=True)
        seen.extend([e.delta async for e in events if e.type == "response.output_text.delta"])

    fleet.run(main)
    return "".join(seen)


def text_of(reply: anthropic.types.Message) -> str:
    return "".join(block.text for block in reply.content if block.type == "text")


def message(fleet: Fleet) -> str:
    return text_of(
        fleet.anthropic.messages.create(model=MODEL, max_tokens=64, messages=MESSAGES),
    )


def message_stream(fleet: Fleet) -> str:
    events = fleet.anthropic.messages.create(
        model=MODEL, max_tokens=64, messages=MESSAGES, stream=True
    )
    deltas = [e.delta for e in events if e.type == "content_block_delta"]
    return "".join(delta.text for delta in deltas if delta.type == "text_delta")


def message_helper(fleet: Fleet) -> str:
    """The package's own stream object, which adds the events up."""
    with fleet.anthropic.messages.stream(model=MODEL, max_tokens=64, messages=MESSAGES) as stream:
        return "".join(stream.text_stream)


def message_async(fleet: Fleet) -> str:
    seen: list[str] = []

    async def main() -> None:
        reply = await fleet.async_anthropic.messages.create(
            model=MODEL, max_tokens=64, messages=MESSAGES
        )
        seen.append(text_of(reply))

    fleet.run(main)
    return "".join(seen)


def message_async_stream(fleet: Fleet) -> str:
    seen: list[str] = []

    async def main() -> None:
        async with fleet.async_anthropic.messages.stream(
            model=MODEL, max_tokens=64, messages=MESSAGES
        ) as stream:
            seen.extend([text async for text in stream.text_stream])

    fleet.run(main)
    return "".join(seen)


CALLS = {
    "/v1/completions": (
        completion,
        completion_stream,
        completion_async,
        completion_async_stream,
    ),
    "/v1/responses": (response, response_stream, response_async, response_async_stream),
    "/v1/messages": (
        message,
        message_stream,
        message_helper,
        message_async,
        message_async_stream,
    ),
}
EACH_CALL = pytest.mark.parametrize(
    ("path", "call"), [(path, call) for path, calls in CALLS.items() for call in calls]
)


@EACH_CALL
def test_call_goes_to_the_leased_backend_and_its_usage_is_told(
    fleet: Fleet, path: str, call: Callable[[Fleet], str]
) -> None:
    with tao.session("swe-1"):
        assert call(fleet) == TEXT
    assert [one.path for one in fleet.backend.calls] == [path]
    assert not fleet.own.calls
    assert fleet.backend.calls[0].headers["x-session-id"] == "swe-1"
    (asked,) = fleet.coordinator.leases
    assert (asked.json["session_id"], asked.json["model"]) == ("swe-1", MODEL)
    assert fleet.released() == {"outcome": "completed", **COUNTED}


@EACH_CALL
def test_call_with_a_dead_coordinator_goes_where_it_went_before(
    fleet: Fleet, path: str, call: Callable[[Fleet], str]
) -> None:
    fleet.coordinator.script("reset")
    assert call(fleet) == TEXT
    assert [one.path for one in fleet.own.calls] == [path]
    assert not fleet.backend.calls


def test_time_to_first_token_is_not_the_time_to_the_opening_event(fleet: Fleet) -> None:
    """Responses are opened before the prompt is read; a token comes after."""
    fleet.backend.first_token_after_s = 0.3
    for stream in (response_stream, message_stream, completion_stream):
        assert stream(fleet) == TEXT
    assert eventually(lambda: len(fleet.coordinator.releases) == 3)
    by_response, by_message, by_completion = (
        cast("float", one["ttft_s"]) for one in fleet.coordinator.releases
    )
    assert min(by_response, by_message) >= 0.3
    assert by_completion < 0.3, "the first event of a completion is a token"


def test_message_passes_to_the_caller_unchanged(fleet: Fleet) -> None:
    plain = Anthropic(base_url=fleet.own.url, api_key="own-key")
    with (
        plain,
        fleet.anthropic.messages.with_streaming_response.create(
            model=MODEL, max_tokens=64, messages=MESSAGES, stream=True
        ) as routed,
        plain.messages.with_streaming_response.create(
            model=MODEL, max_tokens=64, messages=MESSAGES, stream=True
        ) as direct,
    ):
        assert b"".join(routed.iter_bytes()) == b"".join(direct.iter_bytes())
    (sent,), (unrouted,) = fleet.backend.calls, fleet.own.calls
    assert sent.body == unrouted.body
    for name in ("authorization", "anthropic-version"):
        assert sent.headers[name] == unrouted.headers[name]


def test_beta_message_keeps_its_query_and_headers(fleet: Fleet) -> None:
    reply = fleet.anthropic.beta.messages.create(
        model=MODEL,
        max_tokens=64,
        messages=[{"role": "user", "content": "hi"}],
        betas=["x-2026"],
        extra_query={"beta": "true"},
    )
    assert reply.usage.output_tokens == OUTPUT_TOKENS
    (call,) = fleet.backend.calls
    assert call.path == "/v1/messages?beta=true"
    assert call.headers["anthropic-beta"] == "x-2026"
    assert fleet.released() == {"outcome": "completed", **COUNTED}


def test_counted_prompt_of_messages_estimates_the_next_turn(fleet: Fleet) -> None:
    with tao.session():
        for _ in range(2):
            assert message_stream(fleet) == TEXT
            assert eventually(lambda: fleet.coordinator.releases)
    second = fleet.coordinator.leases[1].json
    assert second["input_tokens"] == PROMPT_TOKENS, "what the cache held is part of the prompt"
    assert second["max_output_tokens"] == 64


def test_message_stream_closed_early_is_cancelled(fleet: Fleet) -> None:
    stream = fleet.anthropic.messages.create(
        model=MODEL, max_tokens=64, messages=MESSAGES, stream=True
    )
    fleet.backend.first_token_after_s = 0.2
    next(iter(stream))
    stream.close()
    assert fleet.released()["outcome"] == "cancelled"


def test_message_that_is_held_too_long_raises_the_packages_own_time_out(fleet: Fleet) -> None:
    fleet.coordinator.script("hold")
    with pytest.raises(anthropic.APITimeoutError):
        fleet.anthropic.with_options(timeout=0.3).messages.create(
            model=MODEL, max_tokens=64, messages=MESSAGES
        )
    assert not fleet.backend.calls
    assert not fleet.own.calls
    assert eventually(lambda: fleet.coordinator.withdrawals)


def test_error_status_raises_the_packages_own_error(fleet: Fleet) -> None:
    fleet.backend.statuses = [400, 429]
    with pytest.raises(anthropic.BadRequestError):
        message(fleet)
    with pytest.raises(openai.RateLimitError):
        response(fleet)
    assert eventually(lambda: len(fleet.coordinator.releases) == 2)
    assert {one["outcome"] for one in fleet.coordinator.releases} == {"error"}


def test_what_is_no_model_call_passes_untouched(fleet: Fleet) -> None:
    fleet.openai.post("/embeddings", body={"model": "e", "input": "x"}, cast_to=object)
    fleet.anthropic.post(
        "/v1/messages/count_tokens", body={"model": MODEL, "messages": MESSAGES}, cast_to=object
    )
    assert [one.path for one in fleet.own.calls] == ["/v1/embeddings", "/v1/messages/count_tokens"]
    assert not fleet.coordinator.leases
    assert not any("x-session-id" in one.headers for one in fleet.own.calls)
