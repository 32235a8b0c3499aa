"""Bodies of the OpenAI API: completions, stream chunks, usage, errors."""

from collections.abc import Generator
from typing import Final

import orjson
from starlette.responses import Response

from tao_coordinator.service.sim_backend.driver import Generation
from tao_coordinator.service.sim_backend.replies import PlannedCall, Reply
from tao_coordinator.service.sim_backend.requests import ApiError

STREAM_END: Final = b"data: [DONE]\n\n"


def json_response(value: object, status: int = 200) -> Response:
    """Return `value` as a JSON response."""
    return Response(orjson.dumps(value), status, media_type="application/json")


def error_body(error: ApiError) -> dict[str, object]:
    """Return an error in OpenAI's shape."""
    return {
        "error": {
            "message": str(error),
            "type": error.kind,
            "param": None,
            "code": error.status,
        }
    }


def usage(generation: Generation) -> dict[str, object]:
    """Return the usage of a reply as far as it has come."""
    prompt_tokens, output_tokens = (
        generation.sim_request.prompt_tokens,
        generation.produced_tokens,
    )
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": generation.cached_tokens or 0},
    }


def completion_body(
    completion_id: str,
    created: int,
    model: str,
    reply: Reply,
    generation: Generation,
    *,
    chat: bool,
) -> dict[str, object]:
    """Return a whole completion."""
    choice: dict[str, object] = {"index": 0, "finish_reason": reply.finish_reason, "logprobs": None}
    if chat:
        choice["message"] = {
            "role": "assistant",
            "content": reply.content or None,
            "tool_calls": [_call_body(planned) for planned in reply.tool_calls] or None,
        }
    else:
        choice["text"] = reply.content
    return {
        "id": completion_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "usage": usage(generation),
    }


class ChunkWriter:
    """Turns a reply that grows token by token into the chunks of a stream.

    What the client has got is the part of the rendering that so many tokens stand for: text first,
    then each tool call as soon as it is complete.
    """

    def __init__(
        self, completion_id: str, created: int, model: str, reply: Reply, *, chat: bool
    ) -> None:
        self._head: dict[str, object] = {
            "id": completion_id,
            "object": "chat.completion.chunk" if chat else "text_completion",
            "created": created,
            "model": model,
        }
        self._reply = reply
        self._chat = chat
        self._opened = False
        self._sent_chars = 0
        self._sent_calls = 0

    def chunks(self, generation: Generation) -> Generator[bytes]:
        """Yield what has become due."""
        if not generation.produced_tokens:
            return
        reply = self._reply
        if not self._opened:
            self._opened = True
            if self._chat:
                yield self._chunk({"role": "assistant", "content": ""})
        if generation.finished:
            due_chars = len(reply.text)
        else:
            due_chars = len(reply.text) * generation.produced_tokens // reply.output_tokens
        text = reply.content[self._sent_chars : due_chars]
        if text:
            self._sent_chars += len(text)
            yield self._chunk({"content": text})
        end = len(reply.content)
        for index, planned in enumerate(reply.tool_calls):
            end += len(planned.call.text)
            if index == self._sent_calls and end <= due_chars:
                self._sent_calls += 1
                yield from self._call_chunks(index, planned)

    def last_chunks(self, generation: Generation, *, include_usage: bool) -> Generator[bytes]:
        """Yield the end of a complete stream."""
        yield self._chunk({}, self._reply.finish_reason)
        if include_usage:
            yield _event({**self._head, "choices": [], "usage": usage(generation)})
        yield STREAM_END

    def _call_chunks(self, index: int, planned: PlannedCall) -> Generator[bytes]:
        body = _call_body(planned)
        opening = {**body, "index": index, "function": {"name": planned.call.name, "arguments": ""}}
        yield self._chunk({"tool_calls": [opening]})
        rest = {"index": index, "function": {"arguments": planned.call.arguments}}
        yield self._chunk({"tool_calls": [rest]})

    def _chunk(self, delta: dict[str, object], finish_reason: str | None = None) -> bytes:
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        if self._chat:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return _event({**self._head, "choices": [choice]})


def error_event(error: ApiError) -> bytes:
    """Return the event with which vLLM ends a stream that failed."""
    return _event(error_body(error))


def _call_body(planned: PlannedCall) -> dict[str, object]:
    return {
        "id": planned.call_id,
        "type": "function",
        "function": {"name": planned.call.name, "arguments": planned.call.arguments},
    }


def _event(value: object) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
