"""Relayed calls under an engine that plays a script, to a real backend on a socket."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import sdk_api_stubs as api
from relay_stubs import MODEL, RelayBackendStub
from sdk_stubs import free_url
from service_fakes import FakeEngine, Peer, Reply, hold
from starlette.types import Message

from tao_coordinator.config import BackendConfig, CoordinatorConfig
from tao_coordinator.core.effects import Effect, Grant
from tao_coordinator.core.events import (
    BackendUnreachable,
    Event,
    LeaseReleased,
    LeaseRenewed,
    SessionEnded,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.service.app import build_app
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.relay import leasing, routes
from tao_coordinator.service.relay.routes import Relay
from tao_coordinator.service.runtime import Runtime

CHAT: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 4000}]}
SESSION = {"x-session-id": "s1"}


@dataclass
class ScriptedEngine(FakeEngine):
    """Grants everything on `urls`, one after the other; the last is repeated."""

    urls: list[str] = field(default_factory=list[str])
    served_by_names: tuple[str, ...] = ()
    is_broken: bool = False
    holds: bool = False

    def step(self, now_s: float, events: Sequence[Event]) -> tuple[list[Effect], float | None]:
        if self.is_broken:
            raise RuntimeError("a bug")
        effects, wake_up_s = super().step(now_s, events)
        return [self._placed(effect) for effect in effects], wake_up_s

    def _placed(self, effect: Effect) -> Effect:
        if not isinstance(effect, Grant):
            return effect
        if self.holds:
            return hold(effect.request_id)
        url = self.urls.pop(0) if len(self.urls) > 1 else self.urls[0]
        return replace(effect, base_url=url, served_by_names=self.served_by_names)

    @property
    def releases(self) -> list[LeaseReleased]:
        return self.events_of(LeaseReleased)


class Host:
    """The service with its relay, in one event loop."""

    def __init__(self, engine: ScriptedEngine, backends: Mapping[str, BackendConfig]) -> None:
        self.engine = engine
        self.metrics = metrics = ServiceMetrics()
        self.runtime = Runtime(engine, metrics)
        config = CoordinatorConfig(
            backends=(BackendConfig(backend_id="gpu-0", base_url="http://gpu-0"),),
            relay_keep_alive_s=0.05,
        )
        self.relay = Relay(self.runtime, backends, config, metrics)
        self.app = build_app(self.runtime, metrics, None, self.relay)

    def peer(
        self,
        body: Mapping[str, object] = CHAT,
        headers: Mapping[str, str] = SESSION,
        path: str = "/v1/chat/completions",
    ) -> Peer:
        return Peer(self.app, "POST", path, body, headers)

    async def post(self, body: Mapping[str, object] = CHAT, **options: Any) -> Reply:
        reply = await self.peer(body, **options).exchange()
        assert reply is not None
        return reply


def run(
    engine: ScriptedEngine,
    body: Callable[[Host], Awaitable[None]],
    backends: Mapping[str, BackendConfig] | None = None,
) -> None:
    async def bounded() -> None:
        host = Host(engine, backends or {})
        async with asyncio.timeout(20):
            try:
                await body(host)
            finally:
                host.runtime.close()
                await host.relay.close()

    asyncio.run(bounded())


def test_release_tells_what_the_reply_said() -> None:
    with RelayBackendStub() as stub:
        engine = ScriptedEngine(urls=[stub.url])

        async def body(host: Host) -> None:
            for path in ("/v1/responses", "/v1/messages", "/v1/completions"):
                for stream in (False, True):
                    reply = await host.post(CHAT | {"stream": stream}, path=path)
                    assert reply.status == 200
                    released = engine.releases[-1]
                    assert released.outcome is TurnOutcome.COMPLETED
                    assert {
                        "input_tokens": released.input_tokens,
                        "cached_tokens": released.cached_tokens,
                        "output_tokens": released.output_tokens,
                    } == api.COUNTED
                    assert (released.ttft_s is not None) == stream
                    assert released.duration_s is not None

        run(engine, body)
        assert len(engine.releases) == 6, "each lease is given back once"
        # From the second turn on the prompt is known: the last one, for the same characters.
        asked = [turn.input_tokens for turn in engine.events_of(TurnRequested)]
        assert asked[1:] == [api.PROMPT_TOKENS] * 5


def test_engine_that_fails_lets_calls_through() -> None:
    with RelayBackendStub() as stub:
        engine = ScriptedEngine(is_broken=True)
        dead = BackendConfig(backend_id="dead", base_url=free_url())
        alive = BackendConfig(backend_id="alive", base_url=stub.url)

        async def body(host: Host) -> None:
            for _ in range(4):
                reply = await host.post()
                assert reply.status == 200
                receipt = json.loads(reply.headers["x-tao-receipt"])
                assert receipt == {"path": "fail-open", "backend_id": "alive"}
            page = host.metrics.page().decode()
            # In turn: each call met the dead one first.
            assert "tao_relay_fail_open_total 8.0" in page
            assert 'tao_relay_backend_failures_total{backend="dead"} 4.0' in page

        run(engine, body, {"dead": dead, "alive": alive})
        assert len(stub.calls) == 4


def test_engine_that_fails_without_any_backend_is_an_error() -> None:
    async def body(host: Host) -> None:
        reply = await host.post()
        assert (reply.status, reply.json()["error"]["type"]) == (500, "internal_error")

    run(ScriptedEngine(is_broken=True), body)


def test_call_that_a_backend_may_have_died_of_is_not_shown_to_all() -> None:
    with RelayBackendStub() as stub:
        stub.fault = "reset"
        engine = ScriptedEngine(urls=[stub.url])

        async def body(host: Host) -> None:
            reply = await host.post()
            assert (reply.status, reply.json()["error"]["type"]) == (502, "backend_failed")
            assert reply.json()["error"]["message"].startswith("backend gpu-0 failed: ")
            assert reply.headers["retry-after"] == "1"

        run(engine, body)
        assert len(stub.calls) == 2
        assert [one.outcome for one in engine.releases] == [TurnOutcome.ERROR] * 2
        assert len(engine.events_of(BackendUnreachable)) == 2


def test_backend_that_was_not_reached_costs_a_lease_and_no_error() -> None:
    with RelayBackendStub() as stub:
        engine = ScriptedEngine(urls=[free_url(), free_url(), free_url(), stub.url])

        async def body(host: Host) -> None:
            reply = await host.post()
            assert reply.status == 200
            assert json.loads(reply.headers["x-tao-receipt"])["attempt"] == 4

        run(engine, body)
        turns = engine.events_of(TurnRequested)
        assert len({turn.request_id for turn in turns}) == 4
        outcomes = [one.outcome for one in engine.releases]
        assert outcomes == [TurnOutcome.ERROR] * 3 + [TurnOutcome.COMPLETED]


def test_attempts_are_bounded() -> None:
    engine = ScriptedEngine(urls=[free_url()])

    async def body(host: Host) -> None:
        assert (await host.post()).status == 502

    run(engine, body)
    assert len(engine.events_of(TurnRequested)) == 4


def test_backend_that_dies_before_its_first_token_costs_no_error() -> None:
    with RelayBackendStub() as dying, RelayBackendStub() as alive:
        dying.fault = "cut-prefill"
        engine = ScriptedEngine(urls=[dying.url, alive.url])

        async def body(host: Host) -> None:
            reply = await host.post(CHAT | {"stream": True})
            assert reply.status == 200
            assert reply.body.endswith(b"data: [DONE]\n\n")

        run(engine, body)
        outcomes = [one.outcome for one in engine.releases]
        assert outcomes == [TurnOutcome.ERROR, TurnOutcome.COMPLETED]


def test_who_served_is_told_with_the_release() -> None:
    with RelayBackendStub() as stub:
        stub.reply_headers = {"x-served-by": "gpu-7", "x-other": "1"}
        engine = ScriptedEngine(urls=[stub.url], served_by_names=("x-served-by", "x-missing"))

        async def body(host: Host) -> None:
            reply = await host.post(path="/v1/embeddings")
            assert reply.headers["x-other"] == "1"

        run(engine, body)
        assert engine.releases[0].served_by == (("x-served-by", "gpu-7"),)
        assert len(engine.events_of(SessionEnded)) == 1


def test_running_leases_are_renewed_and_finished_ones_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "RENEWAL_S", 0.05)
    with RelayBackendStub() as stub:
        stub.fault = "endless"
        engine = ScriptedEngine(urls=[stub.url])

        async def body(host: Host) -> None:
            peer = host.peer(CHAT | {"stream": True})
            call = asyncio.create_task(peer.exchange())
            await asyncio.sleep(0.5)
            assert len(engine.events_of(LeaseRenewed)) >= 3
            peer.hang_up()
            await call
            assert engine.releases[-1].outcome is TurnOutcome.CANCELLED
            await asyncio.sleep(0.1)
            renewed = len(engine.events_of(LeaseRenewed))
            await asyncio.sleep(0.2)
            assert len(engine.events_of(LeaseRenewed)) == renewed

        run(engine, body)


@pytest.mark.parametrize("stream", [False, True])
def test_client_that_leaves_while_held_takes_its_turn_back(stream: bool) -> None:
    with RelayBackendStub() as stub:
        engine = ScriptedEngine(urls=[stub.url], holds=True)

        async def body(host: Host) -> None:
            peer = host.peer(CHAT | {"stream": stream})
            call = asyncio.create_task(peer.exchange())
            await asyncio.sleep(0.2)
            peer.hang_up()
            await call

        run(engine, body)
        assert engine.events_of(TurnAbandoned)
        assert stub.calls == []


def test_held_calls_hear_of_the_shutdown_in_their_own_way() -> None:
    engine = ScriptedEngine(urls=["http://127.0.0.1:1"], holds=True)

    async def body(host: Host) -> None:
        calls = [
            asyncio.create_task(host.post(CHAT | {"stream": stream}, path=path))
            for stream in (False, True)
            for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages")
        ]
        await asyncio.sleep(0.2)
        host.runtime.begin_shutdown()
        replies = [await call for call in calls]
        assert [reply.status for reply in replies] == [503] * 3 + [200] * 3
        for reply in replies:
            assert b"shutting down" in reply.body
        assert replies[3].body.endswith(b"\n\n")
        assert b"event: error\n" in replies[4].body
        assert b"event: error\n" in replies[5].body
        assert (await host.post()).status == 503

    run(engine, body)


def test_bodies_on_their_way_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODIES_BYTES_MAX", 10_000)
    with RelayBackendStub() as stub:
        engine = ScriptedEngine(urls=[stub.url], holds=True)

        async def body(host: Host) -> None:
            peers = [host.peer() for _ in range(2)]
            calls = [asyncio.create_task(peer.exchange()) for peer in peers]
            await asyncio.sleep(0.1)
            reply = await host.post()
            assert (reply.status, reply.json()["error"]["type"]) == (429, "relay_full")
            for peer in peers:
                peer.hang_up()
            await asyncio.gather(*calls)
            engine.holds = False
            assert (await host.post()).status == 200

        run(engine, body)


def test_body_that_trickles_in_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BODY_S_MAX", 0.1)

    async def receive_nothing() -> Message:
        await asyncio.sleep(60)
        raise AssertionError("unreachable")

    async def body(host: Host) -> None:
        peer = host.peer()
        monkeypatch.setattr(peer, "_receive", receive_nothing)
        reply = await peer.exchange()
        assert reply is not None
        assert (reply.status, reply.json()["error"]["type"]) == (408, "request_timeout")

    run(ScriptedEngine(urls=["http://127.0.0.1:1"]), body)


def test_connections_to_a_backend_are_used_again() -> None:
    with RelayBackendStub() as stub:
        engine = ScriptedEngine(urls=[stub.url])

        async def body(host: Host) -> None:
            for stream in (False, True) * 4:
                assert (await host.post(CHAT | {"stream": stream})).status == 200

        run(engine, body)
        assert len(stub.peers) == 1


def test_models_are_asked_once_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    with RelayBackendStub() as one, RelayBackendStub() as two:
        backends = {
            name: BackendConfig(backend_id=name, base_url=url)
            for name, url in (("a", one.url), ("b", two.url), ("dead", free_url()))
        }

        async def body(host: Host) -> None:
            peers = [Peer(host.app, "GET", "/v1/models") for _ in range(5)]
            replies = await asyncio.gather(*(peer.exchange() for peer in peers))
            for reply in replies:
                assert reply is not None
                assert reply.json()["data"] == [{"id": MODEL, "max_model_len": 9}]

        run(ScriptedEngine(), body, backends)
        assert len(one.requests) == len(two.requests) == 1


def test_models_of_nobody_are_an_error() -> None:
    async def body(host: Host) -> None:
        reply = await Peer(host.app, "GET", "/v1/models").exchange()
        assert reply is not None
        assert (reply.status, reply.json()["error"]["type"]) == (503, "no_healthy_backend")

    run(ScriptedEngine(), body)
