import json
from collections.abc import Iterator

import httpx2
import pytest

from tao_client._lease import Affinity
from tao_client._model_call import (
    INLINE_DATA_CHARS,
    read_model_call,
    routed_request,
    spend_timeout,
)


def post(body: object, path: str = "/v1/chat/completions", **extensions: object) -> httpx2.Request:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.Request("POST", f"http://own{path}", content=content, extensions=extensions)


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/v1/chat/completions", "/chat/completions"),
        ("/api/v1/completions", "/completions"),
        ("/v1/responses", "/responses"),
        ("/v1/messages", "/messages"),
        ("/v1/embeddings", None),
        ("/v1/chat/completions/7", None),
    ],
)
def test_endpoints_that_are_model_calls(path: str, endpoint: str | None) -> None:
    call = read_model_call(post({"model": "m"}, path))
    assert (call.endpoint if call else None) == endpoint


def test_what_is_no_model_call() -> None:
    def parts() -> Iterator[bytes]:
        yield b"{}"

    url = "http://own/v1/chat/completions"
    assert read_model_call(httpx2.Request("GET", url)) is None
    assert read_model_call(httpx2.Request("POST", url, content=parts())) is None
    for body in (b"", b"no json", b"[]", b'{"model": 7}', b"{}"):
        assert read_model_call(post(body)) is None


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": None}, None),
        ({"max_tokens": "many"}, None),
        ({"max_tokens": -1}, None),
        ({}, None),
    ],
)
def test_limit_of_the_reply(fields: dict[str, object], limit: int | None) -> None:
    call = read_model_call(post({"model": "m", **fields}))
    assert call is not None
    assert call.max_output_tokens == limit


@pytest.mark.parametrize(
    ("timeouts", "timeout_s"),
    [
        ({"read": 7.5}, 7.5),
        ({"read": 7}, 7.0),
        ({"read": None}, None),
        ({}, None),
        (None, None),
        (5, None),
    ],
)
def test_time_out_of_the_caller(timeouts: object, timeout_s: float | None) -> None:
    call = read_model_call(post({"model": "m"}, timeout=timeouts))
    assert call is not None
    assert call.timeout_s == timeout_s


@pytest.mark.parametrize(
    ("fields", "path", "sent"),
    [
        ({"stream": True}, "chat/completions", {"include_usage": True}),
        ({"stream": True, "stream_options": None}, "completions", {"include_usage": True}),
        (
            {"stream": True, "stream_options": {"x": 1}},
            "chat/completions",
            {"x": 1, "include_usage": True},
        ),
    ],
)
def test_usage_is_asked_for_where_the_caller_did_not(
    fields: dict[str, object], path: str, sent: dict[str, object]
) -> None:
    body = {"model": "m", "messages": [{"content": 'ü\n"}'}], **fields}
    call = read_model_call(post(body, f"/v1/{path}"))
    assert call is not None
    assert call.adds_usage
    assert json.loads(call.content) == {**body, "stream_options": sent}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "chat/completions"),
        ({"stream": False}, "chat/completions"),
        ({"stream": True, "stream_options": {"include_usage": True}}, "chat/completions"),
        ({"stream": True}, "responses"),
        ({"stream": True}, "messages"),
    ],
)
def test_body_is_left_alone_everywhere_else(fields: dict[str, object], path: str) -> None:
    request = post({"model": "m", **fields}, f"/v1/{path}")
    call = read_model_call(request)
    assert call is not None
    assert not call.adds_usage
    assert call.content is request.content


def test_blank_after_the_body_does_no_harm() -> None:
    call = read_model_call(post(b'{"model": "m", "stream": true} \n'))
    assert call is not None
    assert json.loads(call.content)["stream_options"] == {"include_usage": True}


def test_inline_images_do_not_count_as_text() -> None:
    plain = read_model_call(post({"model": "m", "messages": ["", ""]}))
    image = "data:image/png;base64," + "A" * 400_000
    pictured = read_model_call(post({"model": "m", "messages": [image, image]}))
    assert plain is not None
    assert pictured is not None
    kept = 2 * len("data:image/png")
    assert pictured.input_chars == plain.input_chars + kept + 2 * INLINE_DATA_CHARS


def affinity(base_url: str = "http://gpu:8000", **headers: str) -> Affinity:
    return Affinity("b", base_url, headers, "hard")


def test_routed_request_leaves_the_callers_own_alone() -> None:
    request = post({"model": "m"}, "/v1/chat/completions?a=1&b=%20", timeout={"read": 5})
    request.headers["x-request-id"] = "the callers own"
    request.headers["x-session-id"] = "of somebody"
    before = request.headers.raw.copy()
    call = read_model_call(request)
    assert call is not None
    routed = routed_request(
        request,
        call,
        affinity(**{"x-pod": "7"}),
        {"X-Session-ID": "s", "x-request-id": "ours", "x-pod": "7", "traceparent": "00-1"},
    )
    assert str(routed.url) == "http://gpu:8000/v1/chat/completions?a=1&b=%20"
    assert routed.headers["host"] == "gpu:8000"
    assert routed.headers["x-session-id"] == "s"
    assert routed.headers["x-request-id"] == "the callers own"
    assert routed.headers["x-pod"] == "7"
    assert routed.headers["traceparent"] == "00-1"
    assert routed.headers["content-length"] == str(len(routed.content))
    assert routed.extensions == {"timeout": {"read": 5}}
    assert request.headers.raw == before
    assert str(request.url).startswith("http://own/")


@pytest.mark.parametrize(
    ("spent_s", "left_s"), [(0.1, 10.0), (4.0, 6.0), (10.0, 0.001), (99.0, 0.001)]
)
def test_hold_is_taken_off_the_read_time_out(spent_s: float, left_s: float) -> None:
    timeouts = {"connect": 5.0, "read": 10.0}
    request = post({}, timeout=timeouts)
    spend_timeout(request, spent_s)
    assert request.extensions["timeout"] == {"connect": 5.0, "read": left_s}
    assert timeouts["read"] == 10.0


@pytest.mark.parametrize("timeouts", [None, {"read": None}, {}])
def test_no_time_out_stays_none(timeouts: object) -> None:
    request = post({}, timeout=timeouts)
    spend_timeout(request, 60.0)
    assert request.extensions["timeout"] == timeouts
