"""One poll of a backend that works, lies, stalls, overflows or is not there."""

import asyncio
from collections.abc import Callable, Sequence

import httpx2
import pytest

from tao_coordinator.adapters import vllm
from tao_coordinator.config import BackendConfig
from tao_coordinator.core.events import BackendSampled, BackendUnreachable, Event
from tao_coordinator.errors import EngineError
from tao_coordinator.service import poller
from tao_coordinator.service.poller import BackendPoller

BACKEND = BackendConfig(backend_id="gpu-0", base_url="http://gpu-0:8000/root")
PAGE = 'vllm:cache_config_info{kv_cache_size_tokens="4096"} 1\nvllm:num_requests_running 2\n'
MODELS = '{"data":[{"id":"qwen3"}]}'
Handler = Callable[[httpx2.Request], httpx2.Response]


def healthy(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, text=PAGE if request.url.path.endswith("/metrics") else MODELS)


def poll(handler: Handler, times: int = 1) -> list[Event]:
    async def body() -> list[Event]:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
            backend_poller = BackendPoller(BACKEND, client, lambda _: None)
            return [await backend_poller.poll() for _ in range(times)]

    return asyncio.run(body())


def test_models_are_asked_only_now_and_then() -> None:
    paths: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        return healthy(request)

    first, second = poll(handler, times=2)
    assert first == BackendSampled(
        backend_id="gpu-0", capacity_tokens=4096, models=("qwen3",), running=2
    )
    assert second == BackendSampled(backend_id="gpu-0", capacity_tokens=4096, running=2)
    assert paths == ["/root/metrics", "/root/v1/models", "/root/metrics"]


def test_models_are_asked_again_after_an_outage() -> None:
    states = iter([healthy, failing(500), healthy])
    current: list[Handler] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/metrics"):
            current[:] = [next(states)]
        return current[0](request)

    events = poll(handler, times=3)
    assert events[1] == BackendUnreachable(backend_id="gpu-0", reason="HTTP 500 on /metrics")
    assert isinstance(events[2], BackendSampled)
    assert events[2].models == ("qwen3",)


def failing(status: int) -> Handler:
    return lambda request: httpx2.Response(status, text="no")


def test_backend_without_metrics_is_alive_and_tells_nothing() -> None:
    assert poll(failing(404)) == [BackendSampled(backend_id="gpu-0", models=())]


def test_model_list_that_is_none_serves_everything() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, text=PAGE if "metrics" in request.url.path else "<html>")

    (event,) = poll(handler)
    assert isinstance(event, BackendSampled)
    assert event.models == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (httpx2.ConnectError("All connection attempts failed"), "All connection attempts failed"),
        (httpx2.RemoteProtocolError("peer closed\nmore"), "peer closed"),
        (ConnectionResetError(104, "Connection reset by peer"), "Connection reset by peer"),
    ],
)
def test_failure_has_a_reason_of_one_line(error: Exception, reason: str) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise error

    assert poll(handler) == [BackendUnreachable(backend_id="gpu-0", reason=reason)]


def test_stalling_backend_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL_TIMEOUT_S", 0.02)

    async def body() -> Event:
        async def handler(request: httpx2.Request) -> httpx2.Response:
            await asyncio.sleep(60)
            return httpx2.Response(200)

        async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
            return await BackendPoller(BACKEND, client, lambda _: None).poll()

    assert asyncio.run(body()) == BackendUnreachable(
        backend_id="gpu-0", reason="no answer within 0.02 s"
    )


def test_endless_page_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm, "PAGE_BYTES_MAX", 100)
    (event,) = poll(lambda request: httpx2.Response(200, text="#" * 200))
    assert isinstance(event, BackendUnreachable)
    assert "larger than 100 bytes" in event.reason


def test_run_goes_on_after_failed_steps_and_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "POLL_INTERVAL_S", 0.0)
    seen: list[Event] = []
    first_polls: list[None] = []

    def explode_second(request: httpx2.Request) -> httpx2.Response:
        if len(seen) == 1:
            raise RuntimeError("a bug")
        return healthy(request)

    def dispatch(events: Sequence[Event]) -> None:
        seen.extend(events)
        if len(seen) == 3:
            raise asyncio.CancelledError
        raise EngineError("the step failed")

    async def body() -> None:
        transport = httpx2.MockTransport(explode_second)
        async with httpx2.AsyncClient(transport=transport) as client:
            await BackendPoller(BACKEND, client, dispatch).run(lambda: first_polls.append(None))

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(body())
    kinds = [type(event) for event in seen]
    assert kinds == [BackendSampled, BackendUnreachable, BackendSampled]
    assert len(first_polls) == 2
