"""A real coordinator that relays to backend stubs, and calls to it as tests send them."""

import contextlib
import json
import socket
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from coordinator_process import CoordinatorProcess, coordinator, wait_until
from relay_stubs import MODEL, RelayBackendStub

MESSAGES: Any = [{"role": "user", "content": "Say hello."}]
CHAT: dict[str, object] = {"model": MODEL, "messages": MESSAGES}
LONG_CHAT = CHAT | {"messages": [{"role": "user", "content": "word " * 8_000}]}
"""About 10,000 tokens: the stub's pool holds one such session, not two."""


@contextlib.contextmanager
def relay(
    tmp_path: Path, *flags: str, num_backends: int = 1
) -> Generator[tuple[list[RelayBackendStub], CoordinatorProcess]]:
    with contextlib.ExitStack() as stack:
        stubs = [stack.enter_context(RelayBackendStub()) for _ in range(num_backends)]
        urls = [f"--backend=b{number}={stub.url}" for number, stub in enumerate(stubs)]
        yield stubs, stack.enter_context(coordinator(tmp_path / "log", *urls, *flags))


def post(
    service: CoordinatorProcess,
    body: Mapping[str, object] | bytes = CHAT,
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
) -> Any:
    return service.call("POST", path, body, headers)


def open_call(
    service: CoordinatorProcess, body: Mapping[str, object], session_id: str
) -> socket.socket:
    """Send a call and return its open connection."""
    content = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=20)
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"x-session-id: {session_id}\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    connection.sendall(head.encode() + content)
    return connection


def assert_nothing_is_left(service: CoordinatorProcess) -> None:
    def is_idle() -> bool:
        state = service.state()
        return not state["held"] and all(
            (one["num_in_flight"], one["in_flight_tokens"]) == (0, 0) for one in state["backends"]
        )

    wait_until(is_idle)
    assert "Traceback" not in service.log()
