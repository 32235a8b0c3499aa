"""Spans as the frameworks make them, on a private tracer provider; nothing is sent."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.trace import SpanKind, Tracer
from sdk_stubs import eventually

import tao_client as tao
from tao_client import _span_processor, testing
from tao_client.testing import Event

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
IN_CONVERSATION = {"gen_ai.conversation.id": "c1"}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Event]]:
    for name in ("TAO_ENDPOINT", "BAGGAGE", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    with testing.capture_events() as captured:
        yield captured


@pytest.fixture
def late_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time enough to set attributes before it, on a machine that does much else."""
    monkeypatch.setattr(_span_processor, "SECOND_LOOK_S", 0.3)


@pytest.fixture
def processor() -> tao.SpanProcessor:
    return tao.SpanProcessor()


@pytest.fixture
def tracer(processor: tao.SpanProcessor) -> Iterator[Tracer]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    yield provider.get_tracer("a framework")
    provider.shutdown()


def names(events: list[Event]) -> list[str]:
    return [one.name for one in events]


def told(events: list[Event]) -> list[tuple[str, object, object]]:
    return [
        (
            one.name,
            one.attributes["gen_ai.conversation.id"],
            one.attributes["gen_ai.tool.call.id"],
        )
        for one in events
    ]


def test_start_is_told_while_the_tool_runs_and_the_end_when_it_ends(
    events: list[Event], tracer: Tracer
) -> None:
    call_id = {"gen_ai.tool.call.id": "call-7", "tao.tool.timeout": 30}
    with tracer.start_as_current_span("x", attributes=TOOL | IN_CONVERSATION | call_id) as span:
        (start,) = events
        ids = span.get_span_context()
    start, end = events
    assert (start.name, end.name) == ("tao.tool.start", "tao.tool.end")
    for event in events:
        assert event.attributes["gen_ai.conversation.id"] == "c1"
        assert event.attributes["gen_ai.tool.call.id"] == "call-7"
        assert event.attributes["gen_ai.tool.name"] == "search"
        assert isinstance(event.context, context.Context)
        assert trace.get_current_span(event.context).get_span_context() == ids
    assert start.attributes["tao.tool.timeout"] == 30.0
    assert "error.type" not in end.attributes
    duration_s = end.attributes["tao.tool.duration"]
    assert isinstance(duration_s, float)
    assert 0 <= duration_s < 5


@pytest.mark.usefixtures("late_look")
def test_attributes_that_come_just_after_the_start_are_still_seen_at_the_start(
    events: list[Event], tracer: Tracer
) -> None:
    """As CrewAI sets them."""
    span = tracer.start_span("call tool")
    before_ns = time.time_ns()
    span.set_attributes(TOOL | IN_CONVERSATION)
    assert eventually(lambda: events)
    assert names(events) == ["tao.tool.start"]
    assert events[0].timestamp_ns <= before_ns, "the time of the span's start, not of the look"
    span.end()
    assert names(events) == ["tao.tool.start", "tao.tool.end"]


def test_tool_that_is_known_only_at_its_end_is_told_with_both_times(
    events: list[Event], tracer: Tracer
) -> None:
    """As OpenInference does it for LangChain."""
    span = tracer.start_span("search", kind=SpanKind.CLIENT)
    started_ns = time.time_ns()
    time.sleep(0.05)
    span.set_attributes({"openinference.span.kind": "TOOL", "session.id": "c1"})
    assert events == []
    span.end()
    start, end = events
    assert (start.name, end.name) == ("tao.tool.start", "tao.tool.end")
    assert start.timestamp_ns <= started_ns
    duration_s = end.attributes["tao.tool.duration"]
    assert isinstance(duration_s, float)
    assert duration_s >= 0.05


def test_call_belongs_to_the_open_session_of_the_sdk(events: list[Event], tracer: Tracer) -> None:
    """Its model calls go by that session, whatever the framework calls the conversation."""
    with tao.session("swe-1"):
        with tracer.start_as_current_span("agent") as above:
            pass
        parent = trace.set_span_in_context(above)
        with tracer.start_as_current_span("x", parent, attributes=TOOL | IN_CONVERSATION):
            pass
    tool_events = [one for one in events if "tool" in one.name]
    assert [one[1] for one in told(tool_events)] == ["swe-1", "swe-1"]


