"""`SpanProcessor` against a scripted coordinator: what arrives, and when."""

from collections.abc import Iterator

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer
from sdk_stubs import CoordinatorStub, eventually, free_url

import tao_client as tao
from tao_client import _courier, testing

TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.id": "call-1",
    "gen_ai.conversation.id": "c1",
}


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoordinatorStub]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED", "OTEL_SDK_DISABLED", "BAGGAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_courier, "HEARTBEAT_S", 0.05)
    testing.reset()
    with CoordinatorStub() as stub:
        yield stub
        tao.disconnect()
    testing.reset()


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(tao.SpanProcessor())
    yield provider.get_tracer("a framework")
    provider.shutdown()


def test_start_and_heartbeats_arrive_while_the_tool_runs(
    coordinator: CoordinatorStub, tracer: Tracer
) -> None:
    tao.connect(coordinator.url)
    with tracer.start_as_current_span("execute_tool search", attributes=TOOL) as span:
        trace_id = f"{span.get_span_context().trace_id:032x}"
        assert eventually(lambda: coordinator.events_named("tao.tool.start"))
        assert eventually(lambda: coordinator.events_named("tao.session.heartbeat"))
        assert not coordinator.events_named("tao.tool.end")
    assert eventually(lambda: coordinator.events_named("tao.tool.end"))
    (start,) = coordinator.events_named("tao.tool.start")
    assert start.trace_id == trace_id
    assert start.attributes["gen_ai.conversation.id"] == "c1"
    assert start.attributes["gen_ai.tool.call.id"] == "call-1"
    beat = coordinator.events_named("tao.session.heartbeat")[0]
    assert beat.attributes["tao.tool.open.call_ids"] == ("call-1",)


def test_dead_coordinator_does_not_disturb_the_framework(
    coordinator: CoordinatorStub, tracer: Tracer
) -> None:
    tao.connect(free_url())
    for _ in range(20):
        with tracer.start_as_current_span("execute_tool search", attributes=TOOL):
            pass
    assert not coordinator.requests


@pytest.mark.parametrize("how", ["spans", "spans and decorator", "spans and capability"])
def test_tools_of_an_instrumented_pydantic_ai_agent_are_told_once(how: str) -> None:
    """With the real framework, whose spans have all attributes at their start."""
    from pydantic_ai import Agent, InstrumentationSettings
    from pydantic_ai.models.test import TestModel

    from tao_integrations.pydantic_ai import TaoCapability

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(tao.SpanProcessor())
    open_at_start: list[str] = []

    def search(query: str) -> str:
        open_at_start.extend(event.name for event in events)
        return query

    agent = Agent(
        TestModel(),
        name="a",
        tools=[tao.tool(search) if "decorator" in how else search],
        capabilities=[TaoCapability()] if "capability" in how else [],
    )
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))

    async def main() -> None:
        await agent.run("look for it", conversation_id="c1")

    try:
        with testing.capture_events() as events:
            anyio.run(main)
    finally:
        Agent.instrument_all(False)
        provider.shutdown()
    assert open_at_start[-1:] == ["tao.tool.start"]
    start, end = (event for event in events if "session" not in event.name)
    assert (start.name, end.name) == ("tao.tool.start", "tao.tool.end")
    for event in (start, end):
        assert event.attributes["gen_ai.conversation.id"] == "c1"
        assert event.attributes["gen_ai.tool.name"] == "search"
    assert start.attributes["gen_ai.tool.call.id"] == end.attributes["gen_ai.tool.call.id"]
