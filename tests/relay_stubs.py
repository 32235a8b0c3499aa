"""A backend for the relay's tests: four model APIs, metrics, and ways to fail."""

import json
import socket
import struct
from http.server import BaseHTTPRequestHandler

from coordinator_process import page
from sdk_api_stubs import ApiBackendStub
from sdk_stubs import Recorded, send, send_json

MODEL = "stub-model"


class RelayBackendStub(ApiBackendStub):
    """Fails as told: `fault` is empty or a word of `_fail`."""

    def __init__(self, capacity: str = "40000") -> None:
        super().__init__()
        self.metrics_page = page(capacity)
        self.metrics_status = 200
        self.fault = ""
        self.peers: set[object] = set()
        """Connections, by their other end."""
        self.reply_headers: dict[str, str] = {}
        """Of embeddings."""
        self.endless_pause_s = 0.02
        self.num_hung_up = 0
        """Clients that left in the middle of an endless stream."""

    def die(self) -> None:
        """Refuse connections, and break the open ones."""
        self.fault, self.metrics_status = "reset", 500
        self._server.shutdown()
        self._server.server_close()

    def handle(self, handler: BaseHTTPRequestHandler, request: Recorded) -> None:
        self.peers.add(handler.client_address)
        if request.path == "/metrics":
            send(handler, self.metrics_status, self.metrics_page.encode(), "text/plain")
        elif request.path == "/v1/models":
            send_json(handler, 200, {"object": "list", "data": [{"id": MODEL, "max_model_len": 9}]})
        elif self.fault:
            self._fail(handler)
        elif request.path == "/v1/embeddings":
            vector = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            reply = {"object": "list", "data": [vector], "model": MODEL, "usage": usage}
            content = json.dumps(reply).encode()
            handler.send_response(200)
            headers = {"content-type": "application/json", "content-length": str(len(content))}
            for name, value in (headers | self.reply_headers).items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
        else:
            super().handle(handler, request)

    def _fail(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        if self.fault == "reset":
            # Linger 0: close sends RST, as a killed process does.
            linger = struct.pack("ii", 1, 0)
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            handler.connection.close()
        elif self.fault == "garbage":
            handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        elif self.fault == "hang":
            self.closing.wait(30)
        elif self.fault == "cut-prefill":
            handler.wfile.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
        elif self.fault == "cut-body":
            handler.wfile.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                b'content-length: 100\r\n\r\n{"id":'
            )
        else:
            self._stream_without_end(handler)

    def _stream_without_end(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        choice = {"index": 0, "delta": {"content": "x" * 1000}, "finish_reason": None}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        event = f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode()
        try:
            while not self.closing.wait(self.endless_pause_s):
                handler.wfile.write(event)
                handler.wfile.flush()
        except OSError:
            self.num_hung_up += 1
