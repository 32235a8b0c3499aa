"""The HTTP surface over a scripted engine: `docs/protocol.md`, line by line."""

import asyncio
import json
from collections.abc import Mapping

import pytest
from google.rpc.status_pb2 import Status
from service_fakes import FakeEngine, Peer, Reply, Service, backend_view, call, grant, hold, reject
from starlette.types import Message

from tao_coordinator.core.effects import RejectReason
from tao_coordinator.core.events import (
    LeaseReleased,
    PollEnded,
    PollStarted,
    SessionEnded,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.service import bodies, view_routes
from tao_coordinator.service.runtime import Runtime

ASK = {"request_id": "r", "session_id": "s"}
PROTOBUF_HEADERS = {"content-type": "application/x-protobuf"}


def test_granted_turn_is_answered_as_the_protocol_says() -> None:
    reply = call("POST", "/tao/v1/leases", ASK)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "lease_id": "lease-r",
        "start_within_s": 5.0,
        "affinity": {
            "backend_id": "gpu-0",
            "base_url": "http://gpu-0:8000",
            "headers": {"X-Session-ID": "s"},
            "strength": "hard",
        },
        "receipt": {
            "policy": "fake",
            "path": "bypass",
            "reason": "resident",
            "hold_s": 0.0,
            "cache_credit_tokens": 7,
            "plan_id": None,
        },
    }


def test_held_turn_without_wait_is_told_at_once() -> None:
    engine = FakeEngine(answers={"r": hold("r")})
    reply = call("POST", "/tao/v1/leases", ASK, engine=engine)
    assert reply.status == 202
    assert reply.json() == {"queue_position": 3, "estimated_wait_s": 4.5, "retry_after_s": 0}
    assert json.loads(reply.headers["x-tao-receipt"]) == {"path": "held"}
    assert [type(event) for event in engine.events] == [TurnRequested, PollEnded]


def test_long_poll_gets_the_grant_of_a_later_step() -> None:
    async def body() -> None:
        service = Service(FakeEngine(answers={"r": hold("r")}))
        peer = service.peer("POST", "/tao/v1/leases", ASK, {"prefer": "wait=10"})
        exchange = asyncio.create_task(peer.exchange())
        await asyncio.sleep(0.01)
        assert service.engine.events[-1] == PollStarted(request_id="r")
        service.engine.next_effects = [grant("r", hold_s=2.0)]
        service.runtime.dispatch(())
        reply = await exchange
        assert reply is not None
        assert (reply.status, reply.json()["receipt"]["hold_s"]) == (200, 2.0)

    asyncio.run(body())


def test_long_poll_that_ends_held_gives_the_place_of_now() -> None:
    engine = FakeEngine(answers={"r": hold("r")})
    reply = call("POST", "/tao/v1/leases", ASK, {"prefer": "wait=0.01"}, engine)
    assert reply.status == 202
    assert [type(event) for event in engine.events] == [
        TurnRequested,
        PollStarted,
        TurnRequested,
        PollEnded,
    ]


def test_hang_up_during_a_long_poll_takes_the_turn_back_and_answers_nobody() -> None:
    async def body() -> None:
        service = Service(FakeEngine(answers={"r": hold("r")}))
        peer = service.peer("POST", "/tao/v1/leases", ASK, {"prefer": "wait=10"})
        exchange = asyncio.create_task(peer.exchange())
        await asyncio.sleep(0.01)
        peer.hang_up()
        assert await exchange is None
        assert service.engine.events_of(TurnAbandoned) == [TurnAbandoned(request_id="r")]

    asyncio.run(body())


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (RejectReason.MODEL_NOT_SERVED, 404),
        (RejectReason.TOO_LARGE, 413),
        (RejectReason.QUEUE_FULL, 429),
        (RejectReason.WAITED_TOO_LONG, 429),
        (RejectReason.NO_HEALTHY_BACKEND, 503),
        (RejectReason.SESSION_ENDED, 409),
        (RejectReason.LEASE_EXPIRED, 409),
    ],
)
def test_refusal_has_its_status_and_type(reason: RejectReason, status: int) -> None:
    retry_after_s = 2.5 if status == 429 else None
    engine = FakeEngine(answers={"r": reject("r", reason, retry_after_s)})
    reply = call("POST", "/tao/v1/leases", ASK, engine=engine)
    assert (reply.status, reply.error_type) == (status, reason.value)
    assert reply.json()["error"].get("retry_after_s") == retry_after_s
    assert reply.headers.get("retry-after") == ("3" if status == 429 else None)


