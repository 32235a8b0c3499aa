"""Spans of our own on the agent's tracer provider, here a private one put in its place."""

import asyncio
from collections.abc import Generator, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from sdk_stubs import free_url

import tao_client as tao
from tao_client import testing
from tao_client.testing import Event


class Backend:
    """The user's own tracing."""

    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.tracer = self.provider.get_tracer("a framework")
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    @property
    def parents(self) -> dict[str, str | None]:
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        return {
            span.name: names[span.parent.span_id] if span.parent else None for span in self.spans
        }


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    for name in ("TAO_ENDPOINT", "TAO_DISABLED", "TAO_SPANS", "BAGGAGE"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    made = Backend()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    yield made
    made.provider.shutdown()
    testing.reset()


@pytest.fixture
def events() -> Iterator[list[Event]]:
    with testing.capture_events() as captured:
        yield captured


@tao.tool
def search(query: str) -> str:
    return query


def test_there_are_none_unless_asked_for(backend: Backend) -> None:
    with tao.session(agent="coder"):
        search("a")
    tao.connect(free_url())
    with tao.session(agent="coder"):
        search("a")
    assert not backend.names


def test_session_and_tool_are_standard_spans(backend: Backend, events: list[Event]) -> None:
    tao.connect(free_url(), spans=True)
    with (
        tao.session("swe-1", agent="coder") as s,
        backend.tracer.start_as_current_span("step"),
        s.tool_call("search", call_id="call-7"),
        backend.tracer.start_as_current_span("GET"),
    ):
        pass
    assert backend.names == ["GET", "execute_tool search", "step", "invoke_agent coder"]
    assert backend.parents == {
        "GET": "execute_tool search",
        "execute_tool search": "step",
        "step": "invoke_agent coder",
        "invoke_agent coder": None,
    }
    _, tool, _, agent = backend.spans
    assert dict(tool.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "call-7",
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": "swe-1",
    }
    assert dict(agent.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "coder",
        "gen_ai.conversation.id": "swe-1",
    }
    assert trace.get_current_span().get_span_context().span_id == 0, "nothing is left behind"
    start = next(one for one in events if one.name == "tao.tool.start")
    told_in = trace.get_current_span(start.context)  # pyright: ignore[reportArgumentType]
    assert told_in.get_span_context() == tool.context, "events carry the ids of these spans"


def test_session_that_is_entered_again_inside_itself_has_two(backend: Backend) -> None:
    tao.connect(free_url(), spans=True)
    with tao.session() as s, s:
        pass
    assert backend.names == ["invoke_agent"], "the outer one is that already"
    with tao.session(agent="a") as s, backend.tracer.start_as_current_span("step"), s:
        pass
    assert backend.names[1:] == ["invoke_agent a", "step", "invoke_agent a"]
    assert trace.get_current_span().get_span_context().span_id == 0


def test_environment_asks_for_them(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_ENDPOINT", free_url())
    monkeypatch.setenv("TAO_SPANS", "1")
    testing.reset()
    with tao.session():
        pass
    assert backend.names == ["invoke_agent"]


def test_error_is_on_them_by_its_type_alone(backend: Backend) -> None:
    tao.connect(free_url(), spans=True)

    @tao.tool
    def fail() -> None:
        raise ValueError("secret")

    with pytest.raises(ValueError, match="secret"), tao.session():
        fail()
    for span in backend.spans:
        assert (span.attributes or {})["error.type"] == "ValueError"
        assert span.status.status_code is StatusCode.ERROR
        assert "secret" not in span.to_json()


def test_decorated_agent_and_async_tool_have_theirs(backend: Backend) -> None:
    tao.connect(free_url(), spans=True)

    @tao.tool
    async def fetch() -> None:
        await asyncio.sleep(0)

    @tao.agent
    async def solve() -> None:
        await asyncio.gather(fetch(), fetch())

    asyncio.run(solve())
    assert backend.names == ["execute_tool fetch"] * 2 + ["invoke_agent solve"]
    assert backend.parents["execute_tool fetch"] == "invoke_agent solve"


def test_span_of_a_generator_is_not_current_between_its_items(backend: Backend) -> None:
    tao.connect(free_url(), spans=True)

    @tao.tool
    def read() -> Generator[int]:
        yield from range(2)

    with tao.session():
        for _ in read():
            with backend.tracer.start_as_current_span("of the caller"):
                pass
    assert backend.names == ["of the caller"] * 2 + ["execute_tool read", "invoke_agent"]
    assert backend.parents["of the caller"] == "invoke_agent"


def test_session_left_in_another_context_ends_its_span(backend: Backend) -> None:
    tao.connect(free_url(), spans=True)

    async def agent() -> None:
        session = tao.session()
        await asyncio.create_task(session.__aenter__())
        await session.__aexit__(None, None, None)

    asyncio.run(agent())
    assert backend.names == ["invoke_agent"]


def test_frameworks_own_spans_are_not_made_again(backend: Backend) -> None:
    tao.connect(free_url(), spans=True)
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "coder"}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    with backend.tracer.start_as_current_span("invoke_agent coder", attributes=agent):
        with tao.session(), backend.tracer.start_as_current_span("x", attributes=tool):
            search("a")
        with tao.session(agent="coder"):
            pass
        with tao.session(agent="reviewer"):
            pass
    assert backend.names == ["x", "invoke_agent reviewer", "invoke_agent coder"]


def test_span_processor_beside_them_tells_nothing_twice(
    backend: Backend, events: list[Event]
) -> None:
    tao.connect(free_url(), spans=True)
    backend.provider.add_span_processor(tao.SpanProcessor())
    with tao.session("s") as s:
        search("a")
        with s.tool_call("fetch"):
            mcp = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "fetch"}
            with backend.tracer.start_as_current_span("tools/call fetch", attributes=mcp):
                pass
    started = [one.attributes["gen_ai.tool.name"] for one in events if one.name == "tao.tool.start"]
    assert started == ["search", "fetch"]
    assert backend.names == [
        "execute_tool search", "tools/call fetch", "execute_tool fetch", "invoke_agent"
    ]  # fmt: skip


def test_processor_of_the_user_that_fails_does_not_reach_the_agent(backend: Backend) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            if self.fails_at == "start":
                raise RuntimeError("of the user's tracing")

        def on_end(self, span: ReadableSpan) -> None:
            if self.fails_at == "end":
                raise RuntimeError("of the user's tracing")

        fails_at = "start"

    broken = Broken()
    backend.provider.add_span_processor(broken)
    tao.connect(free_url(), spans=True)
    for when in ("start", "end"):
        broken.fails_at = when
        with tao.session():
            assert search("a") == "a"
    assert trace.get_current_span().get_span_context().span_id == 0
