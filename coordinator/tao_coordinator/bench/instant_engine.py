"""An engine that answers at once: what stands behind a proxy whose own cost is measured.

Run as a process of its own (`python -m tao_coordinator.bench.instant_engine`). It says of every
prompt that it was cached, so that a scheduler in front lets every known session go at once. A
stream is eight tokens, each in a write of its own.
"""

import asyncio
import json
import sys
from typing import cast

import httptools

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n"
_PAGE = (
    b'vllm:cache_config_info{kv_cache_size_tokens="1000000000"} 1.0\n'
    b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"
)
_MODELS = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
_NUM_CHUNKS = 8
_OUTPUT_TOKENS = 8


class _Connection(asyncio.Protocol):
    """One keep-alive connection; requests come one after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self._path = b""
        self._body: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path = url
        self._body = []

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._path == b"/metrics":
            return self._answer(_PAGE, b"text/plain")
        if self._path == b"/v1/models":
            return self._answer(_MODELS, b"application/json")
        body = b"".join(self._body)
        # Searched, not parsed: the load's own bodies are all that comes.
        if b'"stream":true' not in body and b'"stream": true' not in body:
            return self._answer(_reply(len(body)), b"application/json")
        self._transport.write(_HEAD % b"text/event-stream" + b"transfer-encoding: chunked\r\n\r\n")
        self._stream(_chunks(len(body), b'"include_usage"' in body))
        return None

    def _answer(self, content: bytes, kind: bytes) -> None:
        head = _HEAD % kind + b"content-length: %d\r\n\r\n" % len(content)
        self._transport.write(head + content)

    def _stream(self, chunks: list[bytes]) -> None:
        if self._transport.is_closing():
            return
        event = chunks.pop(0)
        end = b"" if chunks else b"0\r\n\r\n"
        self._transport.write(b"%x\r\n%b\r\n%b" % (len(event), event, end))
        if chunks:
            self._loop.call_soon(self._stream, chunks)


def _usage(body_bytes: int) -> dict[str, object]:
    tokens = body_bytes // 4
    return {
        "prompt_tokens": tokens,
        "completion_tokens": _OUTPUT_TOKENS,
        "total_tokens": tokens + _OUTPUT_TOKENS,
        "prompt_tokens_details": {"cached_tokens": tokens},
    }


def _reply(body_bytes: int) -> bytes:
    message = {"role": "assistant", "content": "An answer of about eight tokens. " * 4}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "bench"}
        | {"choices": [choice], "usage": _usage(body_bytes)}
    ).encode()


def _chunks(body_bytes: int, tells_usage: bool) -> list[bytes]:
    envelope = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    choice = {"index": 0, "delta": {"content": " token"}, "finish_reason": None, "logprobs": None}
    token = b"data: %b\n\n" % json.dumps(envelope | {"choices": [choice]}).encode()
    chunks = [token] * _NUM_CHUNKS
    if tells_usage:
        last: dict[str, object] = {**envelope, "choices": [], "usage": _usage(body_bytes)}
        chunks.append(b"data: %b\n\n" % json.dumps(last).encode())
    return [*chunks, b"data: [DONE]\n\n"]


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"instant engine listening on http://127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    """Serve until a signal comes."""
    if sys.platform == "win32":
        asyncio.run(_serve())
        return
    import uvloop

    uvloop.run(_serve())


if __name__ == "__main__":
    main()
