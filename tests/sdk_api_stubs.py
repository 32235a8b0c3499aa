"""A model backend that speaks four APIs: chat, completions, responses and messages.

The replies have the shape that vLLM 0.32 gives them. In particular the messages API counts the
cached part of the prompt beside `input_tokens`, and its stream first says the whole prompt and
corrects that at the end.
"""

import json
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import cast

from sdk_stubs import BackendStub, Recorded, send_json, write_event

PROMPT_TOKENS = 1775
CACHED_TOKENS = 1664
OUTPUT_TOKENS = 9
TEXT = "Hello world"
WORDS = ("Hello", " world")

COUNTED = {
    "input_tokens": PROMPT_TOKENS,
    "cached_tokens": CACHED_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
}
"""What must be told of each reply, whatever the API."""

COMPLETION_USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": OUTPUT_TOKENS,
    "total_tokens": PROMPT_TOKENS + OUTPUT_TOKENS,
    "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
}
RESPONSE_USAGE = {
    "input_tokens": PROMPT_TOKENS,
    "input_tokens_details": {"cached_tokens": CACHED_TOKENS},
    "output_tokens": OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": PROMPT_TOKENS + OUTPUT_TOKENS,
}
MESSAGE_USAGE = {
    "input_tokens": PROMPT_TOKENS - CACHED_TOKENS,
    "cache_read_input_tokens": CACHED_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
}


class ApiBackendStub(BackendStub):
    """Answers whole or streamed, by the path of the request."""

    def __init__(self) -> None:
        super().__init__()
        self.first_token_after_s = 0.0
        """Pause between a stream's opening event and its first token."""

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        replies = {
            "/v1/completions": (completion(), completion_events(request)),
            "/v1/responses": (response("completed"), response_events()),
            "/v1/messages": (message(), message_events()),
        }
        found = replies.get(request.path.partition("?")[0])
        if found is None or self.statuses:
            super().handle(handler, request)
        elif request.json.get("stream"):
            self._send_events(handler, found[1])
        else:
            send_json(handler, 200, found[0])

    def _send_events(
        self, handler: BaseHTTPRequestHandler, events: list[tuple[str, object]]
    ) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        for number, (name, data) in enumerate(events):
            text = data if isinstance(data, str) else json.dumps(data)
            if number == 1:
                self.closing.wait(self.first_token_after_s)
            if name:
                line = f"event: {name}\n".encode()
                handler.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            write_event(handler, text)
        handler.wfile.write(b"0\r\n\r\n")


def completion() -> dict[str, object]:
    choice = {"index": 0, "text": TEXT, "finish_reason": "stop", "logprobs": None}
    return _completion([choice]) | {"usage": COMPLETION_USAGE}


def completion_events(request: Recorded) -> list[tuple[str, object]]:
    if not request.json.get("stream"):
        return []
    choices = [
        {"index": 0, "text": word, "finish_reason": None, "logprobs": None} for word in WORDS
    ]
    events: list[tuple[str, object]] = [("", _completion([choice])) for choice in choices]
    options = cast("dict[str, object]", request.json.get("stream_options") or {})
    if options.get("include_usage"):
        events.append(("", _completion([]) | {"usage": COMPLETION_USAGE}))
    return [*events, ("", "[DONE]")]


def response(status: str) -> dict[str, object]:
    part: dict[str, object] = {"type": "output_text", "text": TEXT, "annotations": []}
    item: dict[str, object] = {
        "type": "message",
        "id": "msg-1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": "resp-1",
        "object": "response",
        "created_at": 1,
        "model": "stub-model",
        "status": status,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": [item] if status == "completed" else [],
        "usage": RESPONSE_USAGE if status == "completed" else None,
    }


def response_events() -> list[tuple[str, object]]:
    def event(kind: str, **fields: object) -> dict[str, object]:
        return {"type": kind, **fields}

    created = event("response.created", response=response("in_progress"))
    deltas = [
        event(
            "response.output_text.delta",
            delta=word,
            item_id="msg-1",
            output_index=0,
            content_index=0,
            logprobs=[],
        )
        for word in WORDS
    ]
    completed = event("response.completed", response=response("completed"))
    numbered = enumerate([created, *deltas, completed])
    return [(str(one["type"]), one | {"sequence_number": number}) for number, one in numbered]


def message() -> dict[str, object]:
    return {
        "id": "msg-1",
        "type": "message",
        "role": "assistant",
        "model": "stub-model",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": MESSAGE_USAGE,
    }


def message_events() -> list[tuple[str, object]]:
    first_usage = {"input_tokens": PROMPT_TOKENS, "output_tokens": 0}
    opened = message()
    opened.update(content=[], stop_reason=None, usage=first_usage)
    block = {"type": "text", "text": ""}
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": opened},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": word},
            }
            for word in WORDS
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": MESSAGE_USAGE,
        },
        {"type": "message_stop"},
    ]
    return [(str(one["type"]), one) for one in events]


def _completion(choices: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": "stub-model",
        "choices": list(choices),
    }
