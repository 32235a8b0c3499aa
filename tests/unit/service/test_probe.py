"""One look at a backend that works, lies, stalls, overflows, changes or is not there."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from tao_coordinator.config import BackendConfig
from tao_coordinator.service import probe
from tao_coordinator.service.probe import Look, Probe, ProbeError

ROOT = "http://gpu-0:8000/root"
PAGE = 'vllm:cache_config_info{kv_cache_size_tokens="4096"} 1\nvllm:num_requests_running 2\n'
MODELS = '{"data":[{"id":"qwen3"}]}'
Handler = Callable[[httpx2.Request], httpx2.Response]


def config(**more: object) -> BackendConfig:
    return BackendConfig(backend_id="gpu-0", base_url=ROOT, **more)  # pyright: ignore


def healthy(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, text=PAGE if request.url.path.endswith("/metrics") else MODELS)


def serving(pages: dict[str, str], paths: list[str] | None = None) -> Handler:
    def handler(request: httpx2.Request) -> httpx2.Response:
        path = request.url.raw_path.decode().removeprefix("/root")
        if paths is not None:
            paths.append(path)
        return httpx2.Response(200 if path in pages else 404, text=pages.get(path, "no"))

    return handler


def look(
    handler: Handler, times: int = 1, backend: BackendConfig | None = None
) -> list[Look | ProbeError]:
    async def body() -> list[Look | ProbeError]:
        looks: list[Look | ProbeError] = []
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
            one = Probe(backend or config(), client)
            for _ in range(times):
                try:
                    looks.append(await one.look())
                except ProbeError as error:
                    looks.append(error)
        return looks

    return asyncio.run(body())


def good(handler: Handler, backend: BackendConfig | None = None) -> Look:
    (one,) = look(handler, backend=backend)
    assert isinstance(one, Look)
    return one


def test_models_are_asked_only_now_and_then() -> None:
    paths: list[str] = []
    first, second = look(serving({"/metrics": PAGE, "/v1/models": MODELS}, paths), times=2)
    assert isinstance(first, Look)
    assert isinstance(second, Look)
    assert (first.kind, first.models, second.models) == ("vllm", ("qwen3",), None)
    assert first.reading == second.reading
    assert first.reading.capacity_tokens == 4096
    assert paths == ["/metrics", "/v1/models", "/metrics"]


def test_models_and_engine_are_asked_again_after_an_outage() -> None:
    pages = {"/metrics": PAGE, "/v1/models": MODELS}
    states = iter([pages, {}, {"/metrics": "sglang:num_running_reqs 1\n", "/v1/models": MODELS}])
    current: list[dict[str, str]] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/metrics"):
            current[:] = [next(states)]
        return serving(current[0])(request) if current[0] else httpx2.Response(500)

    looks = look(handler, times=3)
    assert str(looks[1]) == "HTTP 500 on /metrics"
    assert isinstance(looks[2], Look)
    assert (looks[2].kind, looks[2].models) == ("sglang", ("qwen3",))


def test_better_page_is_taken_where_there_are_two() -> None:
    pages = {
        "/metrics": '[{"iter": 1, "numActiveRequests": 9}]',
        "/prometheus/metrics": "trtllm_num_requests_running 2\n",
    }
    one = good(serving(pages))
    assert (one.kind, one.reading.running) == ("tensorrt-llm", 2)
    del pages["/prometheus/metrics"]
    assert good(serving(pages)).reading.running == 9


def test_sglang_without_metrics_is_read_from_its_loads() -> None:
    loads = '{"loads": [{"dp_rank": 0, "num_running_reqs": 4, "max_total_num_tokens": 1000}]}'
    one = good(serving({"/v1/loads?include=core,memory,queues": loads}))
    assert (one.kind, one.reading.running, one.reading.capacity_tokens) == ("sglang", 4, 1000)
    assert one.source is not None
    assert "--enable-metrics" in one.source.hint


def test_backend_without_metrics_is_alive_and_tells_nothing() -> None:
    paths: list[str] = []
    looks = look(serving({"/v1/models": MODELS}, paths), times=3)
    assert all(isinstance(one, Look) and one.kind == "openai" for one in looks)
    # Every page is looked for once; after that the model list shows that it lives.
    assert paths.count("/metrics") == 1
    assert paths[-1] == "/v1/models"


def test_backend_that_answers_404_to_everything_is_alive() -> None:
    assert good(serving({})).models == ()


def test_said_kind_saves_the_search() -> None:
    paths: list[str] = []
    good(serving({"/v1/models": MODELS}, paths), config(engine_kind="openai"))
    assert paths == ["/v1/models"]


def test_page_of_a_gateway_says_nothing_of_one_engine() -> None:
    pages = {"/metrics": PAGE, "/v1/models": MODELS}
    behind = config(gateway="smg", gateway_target="0")
    assert good(serving(pages), behind).reading.running is None


def test_metrics_may_stand_elsewhere() -> None:
    seen: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return healthy(request)

    behind = config(gateway="smg", gateway_target="0", metrics_url="http://10.0.0.1:9090/")
    assert good(handler, behind).reading.running == 2
    assert seen == ["http://10.0.0.1:9090/metrics", ROOT + "/v1/models"]


def test_credential_is_shown() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["authorization"] == "Bearer secret"
        return healthy(request)

    good(handler, config(api_key="secret"))


def test_sleeping_engine_is_no_answer() -> None:
    asleep = PAGE + 'vllm:engine_sleep_state{sleep_state="awake"} 0\n'
    (error,) = look(serving({"/metrics": asleep, "/v1/models": MODELS}))
    assert isinstance(error, ProbeError)
    assert "asleep" in str(error)


def test_model_list_that_is_none_serves_everything_and_is_told() -> None:
    one = good(serving({"/metrics": PAGE, "/v1/models": "<html>"}))
    assert one.models == ()
    assert "/v1/models" in one.problem


@pytest.mark.parametrize(
    ("error", "reason", "is_refused"),
    [
        (httpx2.ConnectError("All connection attempts failed"), "All connection", False),
        (httpx2.RemoteProtocolError("peer closed\nmore"), "peer closed", False),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused", True),
    ],
)
def test_failure_has_a_reason_of_one_line(error: Exception, reason: str, is_refused: bool) -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise error

    (told,) = look(handler)
    assert isinstance(told, ProbeError)
    assert str(told).startswith(reason)
    assert "\n" not in str(told)
    assert told.is_refused == is_refused


class Endless(httpx2.AsyncByteStream):
    """Never stops sending; slowly, or as fast as it can."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(self._delay_s)
            yield b"vllm:num_requests_running 1\n" * 1_000


@pytest.mark.parametrize(("delay_s", "reason"), [(0.0, "larger than"), (0.02, "no answer within")])
def test_endless_page_is_cut_off(
    delay_s: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "PAGE_BYTES_MAX", 2_000_000)
    monkeypatch.setattr(probe, "POLL_TIMEOUT_S", 0.5)
    (error,) = look(lambda request: httpx2.Response(200, stream=Endless(delay_s)))
    assert isinstance(error, ProbeError)
    assert reason in str(error)


def test_stalling_backend_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "POLL_TIMEOUT_S", 0.02)

    async def body() -> None:
        async def handler(request: httpx2.Request) -> httpx2.Response:
            await asyncio.sleep(60)
            return httpx2.Response(200)

        async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
            with pytest.raises(ProbeError, match=r"no answer within 0\.02 s"):
                await Probe(config(), client).look()

    asyncio.run(body())


def test_compressed_page_is_not_unpacked() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["accept-encoding"] == "identity"
        packed = gzip.compress(PAGE.encode())
        stream = httpx2.ByteStream(packed)
        return httpx2.Response(200, stream=stream, headers={"content-encoding": "gzip"})

    (error,) = look(handler)
    assert isinstance(error, ProbeError)
    assert "gzip" in str(error)
