"""What the SDK tells a coordinator, as real OTLP bytes and as captured events."""

import asyncio
import concurrent.futures
import time
from collections.abc import Iterator

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from sdk_stubs import CoordinatorStub, eventually, free_url

import tao_client as tao
from tao_client import _connection, _courier, semconv, testing


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "TAO_TOOL_KEYS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)
    testing.reset()
    yield
    testing.reset()


@pytest.fixture
def coordinator() -> Iterator[CoordinatorStub]:
    with CoordinatorStub() as stub:
        yield stub
        tao.disconnect()


def test_session_and_tool_call_arrive_as_otlp_log_records(coordinator: CoordinatorStub) -> None:
    tao.connect(coordinator.url, api_key="secret")
    before_ns = time.time_ns()
    with (
        tao.session("swe-17", agent="coder", model="m", priority=2) as s,
        s.tool_call("pytest", call_id="c1", timeout_s=600, key="pytest", background=True) as call,
    ):
        call.progress(0.4, remaining_s=30)
        call.expect(remaining_s=12)
        s.wait("approval", expected_s=60)
        s.deadline(remaining_s=3)
    assert eventually(lambda: coordinator.events_named("tao.session.end"))
    events = coordinator.events
    assert [one.name for one in events] == [
        "tao.session.start",
        "tao.tool.start",
        "tao.tool.progress",
        "tao.tool.progress",
        "tao.session.wait",
        "tao.session.deadline",
        "tao.tool.end",
        "tao.session.end",
    ]
    assert {one.scope for one in events} == {"tao_client"}
    assert all(before_ns <= one.timestamp_ns <= time.time_ns() for one in events)
    assert len({one.attributes["log.record.uid"] for one in events}) == len(events)
    numbers = [one.attributes["tao.event.sequence"] for one in events]
    first = numbers[0]
    assert isinstance(first, int)
    assert numbers == list(range(first, first + len(events)))
    assert len({one.resource["service.instance.id"] for one in events}) == 1
    for one in events:
        assert one.attributes["gen_ai.conversation.id"] == "swe-17"
        assert one.attributes["gen_ai.agent.name"] == "coder"
        assert one.attributes["gen_ai.request.model"] == "m"
    start, tool, progress, expect, wait, deadline, end, over = (one.attributes for one in events)
    assert start["tao.session.priority"] == 2
    assert tool["gen_ai.tool.name"] == "pytest"
    assert tool["gen_ai.tool.call.id"] == "c1"
    assert tool["gen_ai.operation.name"] == "execute_tool"
    assert tool["tao.tool.timeout"] == 600.0
    assert tool["tao.tool.key"] == "pytest"
    assert tool["tao.tool.background"] is True
    assert (progress["tao.tool.progress.ratio"], progress["tao.tool.remaining"]) == (0.4, 30.0)
    assert expect["tao.tool.remaining"] == 12.0
    assert wait["tao.wait.reason"] == "approval"
    assert wait["tao.wait.expected_duration"] == 60.0
    assert deadline["tao.deadline.remaining"] == 3.0
    duration_s = end["tao.tool.duration"]
    assert isinstance(duration_s, float)
    assert 0 < duration_s < 60
    assert over["tao.session.end.reason"] == "completed"
    posted = coordinator.seen("POST", "/v1/logs")[0]
    assert posted.headers["content-type"] == "application/x-protobuf"
    assert posted.headers["authorization"] == "Bearer secret"
    assert posted.headers["x-tao-protocol"] == semconv.PROTOCOL_VERSION
    assert posted.headers["x-tao-client"].startswith("tao_client/")


