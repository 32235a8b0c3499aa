import sys
from types import ModuleType

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from sdk_stubs import decode_events

from tao_client import semconv
from tao_client._events import current_traceparent, make_event, new_id, safe_id
from tao_client._otlp import OtlpSink, _Collector


def test_event_leaves_out_what_is_unknown() -> None:
    event = make_event("tao.tool.start", "s", {"a": None, "b": "", "c": 0, "d": False, "e": ()})
    kept = set(event.attributes) - {
        semconv.CONVERSATION_ID,
        semconv.RECORD_UID,
        semconv.EVENT_SEQUENCE,
    }
    assert kept == {"c", "d", "e"}


def test_ids_differ() -> None:
    assert len({new_id() for _ in range(1000)}) == 1000


def test_traceparent_is_that_of_the_current_span() -> None:
    assert current_traceparent() is None
    with TracerProvider().get_tracer("t").start_as_current_span("x") as span:
        context = span.get_span_context()
        expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        assert current_traceparent() == expected


@pytest.mark.parametrize("module", [None, ModuleType("half imported")])
def test_opentelemetry_that_is_not_there_is_not_needed(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    for name in ("opentelemetry.trace", "opentelemetry.context"):
        if module is None:
            monkeypatch.delitem(sys.modules, name)
        else:
            monkeypatch.setitem(sys.modules, name, module)
    assert current_traceparent() is None
    assert make_event("tao.tool.start", "s", {}).context is None


def test_collector_gives_each_record_once() -> None:
    collector = _Collector()
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(collector)
    provider.get_logger("x").emit(event_name="a")
    assert provider.force_flush()
    assert [one.log_record.event_name for one in collector.take()] == ["a"]
    assert collector.take() == []
    provider.shutdown()


def test_text_that_no_encoder_takes_costs_no_other_event() -> None:
    sent: list[bytes] = []

    def post(body: bytes, content_type: str, time_limit_s: float, /) -> bool:
        sent.append(body)
        return True

    odd = make_event("tao.tool.start", "s", {"name": "\ud800", "ids": ("a", "\udfff")})
    assert OtlpSink(post).send([odd, make_event("tao.tool.end", "s", {"name": "fine"})])
    (events,) = map(decode_events, sent)
    assert [one.attributes["name"] for one in events] == ["?", "fine"]
    assert events[0].attributes["ids"] == ("a", "?")


@pytest.mark.parametrize("given", ["swe-17", "A.b_c:d-9", "x" * 128])
def test_ids_that_are_allowed_stay(given: str) -> None:
    assert safe_id(given) == given


def test_ids_that_are_not_allowed_are_replaced_and_stay_apart() -> None:
    given = ["org/repo", "org repo", "org_repo", "x" * 129, "x" * 130, "é", "\ud800"]
    safe = [safe_id(one) for one in given]
    assert len(set(safe)) == len(given)
    assert safe[2] == "org_repo"
    assert safe[0].startswith("org_repo-")
    for one in safe:
        assert 1 <= len(one) <= 128
        assert all(char.isascii() and (char.isalnum() or char in "._:-") for char in one)