def test_every_reject_reason_has_a_status() -> None:
    for reason in RejectReason:
        engine = FakeEngine(answers={"r": reject("r", reason)})
        assert 400 <= call("POST", "/tao/v1/leases", ASK, engine=engine).status < 600


def test_delete_release_and_end_are_idempotent() -> None:
    async def body() -> None:
        service = Service()
        release = {"outcome": "completed", "input_tokens": 9}
        for _ in range(2):
            assert (await service.call("DELETE", "/tao/v1/leases/r")).status == 204
            reply = await service.call("POST", "/tao/v1/leases/l1/release", release)
            assert (reply.status, reply.body) == (204, b"")
            assert (await service.call("POST", "/tao/v1/sessions/s/end")).status == 204
        events = service.engine.events
        assert events == 2 * [
            TurnAbandoned(request_id="r"),
            LeaseReleased(lease_id="l1", outcome=TurnOutcome.COMPLETED, input_tokens=9),
            SessionEnded(session_id="s"),
        ]

    asyncio.run(body())


def test_renewal_of_a_lease_and_of_none() -> None:
    async def body() -> None:
        service = Service()
        await service.call("POST", "/tao/v1/leases", ASK)
        assert (await service.call("POST", "/tao/v1/leases/lease-r/renew")).status == 204
        reply = await service.call("POST", "/tao/v1/leases/lease-x/renew")
        assert (reply.status, reply.error_type) == (404, "unknown_lease")

    asyncio.run(body())


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "type_"),
    [
        ("POST", "/tao/v1/leases", b"{", {}, 400, "malformed_request"),
        ("POST", "/tao/v1/leases", b"{}", {}, 400, "malformed_request"),
        ("POST", "/tao/v1/leases/l/release", b"{}", {}, 400, "malformed_request"),
        ("POST", "/tao/v1/leases/a b/renew", b"", {}, 400, "malformed_request"),
        ("DELETE", "/tao/v1/leases/a b", b"", {}, 400, "malformed_request"),
        ("POST", "/tao/v1/sessions/" + "x" * 200 + "/end", b"", {}, 400, "malformed_request"),
        ("POST", "/tao/v1/leases", ASK, {"x-tao-protocol": "2"}, 400, "incompatible_client"),
        (
            "POST",
            "/tao/v1/leases",
            ASK,
            {"content-type": "text/plain"},
            415,
            "unsupported_media_type",
        ),
        # A browser sends these across sites without asking.
        ("POST", "/tao/v1/leases", ASK, {"content-type": ""}, 415, "unsupported_media_type"),
        ("POST", "/tao/v1/leases", b" " * (bodies.BODY_BYTES_MAX + 1), {}, 413, "body_too_large"),
        ("POST", "/tao/v1/leases", b"", {"content-length": "9" * 12}, 413, "body_too_large"),
        ("GET", "/tao/v1/leases", b"", {}, 405, "method_not_allowed"),
        ("PATCH", "/tao/v1/leases/x", b"", {}, 405, "method_not_allowed"),
        ("GET", "/tao/v1/nothing", b"", {}, 404, "not_found"),
        ("GET", "/tao/v1/state/", b"", {}, 404, "not_found"),
    ],
)
def test_error_has_one_shape(
    method: str,
    path: str,
    body: bytes | Mapping[str, object],
    headers: Mapping[str, str],
    status: int,
    type_: str,
) -> None:
    reply = call(method, path, body, headers)
    assert (reply.status, reply.error_type) == (status, type_)


def test_method_not_allowed_names_the_allowed_ones() -> None:
    assert call("PUT", "/tao/v1/leases").headers["allow"] == "POST"


def test_oversize_body_in_pieces_is_cut_off() -> None:
    async def body() -> None:
        peer = Service().peer(
            "POST", "/tao/v1/leases", b" " * (bodies.BODY_BYTES_MAX + 1), chunk_bytes=65_536
        )
        reply = await peer.exchange()
        assert reply is not None
        assert reply.error_type == "body_too_large"

    asyncio.run(body())


