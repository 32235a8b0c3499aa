"""The yardstick: a model proxy as ThunderAgent's is built, without its scheduler.

Run as a process of its own with the engine's URL as argument. Its shape (`docs/rivals.md`): a web
framework's request handler that parses the body, estimates tokens from the messages written out,
looks up the session's record, sends the body written out again by an httpx client, and reads usage
by parsing every event. The framework is Starlette (FastAPI adds to it, so this is the kinder
comparison), the client httpx2, the server uvicorn with uvloop and httptools, as it has itself.
"""

import json
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass
class _Session:
    tokens: int = 0
    num_turns: int = 0


class _Proxy:
    def __init__(self, engine_url: str) -> None:
        self._url = f"{engine_url}/v1/chat/completions"
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx2.AsyncClient(timeout=900.0, limits=limits, trust_env=False)
        self._sessions: dict[str, _Session] = {}

    async def complete(self, request: Request) -> Response:
        payload: dict[str, Any] = await request.json()
        session = self._sessions.setdefault(payload.pop("program_id", "default"), _Session())
        session.tokens = len(json.dumps(payload.get("messages", []))) // 5
        if payload.get("stream"):
            payload["stream_options"] = {"include_usage": True}
            events = self._events(payload, session)
            return StreamingResponse(events, media_type="text/event-stream")
        reply = await self._client.post(self._url, json=payload)
        document = reply.json()
        self._count(session, document)
        return JSONResponse(document, reply.status_code)

    async def _events(self, payload: dict[str, Any], session: _Session) -> AsyncIterator[bytes]:
        async with self._client.stream("POST", self._url, json=payload) as reply:
            async for line in reply.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    self._count(session, json.loads(line[6:]))
                if line:
                    yield f"{line}\n\n".encode()

    @staticmethod
    def _count(session: _Session, document: dict[str, Any]) -> None:
        usage = document.get("usage")
        if usage:
            session.tokens = usage["total_tokens"]
            session.num_turns += 1


def main() -> None:
    """Serve until a signal comes."""
    proxy = _Proxy(sys.argv[1])
    app = Starlette(routes=[Route("/v1/chat/completions", proxy.complete, methods=["POST"])])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        port = listener.getsockname()[1]
        sys.stdout.write(f"proxy listening on http://127.0.0.1:{port}\n")
        sys.stdout.flush()
        config = uvicorn.Config(app, log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