def test_headers_meant_for_an_observability_vendor_stay_away(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=vendor-key,x-vendor=team")
    tao.connect(coordinator.url)
    with tao.session():
        pass
    assert eventually(lambda: coordinator.events_named("tao.session.end"))
    sent = coordinator.seen("POST", "/v1/logs")[0].headers
    assert "authorization" not in sent
    assert "x-vendor" not in sent


def test_records_belong_to_the_current_span(coordinator: CoordinatorStub) -> None:
    tracer = TracerProvider().get_tracer("agent")
    tao.connect(coordinator.url)
    with tracer.start_as_current_span("run") as span, tao.session("traced") as s, s.turn() as turn:
        trace_id = f"{span.get_span_context().trace_id:032x}"
        assert turn.headers["traceparent"].split("-")[1] == trace_id
    assert eventually(lambda: coordinator.events_named("tao.session.end"))
    assert {one.trace_id for one in coordinator.events} == {trace_id}


def test_first_event_arrives_at_once_not_in_a_later_batch(coordinator: CoordinatorStub) -> None:
    tao.connect(coordinator.url)
    with tao.session("s") as s, s.tool_call("sleep"):
        assert eventually(lambda: coordinator.events_named("tao.tool.start"))
        assert not coordinator.events_named("tao.tool.end")


def test_open_tools_are_named_in_heartbeats(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "HEARTBEAT_S", 0.05)
    tao.connect(coordinator.url)
    with tao.session("s") as s:
        with s.tool_call("a", call_id="a1"), s.tool_call("b", call_id="b1"):
            assert eventually(lambda: len(coordinator.events_named("tao.session.heartbeat")) >= 2)
        time.sleep(0.2)
        beats = len(coordinator.events_named("tao.session.heartbeat"))
        time.sleep(0.2)
        assert len(coordinator.events_named("tao.session.heartbeat")) == beats
        with s.tool_call("c", call_id="c1"):
            assert eventually(
                lambda: len(coordinator.events_named("tao.session.heartbeat")) > beats
            )
    first = coordinator.events_named("tao.session.heartbeat")[0]
    assert first.attributes["tao.tool.open.call_ids"] == ("a1", "b1")
    last = coordinator.events_named("tao.session.heartbeat")[-1]
    assert last.attributes["tao.tool.open.call_ids"] == ("c1",)


def test_session_that_outlives_a_connection_has_heartbeats_on_the_next(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_courier, "HEARTBEAT_S", 0.05)
    tao.connect(free_url())
    with tao.session("s") as s, s.tool_call("a", call_id="a1"):
        tao.connect(coordinator.url)
        with s.tool_call("b", call_id="b1"):
            assert eventually(lambda: coordinator.events_named("tao.session.heartbeat"))
    beat = coordinator.events_named("tao.session.heartbeat")[0]
    assert beat.attributes["tao.tool.open.call_ids"] == ("a1", "b1")


def test_otel_sdk_disabled_sends_no_events_and_keeps_the_leases(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    tao.connect(coordinator.url)
    with tao.session() as s, s.tool_call("x"), s.turn(model="m") as turn:
        assert turn.affinity is not None
    tao.disconnect()
    assert coordinator.releases
    assert not coordinator.events


def test_coordinator_that_is_not_there_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tao.connect(free_url())
    with tao.session("s") as s:
        for _ in range(20):
            with s.tool_call("x"):
                pass
    tao.disconnect()
    assert [one.name for one in caplog.records] == ["tao_client"], "the breaker says it, once"


@pytest.mark.parametrize("word", ["hang", "crash", "reset"])
def test_disconnect_takes_a_second_at_most(coordinator: CoordinatorStub, word: str) -> None:
    coordinator.logs_word = word
    tao.connect(coordinator.url)
    with tao.session("s"):
        pass
    started_s = time.monotonic()
    tao.disconnect()
    assert time.monotonic() - started_s < 3, "1 s, and slack for a loaded machine"


def test_disconnect_sends_what_is_queued(coordinator: CoordinatorStub) -> None:
    tao.connect(coordinator.url)
    with tao.session("s") as s, s.turn(model="m"), s.tool_call("x"):
        pass
    tao.disconnect()
    assert coordinator.events_named("tao.session.end")
    assert coordinator.releases


def test_events_are_dropped_and_counted_while_the_coordinator_is_away(
    coordinator: CoordinatorStub,
) -> None:
    tao.connect(coordinator.url)
    connection = _connection.active()
    assert connection is not None
    emitter = connection.emitter
    assert emitter is not None
    coordinator.health_status = 503
    coordinator.script("crash")
    with tao.session("s") as s, s.turn(model="m"):
        assert connection.coordinators.are_away
        with s.tool_call("x"):
            assert eventually(lambda: emitter.dropped)
    assert not coordinator.events_named("tao.tool.start")


def test_connect_again_replaces_and_flushes(coordinator: CoordinatorStub) -> None:
    with CoordinatorStub() as other:
        tao.connect(coordinator.url)
        tao.connect(coordinator.url)
        with tao.session("s") as s:
            tao.connect(other.url)
            with s.turn(model="m") as turn:
                assert turn.affinity is not None
        tao.disconnect()
        assert coordinator.events_named("tao.session.start")
        assert other.events_named("tao.session.end")
        assert not coordinator.leases
        assert len(other.leases) == 1


def test_endpoint_in_the_environment_connects_at_first_use(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_ENDPOINT", coordinator.url)
    monkeypatch.setenv("TAO_API_KEY", "from-the-environment")
    with tao.session("s"):
        pass
    tao.disconnect()
    assert coordinator.events_named("tao.session.start")
    sent = coordinator.seen("POST", "/v1/logs")[0].headers
    assert sent["authorization"] == "Bearer from-the-environment"
    with tao.session("t"):
        pass
    assert _connection.active() is None, "disconnected is disconnected"


def test_sessions_of_tasks_and_threads_keep_apart(coordinator: CoordinatorStub) -> None:
    tao.connect(coordinator.url)

    @tao.tool
    async def look(what: str) -> str:
        await anyio.sleep(0.01)
        return what

    async def agent(name: str) -> None:
        async with tao.session(name):
            await look(name)

    async def main() -> None:
        await asyncio.gather(agent("t1"), agent("t2"))

    asyncio.run(main())

    @tao.tool
    def read() -> None:
        pass

    with tao.session("main") as s, concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(s.run, read).result()
        pool.submit(read).result()
    tao.disconnect()
    starts = coordinator.events_named("tao.tool.start")
    where = sorted(str(one.attributes["gen_ai.conversation.id"]) for one in starts)
    assert where == ["main", "t1", "t2"], "the second call on the pool belongs to no session"