def test_body_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S_MAX", 0.01)

    class StalledPeer(Peer):
        async def _receive(self) -> Message:
            if len(self._chunks) > 1:
                return await super()._receive()
            return await asyncio.sleep(60, {"type": "http.disconnect"})

    async def exchange() -> Reply | None:
        app = Service().app
        return await StalledPeer(app, "POST", "/tao/v1/leases", b"{" * 10, chunk_bytes=5).exchange()

    reply = asyncio.run(exchange())
    assert reply is not None
    assert (reply.status, reply.error_type) == (408, "request_timeout")


def test_engine_failure_is_a_plain_500(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine(error=RuntimeError("secret detail"))
    reply = call("POST", "/tao/v1/leases", ASK, engine=engine)
    assert (reply.status, reply.error_type) == (500, "internal_error")
    assert b"secret" not in reply.body
    assert "secret detail" in caplog.text


def test_bug_in_a_handler_is_a_plain_500(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(self: Runtime, lease_id: str) -> bool:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(Runtime, "renew", explode)
    reply = call("POST", "/tao/v1/leases/l/renew")
    assert (reply.status, reply.error_type) == (500, "internal_error")
    assert b"secret" not in reply.body
    assert "secret detail" in caplog.text


def test_shutting_down_refuses_new_turns_and_says_not_ready() -> None:
    async def body() -> None:
        service = Service(FakeEngine(backends=(backend_view(),)))
        service.runtime.begin_shutdown()
        for method, path, ask in (("POST", "/tao/v1/leases", ASK), ("GET", "/readyz", {})):
            reply = await service.call(method, path, ask)
            assert (reply.status, reply.error_type) == (503, "shutting_down")
        assert not service.engine.events

    asyncio.run(body())


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Bearer", "Basic key", "key"])
def test_wrong_key_is_refused_everywhere_but_for_probes(authorization: str | None) -> None:
    headers = {} if authorization is None else {"authorization": authorization}
    for method, path in (("POST", "/tao/v1/leases"), ("GET", "/metrics"), ("GET", "/nowhere")):
        reply = call(method, path, b"", headers, api_key="key")
        assert (reply.status, reply.error_type) == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
    reply = call("POST", "/v1/logs", b"", headers | PROTOBUF_HEADERS, api_key="key")
    assert (reply.status, Status.FromString(reply.body).code) == (401, 16)
    assert call("GET", "/healthz", b"", headers, api_key="key").status == 200


def test_right_key_and_protocol_are_let_in() -> None:
    headers = {"authorization": "Bearer key", "x-tao-protocol": "1", "x-tao-client": "tao/0.1"}
    assert call("POST", "/tao/v1/leases", ASK, headers, api_key="key").status == 200


def test_state_shows_the_observation() -> None:
    state = call("GET", "/tao/v1/state", engine=FakeEngine(backends=(backend_view(),))).json()
    assert state["protocol"] == "1"
    assert state["policy"] == "fake"
    assert state["backends"][0]["capacity_tokens"] == 96_000
    assert state["counters"]["granted"] == {"resident": 2}
    assert state["sessions"] == state["held"] == []


def test_readiness_follows_the_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_routes, "READY_AGE_S_MAX", 0.0)

    async def body() -> None:
        service = Service(FakeEngine(backends=(backend_view(healthy=False),)))
        reply = await service.call("GET", "/readyz")
        assert (reply.status, reply.error_type) == (503, "no_healthy_backend")
        assert (await service.call("GET", "/healthz")).status == 200
        service.engine.backends += (backend_view("gpu-1"),)
        assert (await service.call("GET", "/readyz")).status == 200

    asyncio.run(body())


def test_index_points_at_endpoints_that_exist() -> None:
    async def body() -> None:
        service = Service()
        index = (await service.call("GET", "/")).json()
        assert len(index["endpoints"]) >= 10
        for endpoint in index["endpoints"]:
            method, path = endpoint.split()
            reply = await service.call(method, path.replace("{", "").replace("}", ""))
            assert reply.status != 405, endpoint
            assert b"not_found" not in reply.body, endpoint

    asyncio.run(body())
