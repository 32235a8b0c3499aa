"""Builders of trace texts."""

import json
from collections.abc import Iterable, Mapping


def lines(rows: Iterable[Mapping[str, object]]) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def agent_rows() -> list[dict[str, object]]:
    """Two turns of one session with a call between them, as in the shared trace."""
    return [
        {
            "request_id": "s:0", "session_id": "s", "turn": 0, "input_length": 1000,
            "output_length": 20, "llm_ms": 4000, "arrival_ms": 0,
            "meta": {"harness": "claude-code", "model": "m", "source": "x"},
        },
        {
            "request_id": "s:1", "session_id": "s", "turn": 1, "input_length": 1100,
            "output_length": 30, "llm_ms": 2000, "arrival_ms": 6500, "wait_for": ["s:0"],
            "tool_wait_ms": 2500,
            "tool_events": [
                {
                    "tool_call_id": "a", "tool_class": "Bash", "tool_key": "make",
                    "started_at_ms": 4000, "ended_at_ms": 6500, "duration_ms": 2500,
                    "status": "error", "timeout_ms": 60000,
                }
            ],
        },
    ]  # fmt: skip


def mooncake_rows() -> list[dict[str, object]]:
    return [
        {"timestamp": 0, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]},
        {"timestamp": 3052, "input_length": 600, "output_length": 5, "hash_ids": [0, 7]},
    ]


def weka_document() -> dict[str, object]:
    return {
        "id": "conv",
        "models": ["sonnet"],
        "block_size": 64,
        "requests": [
            {"t": 10.0, "in": 128, "out": 5, "hash_ids": [1, 2], "api_time": 2.0},
            {
                "t": 12.0,
                "type": "subagent",
                "agent_id": "a1",
                "requests": [{"t": 12.5, "in": 64, "out": 2, "hash_ids": [9], "api_time": 1.0}],
            },
            {
                "t": 20.0, "in": 192, "out": 6, "hash_ids": [1, 2, 3], "api_time": 1.5,
                "think_time": 8.0, "input_types": ["tool_result"],
            },
            {
                "t": 60.0, "in": 256, "out": 6, "hash_ids": [1, 2, 3, 5], "api_time": 1.5,
                "think_time": 38.0, "input_types": ["text"],
            },
        ],
    }  # fmt: skip


def claude_rows() -> list[dict[str, object]]:
    """A prompt, a reply in two blocks with two calls, their results, a last reply."""

    def reply(second: float, block: dict[str, object], message_id: str) -> dict[str, object]:
        usage = {
            "input_tokens": 3, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 900,
            "output_tokens": 8,
        }  # fmt: skip
        message = {"id": message_id, "model": "opus", "content": [block], "usage": usage}
        return {"type": "assistant", "sessionId": "cc", "timestamp": at(second), "message": message}

    def result(second: float, call_id: str, *, is_error: bool = False) -> dict[str, object]:
        block = {"type": "tool_result", "tool_use_id": call_id, "is_error": is_error}
        return {
            "type": "user", "sessionId": "cc", "timestamp": at(second),
            "message": {"content": [block]},
        }  # fmt: skip

    def use(call_id: str, name: str, **arguments: object) -> dict[str, object]:
        return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

    prompt = {"role": "user", "content": "SECRET PROMPT"}
    return [
        {"type": "queue-operation", "timestamp": at(0.0)},
        {"type": "user", "sessionId": "cc", "timestamp": at(0.5), "message": prompt},
        reply(3.0, use("t1", "Bash", command="cd /x && git status SECRET", timeout=120000), "m1"),
        reply(4.0, use("t2", "Read", file_path="SECRET"), "m1"),
        result(4.5, "t2"),
        result(9.0, "t1", is_error=True),
        reply(11.0, {"type": "text", "text": "SECRET ANSWER"}, "m2"),
    ]


def at(second: float) -> str:
    return f"2026-02-06T22:12:{second:06.3f}Z"


def mini_document() -> dict[str, object]:
    usage = {"prompt_tokens": 500, "completion_tokens": 40}
    return {
        "trajectory_format": "mini-swe-agent-1.1",
        "instance_id": "task",
        "info": {"config": {"environment": {"timeout": 30}, "model": {"model_name": "sonnet"}}},
        "messages": [
            {"role": "system", "content": "SECRET"},
            {"role": "user", "content": "SECRET"},
            {
                "role": "assistant", "content": "SECRET",
                "extra": {
                    "timestamp": 1000.0,
                    "actions": [{"command": "pytest -q secret.py"}],
                    "response": {"usage": usage},
                },
            },
            {"role": "tool", "content": "SECRET", "extra": {"timestamp": 1007.5}},
            {
                "role": "assistant", "content": "",
                "extra": {
                    "timestamp": 1010.0,
                    "actions": [{"command": "ls"}, {"command": "cat x"}],
                },
            },
            {"role": "tool", "content": "", "extra": {"timestamp": 1014.0}},
            {"role": "tool", "content": "", "extra": {"timestamp": 1014.0}},
            {"role": "assistant", "content": "done", "extra": {"timestamp": 1015.0, "actions": []}},
        ],
    }  # fmt: skip


def tracelab_rows() -> list[dict[str, object]]:
    """A prompt; two calls at a time; what a person says next; times as in `claude_rows`."""

    def event(kind: str, second: float) -> dict[str, object]:
        return {"event_type": kind, "timestamp": at(second), "source": "x", "content_chars": 9}

    def call(call_id: str, name: str, begin: float, end: float, given: object) -> dict[str, object]:
        return {
            "tool_index": 0, "tool_name": name, "tool_call_id": call_id, "emitted_at": at(begin),
            "result_at": at(end), "tool_wall_latency_ms": round(1000 * (end - begin)),
            "tool_internal_latency_ms": 1, "is_error": name == "Bash", "input": given,
            "input_chars": 9, "result_chars": 9,
        }  # fmt: skip

    def row(
        number: int, tokens: tuple[int, int, int], events: list[dict[str, object]], *calls: object
    ) -> dict[str, object]:
        cached, fresh, output = tokens
        return {
            "provider": "claude", "project": "SECRET", "user": "SECRET", "session_id": "claude:tl",
            "round_index": number, "round_id": f"m{number}", "model": "opus",
            "input_tokens_total": cached + fresh, "prefix_tokens": cached,
            "newly_append_tokens": fresh, "output_tokens": output, "timing_events": events,
            "tools": list(calls), "trace_key": f"claude:claude:tl:m{number}",
        }  # fmt: skip

    bash = {"command": "cd /x && git status SECRET", "timeout": 120000}
    return [
        row(
            0, (900, 103, 60),
            [event("user_message", 0.5), event("reasoning", 2.0), event("tool_call", 3.0),
             event("tool_call", 4.0)],
            call("t1", "Bash", 3.0, 9.0, bash), call("t2", "Read", 4.0, 4.5, {"path": "SECRET"}),
        ),
        row(
            1, (1003, 97, 40),
            [event("tool_result", 4.5), event("tool_result", 9.0), event("text", 11.0)],
        ),
        row(
            2, (1100, 50, 30),
            [event("user_message", 31.0), event("text", 32.5), event("usage_report", 32.6)],
        ),
    ]  # fmt: skip
