"""Redirect: the coordinator answers 307, and real clients follow it with their body."""

import asyncio
import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anthropic
import openai
from coordinator_process import CoordinatorProcess, coordinator, wait_until
from relay_stubs import MODEL, RelayBackendStub

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
BODY = {"model": MODEL, "messages": MESSAGES}
SESSION = {"x-session-id": "s1"}


@contextlib.contextmanager
def redirecting(
    tmp_path: Path, *flags: str
) -> Generator[tuple[RelayBackendStub, CoordinatorProcess]]:
    with (
        RelayBackendStub(capacity="1000000") as stub,
        coordinator(
            tmp_path / "log", f"--backend=a={stub.url}", "--redirect", "a", *flags
        ) as service,
    ):
        yield stub, service


def num_running(service: CoordinatorProcess) -> int:
    return service.state()["backends"][0]["num_in_flight"]


def completed(service: CoordinatorProcess) -> int:
    return service.state()["counters"]["released"].get("completed", 0)


def test_answer_is_307_with_the_same_path_and_query(tmp_path: Path) -> None:
    with redirecting(tmp_path) as (stub, service):
        for path in ("/v1/chat/completions", "/v1/messages?beta=true&x=%2F", "/v1/responses"):
            reply = service.call("POST", path, BODY)
            assert reply.status == 307
            assert reply.headers["location"] == stub.url + path
            assert json.loads(reply.headers["x-tao-receipt"])["backend_id"] == "a"
        assert stub.calls == []


def test_openai_follows_with_its_body_and_without_its_key(tmp_path: Path) -> None:
    with (
        redirecting(tmp_path, "--api-key", "front") as (stub, service),
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="front", max_retries=0) as client,
    ):
        reply = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, extra_headers=SESSION
        )
        assert reply.choices[0].message.content == "Hello world"
        chunks = client.chat.completions.create(
            model=MODEL, messages=MESSAGES, stream=True, extra_headers=SESSION
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"
        assert client.responses.create(model=MODEL, input="x").output_text == "Hello world"
        assert [call.path for call in stub.calls] == ["/v1/chat/completions"] * 2 + [
            "/v1/responses"
        ]
        assert json.loads(stub.calls[0].body) == BODY
        for call in stub.calls:
            # Another origin: the client itself keeps its key back.
            assert "authorization" not in call.headers
        assert stub.calls[0].headers["x-session-id"] == "s1"


def test_async_openai_and_anthropic_follow(tmp_path: Path) -> None:
    async def ask(service: CoordinatorProcess) -> list[str]:
        async with (
            openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="k", max_retries=0) as one,
            anthropic.AsyncAnthropic(base_url=service.url, api_key="k", max_retries=0) as two,
        ):
            chunks = await one.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
            message = await two.messages.create(model=MODEL, max_tokens=9, messages=MESSAGES)
            block = message.content[0]
            assert block.type == "text"
            return [text, block.text]

    with redirecting(tmp_path) as (stub, service):
        assert asyncio.run(ask(service)) == ["Hello world"] * 2
        assert len(stub.calls) == 2
        assert "authorization" not in stub.calls[0].headers


def test_lease_ends_with_the_sessions_next_turn(tmp_path: Path) -> None:
    with redirecting(tmp_path) as (_, service):
        for number in range(3):
            assert service.call("POST", "/v1/chat/completions", BODY, SESSION).status == 307
            assert (num_running(service), completed(service)) == (1, number)
        # Another session and another agent say nothing of this one.
        service.call("POST", "/v1/chat/completions", BODY, {"x-session-id": "s2"})
        agent = {**SESSION, "x-tao-agent": "title"}
        service.call("POST", "/v1/chat/completions", BODY, agent)
        assert (num_running(service), completed(service)) == (3, 2)
        assert service.call("POST", "/tao/v1/sessions/s1/end").status == 204
        wait_until(lambda: num_running(service) == 1)


def test_backend_that_did_not_opt_in_is_relayed(tmp_path: Path) -> None:
    with (
        RelayBackendStub() as stub,
        coordinator(tmp_path / "log", f"--backend=a={stub.url}") as service,
    ):
        assert service.call("POST", "/v1/chat/completions", BODY).status == 200


def test_aliased_call_is_relayed_since_the_client_would_send_the_alias(tmp_path: Path) -> None:
    with redirecting(tmp_path, "--model-alias", f"gpt-*={MODEL}") as (stub, service):
        reply = service.call("POST", "/v1/chat/completions", {**BODY, "model": "gpt-5"})
        assert reply.status == 200
        assert json.loads(stub.calls[-1].body)["model"] == MODEL