def test_session_is_found_from_another_thread_through_the_parent_span(
    events: list[Event], tracer: Tracer
) -> None:
    def run_tool(parent: context.Context) -> None:
        with tracer.start_as_current_span("execute_tool search", parent):
            pass

    with tao.session("swe-1"), tracer.start_as_current_span("agent") as above:
        parent = trace.set_span_in_context(above)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run_tool, parent).result()
    tool_events = [one for one in events if "tool" in one.name]
    assert [one[1] for one in told(tool_events)] == ["swe-1", "swe-1"]


def test_conversation_is_named_by_span_then_baggage_then_parents(
    events: list[Event], tracer: Tracer
) -> None:
    with tracer.start_as_current_span("invoke_agent a", attributes={"session.id": "of-parent"}):
        with (
            tracer.start_as_current_span("step"),
            tracer.start_as_current_span("x", attributes=TOOL),
        ):
            pass
        token = context.attach(baggage.set_baggage("gen_ai.conversation.id", "of-baggage"))
        try:
            with tracer.start_as_current_span("x", attributes=TOOL):
                pass
            with tracer.start_as_current_span("x", attributes=TOOL | IN_CONVERSATION):
                pass
        finally:
            context.detach(token)
    assert [one[1] for one in told(events)][::2] == ["of-parent", "of-baggage", "c1"]


def test_conversation_that_the_parent_names_later_is_found(
    events: list[Event], tracer: Tracer
) -> None:
    with tracer.start_as_current_span("invoke_agent a") as agent:
        agent.set_attributes(IN_CONVERSATION)
        with tracer.start_as_current_span("x", attributes=TOOL):
            assert [one[1] for one in told(events)] == ["c1"]


def test_call_of_no_session_is_not_told(events: list[Event], tracer: Tracer) -> None:
    with tracer.start_as_current_span("x", attributes=TOOL):
        pass
    assert events == []


def test_other_spans_are_not_told(events: list[Event], tracer: Tracer) -> None:
    with tao.session("s"):
        chat = {"gen_ai.operation.name": "chat"}
        with tracer.start_as_current_span("chat m", attributes=chat | IN_CONVERSATION):
            with tracer.start_as_current_span("GET", kind=SpanKind.CLIENT):
                pass
            with tracer.start_as_current_span("plan"):
                time.sleep(0.02)
    assert names(events) == ["tao.session.start", "tao.session.end"]


def test_calls_side_by_side_keep_apart(events: list[Event], tracer: Tracer) -> None:
    spans = [tracer.start_span("execute_tool a", attributes=IN_CONVERSATION) for _ in range(3)]
    for span in spans:
        span.end()
    starts, ends = told(events[:3]), told(events[3:])
    assert [one[2] for one in starts] == [one[2] for one in ends]
    assert len({one[2] for one in starts}) == 3


def test_protocols_own_span_of_the_same_call_is_not_told_again(
    events: list[Event], tracer: Tracer
) -> None:
    outer = TOOL | IN_CONVERSATION | {"gen_ai.tool.call.id": "outer"}
    with tracer.start_as_current_span("execute_tool search", attributes=outer):
        mcp = TOOL | {"mcp.method.name": "tools/call"}
        with tracer.start_as_current_span("tools/call search", kind=SpanKind.CLIENT) as inner:
            inner.set_attributes(mcp)
        other = TOOL | {"gen_ai.tool.name": "fetch"}
        with tracer.start_as_current_span("execute_tool fetch", attributes=other):
            pass
    tools = [one.attributes["gen_ai.tool.name"] for one in events]
    assert tools == ["search", "fetch", "fetch", "search"]


