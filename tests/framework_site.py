"""What an agent framework runs against: a coordinator, a leased backend, and a place of its own.

The backends are models that call the tools of a script, several at once where it says so.
"""

import json
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import cast

import httpx2
from sdk_stubs import (
    CoordinatorStub,
    ReceivedEvent,
    Recorded,
    Stub,
    envelope,
    eventually,
    send_json,
)

import tao_client as tao
from tao_client import semconv

ToolRequest = tuple[str, Mapping[str, object]]
Script = Sequence[Sequence[ToolRequest]]

ANSWER = "all done"
USAGE = {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127}


class ToolCallingBackend(Stub):
    """A model that plays a script; how often it has spoken in the conversation says where it is."""

    def __init__(self, script: Script = ()) -> None:
        super().__init__()
        self.script = script
        self.final: Sequence[ToolRequest] = ()
        """Calls to make once the script is over. Without any: the answer as text."""
        self.answer = ANSWER
        self.counts_calls = False
        """Only one conversation, whose messages do not say how often the model has spoken."""

    @property
    def calls(self) -> list[Recorded]:
        return self.seen("POST", "/chat/completions")

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        messages = cast("list[dict[str, object]]", request.json["messages"])
        spoken = sum(message["role"] == "assistant" for message in messages)
        turn = len(self.calls) - 1 if self.counts_calls else spoken
        requested = self.script[turn] if turn < len(self.script) else self.final
        message: dict[str, object] = {"role": "assistant", "content": self.answer}
        if requested:
            message["content"] = None
            message["tool_calls"] = [
                {
                    "id": f"call_{turn}_{index}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for index, (name, arguments) in enumerate(requested)
            ]
        reason = "tool_calls" if requested else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        send_json(
            handler, 200, {**envelope("chat.completion"), "choices": [choice], "usage": USAGE}
        )


class Site:
    def __init__(self) -> None:
        self.leased = ToolCallingBackend()
        self.own = ToolCallingBackend()
        self.coordinator = CoordinatorStub(self.leased.url)

    def plays(self, *script: Sequence[ToolRequest], final: Sequence[ToolRequest] = ()) -> None:
        for backend in (self.leased, self.own):
            backend.script, backend.final = script, final

    def connect(self) -> None:
        tao.connect(self.coordinator.url)

    @property
    def base_url(self) -> str:
        """Where the framework's client is set to."""
        return f"{self.own.url}/v1"

    def http_client(self) -> httpx2.Client:
        return tao.wrap(httpx2.Client(trust_env=False))

    def events(self, name: str, session_id: str, count: int) -> list[ReceivedEvent]:
        """The events of that name, waited for."""

        def found() -> list[ReceivedEvent]:
            return [
                event
                for event in self.coordinator.events_named(name)
                if event.attributes[semconv.CONVERSATION_ID] == session_id
            ]

        assert eventually(lambda: len(found()) >= count), found()
        return found()

    def tool_calls(self, session_id: str, count: int) -> dict[str, tuple[str, object]]:
        """Call id -> name and error of its end, of calls that were each told to start and to end.

        The session has ended when this is asked.
        """
        self.events(semconv.SESSION_END, session_id, 1)
        starts = self.events(semconv.TOOL_START, session_id, count)
        ends = self.events(semconv.TOOL_END, session_id, count)
        ids = [str(event.attributes[semconv.TOOL_CALL_ID]) for event in starts]
        assert sorted(ids) == sorted(str(e.attributes[semconv.TOOL_CALL_ID]) for e in ends)
        assert len(set(ids)) == len(ids) == count
        return {
            str(end.attributes[semconv.TOOL_CALL_ID]): (
                str(end.attributes[semconv.TOOL_NAME]),
                end.attributes.get(semconv.ERROR_TYPE),
            )
            for end in ends
        }

    def overlap(self, session_id: str) -> bool:
        """Whether the second tool call started before the first one ended."""
        starts = self.events(semconv.TOOL_START, session_id, 2)
        ends = self.events(semconv.TOOL_END, session_id, 2)
        last_start = max(event.timestamp_ns for event in starts)
        return last_start < min(event.timestamp_ns for event in ends)

    def assert_placed(self, session_id: str, turns: int) -> None:
        """All turns went to the leased backend, in leases of this session."""
        assert [len(self.leased.calls), len(self.own.calls)] == [turns, 0]
        assert {call.headers["x-session-id"] for call in self.leased.calls} == {session_id}
        assert {lease.json["session_id"] for lease in self.coordinator.leases} == {session_id}
        assert eventually(lambda: len(self.coordinator.releases) == turns)

    def assert_untouched(self, turns: int) -> None:
        """All turns went where the client was set to, and say nothing of a session."""
        assert [len(self.leased.calls), len(self.own.calls)] == [0, turns]
        assert self.coordinator.requests == []

    def close(self) -> None:
        tao.disconnect()
        for stub in (self.coordinator, self.own, self.leased):
            stub.close()
