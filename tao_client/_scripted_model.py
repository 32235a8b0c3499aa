"""A model that plays a script, for tests of agents: no network, no key, no engine.

It stands behind the HTTP client of an OpenAI client and answers chat completions, whole or
streamed.
"""

import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import httpx2

MODEL_NAME = "scripted"
CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The model asks for a call of a tool."""

    name: str
    """Name of the tool."""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    """Its arguments, as JSON can hold them."""


Reply = str | ToolRequest | Sequence[ToolRequest] | int
"""What the model answers: a text, one tool call or several at once, or an HTTP error status."""


class ScriptedModel:
    """Plays one reply of the script for each call, in order; safe to use from several threads.

        model = ScriptedModel(ToolRequest("bash", {"command": "ls"}), "done")
        client = tao.wrap(OpenAI(http_client=model.http_client(), api_key="none"))

    Once the script is over, calls are answered with status 400 and a message that says so. Token
    counts are characters / 4. For the openai package 2.x, which stands on httpx: an
    `httpx.Client(transport=httpx.MockTransport(model.respond))`.
    """

    def __init__(self, *script: Reply) -> None:
        self.requests: list[dict[str, object]] = []
        """The bodies of the calls so far, oldest first."""
        self._script = script
        self._lock = threading.Lock()

    def http_client(self) -> "httpx2.Client":
        """A new HTTP client that reaches this model only."""
        import httpx2

        return httpx2.Client(transport=httpx2.MockTransport(self.respond))

    def async_http_client(self) -> "httpx2.AsyncClient":
        """The same for asynchronous callers."""
        import httpx2

        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.respond))

    def respond(self, request: "httpx2.Request") -> "httpx2.Response":
        """Answer one HTTP request, of httpx or httpx2."""
        if request.method == "GET" and request.url.path.endswith("/models"):
            models = [{"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "test"}]
            return _response(request, 200, {"object": "list", "data": models})
        if not request.url.path.endswith("/chat/completions"):
            return _error(request, 404, f"a ScriptedModel has no {request.url.path}")
        body = cast("dict[str, object]", json.loads(request.content))
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
        if number >= len(self._script):
            return _error(request, 400, f"the script is over after {len(self._script)} replies")
        reply = self._script[number]
        if isinstance(reply, int):
            return _error(request, reply, "as the script has it")
        usage = _usage(len(request.content), reply)
        envelope: dict[str, object] = {
            "id": f"scripted-{number}",
            "created": 0,
            "model": body.get("model", MODEL_NAME),
        }
        message = _message(reply, number)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        if body.get("stream"):
            options = body.get("stream_options")
            asks = isinstance(options, dict) and "include_usage" in options
            chunks = _chunks(envelope, message, reason, usage if asks else None)
            return _response(request, 200, chunks)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
        return _response(request, 200, envelope | whole)


def _message(reply: str | ToolRequest | Sequence[ToolRequest], number: int) -> dict[str, object]:
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    asked = [reply] if isinstance(reply, ToolRequest) else reply
    tool_calls = [
        {
            "id": f"call-{number}-{index}",
            "type": "function",
            "function": {"name": one.name, "arguments": json.dumps(one.arguments)},
        }
        for index, one in enumerate(asked)
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def _usage(input_chars: int, reply: str | ToolRequest | Sequence[ToolRequest]) -> dict[str, int]:
    input_tokens = max(1, input_chars // CHARS_PER_TOKEN)
    output_tokens = max(1, len(str(reply)) // CHARS_PER_TOKEN)
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }


def _chunks(
    envelope: Mapping[str, object],
    message: Mapping[str, object],
    reason: str,
    usage: Mapping[str, int] | None,
) -> Iterator[Mapping[str, object]]:
    """A stream: the role, the text word by word or the tool calls, the end, the usage if asked."""
    content = message["content"]
    words = content.split(" ") if isinstance(content, str) else []
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}]
    deltas.extend({"content": f" {word}" if index else word} for index, word in enumerate(words))
    tool_calls = cast("list[dict[str, object]]", message.get("tool_calls") or [])
    deltas.extend({"tool_calls": [{"index": i, **one}]} for i, one in enumerate(tool_calls))
    kind = {**envelope, "object": "chat.completion.chunk"}
    for delta in deltas:
        yield {**kind, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**kind, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    if usage is not None:
        yield {**kind, "choices": [], "usage": usage}


def _error(request: "httpx2.Request", status: int, message: str) -> "httpx2.Response":
    return _response(request, status, {"error": {"message": message, "type": "scripted"}})


def _response(
    request: "httpx2.Request",
    status: int,
    document: Mapping[str, object] | Iterator[Mapping[str, object]],
) -> "httpx2.Response":
    library = sys.modules[type(request).__module__.partition(".")[0]]
    if isinstance(document, Mapping):
        return library.Response(status, json=document, request=request)
    events = [f"data: {json.dumps(one)}\n\n" for one in document]
    return library.Response(
        status,
        headers={"content-type": "text/event-stream"},
        content="".join([*events, "data: [DONE]\n\n"]).encode(),
        request=request,
    )