def test_decorated_tool_inside_the_frameworks_span_is_told_once(
    events: list[Event], tracer: Tracer
) -> None:
    """`@agent.tool` above `@tao.tool`: the span has begun when the function is called."""

    @tao.tool(timeout_s=30)
    def search(query: str) -> str:
        with current().tool_call("search") as call:
            call.progress(0.5)
        return query

    with tao.session("swe-1"):
        own_id = {"gen_ai.tool.call.id": "of-the-model"}
        with tracer.start_as_current_span("execute_tool search", attributes=TOOL | own_id):
            search("a")
        search("b")
    assert [one[2] for one in told(events[1:4])] == ["of-the-model"] * 3
    assert [one.name.rsplit(".", 1)[1] for one in events[1:4]] == ["start", "progress", "end"]
    outside = [one.name.rsplit(".", 1)[1] for one in events[4:-1]]
    assert outside == ["start", "start", "progress", "end", "end"], "no span there, two calls"


def current() -> tao.Session:
    session = tao.current_session()
    assert session is not None
    return session


@pytest.mark.usefixtures("late_look")
def test_decorated_tool_in_a_span_that_says_late_what_it_is_is_told_once(
    events: list[Event], tracer: Tracer
) -> None:
    @tao.tool
    def search() -> None: ...

    with tao.session("swe-1"):
        with tracer.start_as_current_span("call tool") as span:
            with tracer.start_as_current_span("in between"):
                search()
            span.set_attributes(TOOL)
        with tracer.start_as_current_span("call tool") as span:
            span.set_attributes(TOOL)
    starts = [one for one in events if one.name == "tao.tool.start"]
    assert len(starts) == 2, "one by the decorator, one by the second span"


def test_other_tools_and_other_sessions_inside_a_tools_span_are_told_as_well(
    events: list[Event], tracer: Tracer
) -> None:
    @tao.tool
    def search() -> None: ...

    @tao.tool
    def fetch() -> None: ...

    with (
        tao.session("outer"),
        tracer.start_as_current_span("execute_tool search", attributes=TOOL),
    ):
        fetch()
        with tao.session("of-a-sub-agent"):
            search()
    starts = [
        (one.attributes["gen_ai.conversation.id"], one.attributes["gen_ai.tool.name"])
        for one in events
        if one.name == "tao.tool.start"
    ]
    assert starts == [("outer", "search"), ("outer", "fetch"), ("of-a-sub-agent", "search")]


