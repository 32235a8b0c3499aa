"""A server for one test: plays model replies from a script, and a coordinator that grants itself.

It answers `/v1/chat/completions` and `/v1/responses` with the next command of its script (the
number of replies so far in the conversation decides which), takes leases and events as a
coordinator would, and keeps every request. A granted turn is recognisable by its path: it is sent
to `/placed/v1/...`.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
LEASES = "/tao/v1/leases"


@dataclass
class Request:
    """One request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class ScriptedServer:
    """`with ScriptedServer(["ls", SUBMIT]) as server:`; attributes may be changed while it runs."""

    commands: Sequence[str] = ("echo hello", SUBMIT)
    lease_answer: tuple[int, dict[str, Any]] | None = None
    """Answer to lease requests. None: grant."""
    failures: list[int] = field(default_factory=list[int])
    """Status codes of the next model calls, before any reply of the script."""
    cached_tokens: int | None = 900
    requests: list[Request] = field(default_factory=list[Request])

    def __enter__(self) -> "ScriptedServer":
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet per answer: no 40 ms of Nagle's algorithm

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_DELETE(self) -> None:
                self._answer()

            def _answer(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                is_json = "json" in (self.headers.get("content-type") or "")
                headers = {name.lower(): value for name, value in self.headers.items()}
                body: dict[str, Any] = json.loads(raw) if raw and is_json else {}
                status, document = script.answer(Request(self.command, self.path, headers, body))
                payload = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def calls(self, path_end: str = "") -> list[Request]:
        """The model calls so far, in order of arrival."""
        ends = (path_end,) if path_end else ("/chat/completions", "/responses")
        return [one for one in self.requests if one.path.endswith(ends)]

    def to(self, path: str) -> list[Request]:
        """Requests to this path."""
        return [one for one in self.requests if one.path == path]

    def releases(self) -> list[dict[str, Any]]:
        """Bodies of the releases, in order."""
        return [one.body for one in self.requests if one.path.endswith("/release")]

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        """What to say to this request."""
        self.requests.append(request)
        if request.path == LEASES:
            return self.lease_answer or (200, self._grant(request))
        if request.path.endswith(("/chat/completions", "/responses")):
            if self.failures:
                return self.failures.pop(0), {"error": {"message": "scripted", "type": "server"}}
            if request.path.endswith("/responses"):
                return 200, self._response(request)
            return 200, self._chat_completion(request)
        return 200, {}

    def _grant(self, request: Request) -> dict[str, Any]:
        return {
            "lease_id": f"lease-{request.body['request_id']}",
            "start_within_s": 5,
            "affinity": {
                "backend_id": "b0",
                "base_url": f"{self.url}/placed",
                "headers": {"x-pin": "7"},
                "strength": "hard",
            },
            "receipt": {
                "policy": "scripted",
                "reason": "test",
                "hold_s": 0.0,
                "cache_credit_tokens": 0,
                "plan_id": None,
            },
        }

    def _command(self, replies: int) -> str:
        return self.commands[min(replies, len(self.commands) - 1)]

    def _chat_completion(self, request: Request) -> dict[str, Any]:
        messages = cast("list[dict[str, Any]]", request.body["messages"])
        turn = sum(message["role"] == "assistant" for message in messages)
        details = {} if self.cached_tokens is None else {"cached_tokens": self.cached_tokens}
        return {
            "id": f"chatcmpl-{turn}",
            "object": "chat.completion",
            "created": 1,
            "model": request.body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": f"turn {turn}",
                        "tool_calls": [
                            {
                                "id": f"call_{turn}",
                                "type": "function",
                                "function": {
                                    "name": "bash",
                                    "arguments": json.dumps({"command": self._command(turn)}),
                                },
                            }
                        ],
                    },
                }
            ],
            "usage": {
                "prompt_tokens": 1000 + turn,
                "completion_tokens": 20,
                "total_tokens": 1020 + turn,
                "prompt_tokens_details": details,
            },
        }

    def _response(self, request: Request) -> dict[str, Any]:
        items = cast("list[dict[str, Any]]", request.body["input"])
        turn = sum(item.get("type") == "function_call" for item in items)
        return {
            "id": f"resp-{turn}",
            "object": "response",
            "created_at": 1,
            "model": request.body["model"],
            "status": "completed",
            "output": [
                {
                    "type": "function_call",
                    "id": f"fc_{turn}",
                    "call_id": f"call_{turn}",
                    "name": "bash",
                    "arguments": json.dumps({"command": self._command(turn)}),
                    "status": "completed",
                }
            ],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1000 + turn,
                "input_tokens_details": {"cached_tokens": self.cached_tokens or 0},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 1020 + turn,
            },
        }
