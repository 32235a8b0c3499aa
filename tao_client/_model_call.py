"""What a request to a model says, and the request that is sent in its place.

Only POSTs with a JSON object to a known endpoint count as model calls; all else passes untouched.
The caller's own request object is never changed: its errors and its `response.request` keep it.
"""

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tao_client import semconv
from tao_client._lease import ANSWER_LIMIT_S, Affinity
from tao_client._session import Session, end_of
from tao_client._turn import Outcome, Turn
from tao_client._usage import BodyReader, Reader, StreamReader

if TYPE_CHECKING:
    import httpx2

ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages")
_WITH_STREAM_OPTIONS = frozenset({"/chat/completions", "/completions"})
_INLINE_DATA = re.compile(rb";base64,[A-Za-z0-9+/=_-]{256,}")
INLINE_DATA_CHARS = 4_000
"""What an inline image or file is taken to add to a prompt, in characters (about 1,000 tokens)."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request to a model, as far as it concerns the scheduler."""

    endpoint: str
    """The path below the client's own base URL, `/chat/completions`."""
    model: str
    input_chars: int
    max_output_tokens: int | None
    timeout_s: float | None
    """The caller's own time-out for the first byte. None: it has none."""
    adds_usage: bool
    """The caller streams without asking for usage: it is asked for and taken out again."""
    content: bytes
    """The body to send to a backend."""


def read_model_call(request: "httpx2.Request") -> ModelCall | None:
    """None for everything that is no model call."""
    if request.method != "POST":
        return None
    path = request.url.path
    endpoint = next((known for known in ENDPOINTS if path.endswith(known)), None)
    if endpoint is None:
        return None
    try:
        content = request.content
        document: object = json.loads(content)
    except (RuntimeError, ValueError):  # a body that is sent as it is made, or no JSON
        return None
    if not isinstance(document, dict):
        return None
    body = cast("dict[str, object]", document)
    model = body.get("model")
    if not isinstance(model, str):
        return None
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    limit = limit or body.get("max_output_tokens")
    adds_usage = endpoint in _WITH_STREAM_OPTIONS and _lacks_usage(body)
    return ModelCall(
        endpoint=endpoint,
        model=model,
        input_chars=_count_chars(content),
        max_output_tokens=limit if type(limit) is int and limit > 0 else None,
        timeout_s=_read_timeout(request),
        adds_usage=adds_usage,
        content=_with_usage(content, body) if adds_usage else content,
    )


def routed_request(
    request: "httpx2.Request", call: ModelCall, affinity: Affinity, headers: dict[str, str]
) -> "httpx2.Request":
    """The same call, addressed to the backend of its lease."""
    url = f"{affinity.base_url}/v1{call.endpoint}"
    if request.url.query:
        url = f"{url}?{request.url.query.decode('ascii')}"
    sent = request.headers.copy()
    for name in ("host", "content-length"):
        sent.pop(name, None)
    for name, value in headers.items():
        if name in affinity.headers or name == semconv.HEADER_SESSION:
            sent[name] = value
        else:
            sent.setdefault(name, value)
    # Usage is read in passing, so the reply must come as it is.
    sent["accept-encoding"] = "identity"
    return type(request)(
        request.method,
        url,
        headers=sent,
        content=call.content,
        extensions=dict(request.extensions),
    )


def spend_timeout(request: "httpx2.Request", spent_s: float) -> None:
    """Take what a hold has cost off the request's read time-out."""
    timeouts = request.extensions.get("timeout")
    if spent_s <= ANSWER_LIMIT_S or not isinstance(timeouts, dict):
        return
    limits = cast("dict[str, float | None]", timeouts)
    read_s = limits.get("read")
    if read_s is not None:
        left = {**limits, "read": max(read_s - spent_s, 0.001)}
        request.extensions = {**request.extensions, "timeout": left}


class Passage:
    """One model call under its lease, until the last byte of its reply has passed."""

    def __init__(self, call: ModelCall, session: Session | None) -> None:
        """Outside any session the call is a session of its own, with this one turn."""
        self._is_whole_session = session is None
        self._session = session or Session(model=call.model)
        self.turn = Turn(
            self._session,
            model=call.model,
            input_chars=call.input_chars,
            max_output_tokens=call.max_output_tokens,
            timeout_s=call.timeout_s,
        )
        self._call = call
        self._reader: Reader | None = None
        self._is_error = False
        self._sent_s = 0.0
        self._is_first = True
        self._is_finished = False

    def sent(self) -> None:
        """The call goes out now."""
        self._sent_s = time.monotonic()

    def answered(self, response: "httpx2.Response") -> None:
        """The head of the reply is there."""
        self._is_error = response.status_code >= 400
        self.turn.answered(response.headers)
        if response.headers.get("content-encoding", "identity") != "identity":
            return
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            self._reader = StreamReader(takes_usage_out=self._call.adds_usage)
        else:
            self._reader = BodyReader()

    def feed(self, chunk: bytes) -> bytes:
        """A chunk of the reply; returns what the caller shall see of it now."""
        reader = self._reader
        if reader is None:
            return chunk
        passed = reader.feed(chunk)
        if self._is_first and isinstance(reader, StreamReader) and reader.has_token:
            self._is_first = False
            self.turn.report(ttft_s=round(time.monotonic() - self._sent_s, 6))
        if reader.is_complete:
            self.finish("completed")
        return passed

    def ended(self) -> bytes:
        """The reply has ended; returns what was held back of it."""
        rest = b"" if self._reader is None else self._reader.end()
        self.finish("error" if self._is_error else "completed")
        return rest

    def failed(self, error: BaseException) -> None:
        """The call has failed or was broken off."""
        reason, _ = end_of(error)
        self.finish("cancelled" if reason == "cancelled" else "error")

    def finish(self, outcome: Outcome) -> None:
        """Give the lease back; the first call counts."""
        if self._is_finished:
            return
        self._is_finished = True
        if self._reader is not None:
            usage = self._reader.usage
            self.turn.report(
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
            )
        self.turn.finish(outcome)
        if self._is_whole_session:
            self._session.end(outcome)


def _lacks_usage(body: dict[str, object]) -> bool:
    options = body.get("stream_options")
    asks = isinstance(options, dict) and cast("dict[str, object]", options).get("include_usage")
    return body.get("stream") is True and not asks


def _with_usage(content: bytes, body: dict[str, object]) -> bytes:
    if "stream_options" not in body:
        # The common case without writing a long prompt out again.
        end = content.rstrip()
        return end[:-1] + b',"stream_options":{"include_usage":true}}'
    given = body["stream_options"]
    options = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    changed = {**body, "stream_options": {**options, "include_usage": True}}
    return json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()


def _count_chars(content: bytes) -> int:
    if b";base64," not in content:
        return len(content)
    return sum(len(part) + INLINE_DATA_CHARS for part in _INLINE_DATA.split(content)) - (
        INLINE_DATA_CHARS
    )


def _read_timeout(request: "httpx2.Request") -> float | None:
    timeouts = request.extensions.get("timeout")
    if not isinstance(timeouts, dict):
        return None
    read_s = cast("dict[str, object]", timeouts).get("read")
    return float(read_s) if isinstance(read_s, int | float) else None
