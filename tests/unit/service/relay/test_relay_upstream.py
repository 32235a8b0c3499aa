"""Which headers pass, and which do not."""

import asyncio

import pytest
from relay_stubs import RelayBackendStub

from tao_coordinator.config import BackendConfig
from tao_coordinator.errors import RequestError
from tao_coordinator.service.relay.upstream import (
    BackendFailed,
    Upstream,
    passed_headers,
    sent_headers,
)

PLAIN = BackendConfig(backend_id="a", base_url="http://a")
KEYED = BackendConfig(backend_id="a", base_url="http://a", api_key="behind")


def sent(
    raw: list[tuple[bytes, bytes]],
    backend: BackendConfig | None = PLAIN,
    affinity: dict[str, str] | None = None,
    *,
    hides_credentials: bool = False,
) -> dict[str, str]:
    headers = sent_headers(
        raw, backend, affinity or {}, "ours-1", hides_credentials=hides_credentials
    )
    assert headers.pop("content-type") == "application/json"
    assert headers.pop("accept-encoding") == "identity"
    return headers


@pytest.mark.parametrize(
    "name",
    [
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"upgrade",
        b"proxy-authorization",
        b"proxy-connection",
        b"expect",
        b"cookie",
        b"x-tao-session",
        b"x-tao-protocol",
    ],
)
def test_header_of_this_hop_stays(name: bytes) -> None:
    assert sent([(name, b"x")]) == {"x-request-id": "ours-1"}


def test_header_that_connection_names_stays() -> None:
    raw = [(b"x-a", b"1"), (b"connection", b"close, X-A ,x-b"), (b"x-b", b"2"), (b"x-c", b"3")]
    assert sent(raw) == {"x-c": "3", "x-request-id": "ours-1"}


def test_request_id_and_trace_pass() -> None:
    raw = [(b"x-request-id", b"theirs"), (b"traceparent", b"00-1"), (b"tracestate", b"a=1")]
    assert sent(raw) == {"x-request-id": "theirs", "traceparent": "00-1", "tracestate": "a=1"}


def test_lines_of_one_list_become_one() -> None:
    raw = [(b"tracestate", b"a=1"), (b"anthropic-beta", b"x"), (b"tracestate", b"b=2")]
    assert sent(raw)["tracestate"] == "a=1, b=2"


@pytest.mark.parametrize(
    ("backend", "hides", "authorization", "key"),
    [
        (PLAIN, False, "Bearer theirs", "theirs"),
        (PLAIN, True, None, None),
        (KEYED, False, "Bearer behind", None),
        (KEYED, True, "Bearer behind", None),
        (None, True, None, None),
    ],
)
def test_credentials(
    backend: BackendConfig | None, hides: bool, authorization: str | None, key: str | None
) -> None:
    raw = [(b"authorization", b"Bearer theirs"), (b"x-api-key", b"theirs")]
    headers = sent(raw, backend, hides_credentials=hides)
    assert headers.get("authorization") == authorization
    assert headers.get("x-api-key") == key


def test_affinity_takes_the_clients_place() -> None:
    headers = sent([(b"x-session-id", b"theirs")], affinity={"X-Session-ID": "s1"})
    assert headers["x-session-id"] == "s1"


def test_value_that_would_come_out_otherwise_is_left_out() -> None:
    assert "x-odd" not in sent([(b"x-odd", b"\xff\xfe")])
    assert sent([(b"x-name", "zo\u00eb".encode())])["x-name"] == "zo\u00eb"


def test_reply_headers() -> None:
    raw = [
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"5"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"keep-alive, X-Hop"),
        (b"X-Hop", b"1"),
        (b"X-Tao-Receipt", b"forged"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
    ]
    kept = [
        (b"content-type", b"application/json"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
    ]
    assert passed_headers(raw, keeps_length=False) == kept
    odd = [(b"x-odd", b"a\x01b"), (b"x-tab", b"a\tb"), (b"x-latin", b"\xe4")]
    assert passed_headers(odd, keeps_length=False) == odd[1:]
    assert (b"content-length", b"5") in passed_headers(raw, keeps_length=True)


def send(url: str, headers: dict[str, str]) -> Exception:
    async def body() -> Exception:
        upstream = Upstream()
        try:
            await upstream.send("POST", url, headers, b"{}")
        except (BackendFailed, RequestError) as error:
            return error
        finally:
            await upstream.close()
        raise AssertionError("it was sent")

    return asyncio.run(body())


def test_header_that_http_forbids_is_no_backends_failure() -> None:
    with RelayBackendStub() as stub:
        error = send(f"{stub.url}/v1/x", {"x-a": "a\nb"})
        assert stub.requests == []
    assert isinstance(error, RequestError)
    assert error.status == 400


def test_refused_connection_was_not_reached() -> None:
    error = send("http://127.0.0.1:1/v1/x", {})
    assert isinstance(error, BackendFailed)
    assert not error.was_reached


def test_reply_that_is_no_http_is_told_in_a_few_words() -> None:
    with RelayBackendStub() as stub:
        stub.fault = "garbage"
        error = send(f"{stub.url}/v1/x", {})
    assert isinstance(error, BackendFailed)
    assert error.was_reached
    assert str(error).startswith("its reply is no HTTP: ")
    assert stub.url not in str(error)
    assert "\n" not in str(error)