def test_claim_that_goes_wrong_is_told_twice_rather_than_not_run(
    events: list[Event], tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("of ours")

    monkeypatch.setattr(_span_processor.trace, "get_current_span", fail)
    with tao.session() as s, s.tool_call("x"):
        pass
    assert names(events)[1:3] == ["tao.tool.start", "tao.tool.end"]


def test_failure_is_told(events: list[Event], tracer: Tracer) -> None:
    with (
        pytest.raises(LookupError),
        tracer.start_as_current_span("x", attributes=TOOL | IN_CONVERSATION),
    ):
        raise LookupError("of the tool")
    assert events[-1].attributes["error.type"] == "LookupError"


def test_shell_commands_are_told_by_their_head_alone(events: list[Event], tracer: Tracer) -> None:
    arguments = {"gen_ai.tool.call.arguments": '{"command": "pytest -q tests/test_secret.py"}'}
    bash = TOOL | IN_CONVERSATION | {"gen_ai.tool.name": "bash"}
    with tracer.start_as_current_span("x", attributes=bash | arguments):
        pass
    assert events[0].attributes["tao.tool.key"] == "pytest"
    assert "secret" not in str(events)


def test_nothing_that_goes_wrong_reaches_the_framework(
    events: list[Event],
    tracer: Tracer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("of ours")

    monkeypatch.setattr(_span_processor.reading, "is_tool_span", fail)
    with caplog.at_level(logging.WARNING, "tao_client"):
        for _ in range(3):
            with tracer.start_as_current_span("x", attributes=TOOL | IN_CONVERSATION):
                pass
    assert events == []
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info, "with its traceback, to be reported"


@pytest.mark.usefixtures("late_look")
def test_second_look_survives_an_odd_span(
    events: list[Event], tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _span_processor.reading.is_tool_span

    def fail_for_one(name: str, attributes: dict[str, object]) -> bool:
        if attributes.get("is.odd"):
            raise RuntimeError("of ours")
        return real(name, attributes)

    monkeypatch.setattr(_span_processor.reading, "is_tool_span", fail_for_one)
    odd = tracer.start_span("odd")
    odd.set_attribute("is.odd", True)
    later = tracer.start_span("later")
    later.set_attributes(TOOL | IN_CONVERSATION)
    assert eventually(lambda: names(events) == ["tao.tool.start"])
    odd.end()
    later.end()


def test_maps_are_bounded(
    events: list[Event],
    tracer: Tracer,
    processor: tao.SpanProcessor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_span_processor, "LIVE_LIMIT", 10)
    monkeypatch.setattr(_span_processor, "QUEUE_LIMIT", 0)
    spans: list[trace.Span] = []
    for number in range(30):
        attributes = TOOL | {"gen_ai.conversation.id": f"c{number}"}
        spans.append(tracer.start_span("x", attributes=attributes))
        spans.append(tracer.start_span("never a tool"))
    assert len(processor._live) == 10
    assert processor._queue.qsize() == 0
    for span in spans:
        span.end()
    assert len(processor._live) == 0
    assert names(events).count("tao.tool.start") == 30
    assert names(events).count("tao.tool.end") == 5, "of the spans that were not forgotten"


def test_shutdown_stops_the_thread_and_the_telling(
    events: list[Event], tracer: Tracer, processor: tao.SpanProcessor
) -> None:
    tracer.start_span("waits for a second look")
    tracer.start_span("x", attributes=TOOL | IN_CONVERSATION)
    processor.shutdown()
    with tracer.start_as_current_span("x", attributes=TOOL | IN_CONVERSATION):
        pass
    assert names(events) == ["tao.tool.start"]
    assert processor.force_flush()


def test_nobody_listening_costs_nothing(
    tracer: Tracer, processor: tao.SpanProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    testing.reset()
    span = tracer.start_span("x", attributes=TOOL | IN_CONVERSATION)
    assert isinstance(span, Span)
    assert len(processor._live) == 0
    span.end()


def test_processor_forgets_the_spans_of_its_parent_process(
    events: list[Event], tracer: Tracer, processor: tao.SpanProcessor
) -> None:
    """The hook itself, called here; a whole forked process is in the next test."""
    span = tracer.start_span("x", attributes=TOOL | IN_CONVERSATION)
    _span_processor._forget_parent_process()
    assert len(processor._live) == 0
    span.end()
    assert names(events) == ["tao.tool.start"]


def test_forked_child_tells_its_own_spans_only() -> None:
    script = """
import os
from opentelemetry.sdk.trace import TracerProvider
import tao_client as tao
from tao_client import _span_processor, testing

_span_processor.SECOND_LOOK_S = 0.3
provider = TracerProvider()
provider.add_span_processor(tao.SpanProcessor())
tracer = provider.get_tracer("t")
ids = {"gen_ai.conversation.id": "c"}
with testing.capture_events() as events:
    tracer.start_span("not a tool").end()
    outer = tracer.start_span("execute_tool outer", attributes=ids)
    if (child := os.fork()) == 0:
        del events[:]
        outer.end()
        assert events == [], events
        late = tracer.start_span("late")
        late.set_attributes(ids | {"gen_ai.operation.name": "execute_tool"})
        import time
        while not events:
            time.sleep(0.001)
        late.end()
        assert [one.name for one in events] == ["tao.tool.start", "tao.tool.end"], events
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    outer.end()
    assert [one.name for one in events] == ["tao.tool.start", "tao.tool.end"], events
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={name: value for name, value in os.environ.items() if not name.startswith("TAO_")},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_sdk_does_not_load_it() -> None:
    code = "import sys, tao_client; assert 'opentelemetry.sdk' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(tao, "Nothing")  # noqa: B009
