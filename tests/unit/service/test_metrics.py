"""Labels that come from outside stay bounded."""

from prometheus_client.parser import text_string_to_metric_families
from service_fakes import FakeEngine, backend_view

from tao_client import semconv
from tao_coordinator.adapters.events.receiver import Received
from tao_coordinator.core.events import SessionStarted, ToolEnded, ToolStarted
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.service.metrics import (
    ERROR_TYPES_MAX,
    OTHER,
    TOOL_NAMES_MAX,
    BoundedLabel,
    EngineCollector,
    ServiceMetrics,
)
from tao_coordinator.service.runtime import DecisionEngine


def register(metrics: ServiceMetrics, engine: DecisionEngine) -> None:
    metrics.registry.register(
        EngineCollector(lambda: engine.observe(1.0), engine.honesty, "1.2.3", metrics.tool_label)
    )


def test_late_values_share_one_label() -> None:
    label = BoundedLabel(2)
    assert [label(value) for value in "abcab"] == ["a", "b", OTHER, "a", "b"]


def test_made_up_tool_names_do_not_grow_the_page() -> None:
    metrics = ServiceMetrics()
    for number in range(1_000):
        event = ToolEnded(
            session_id="s", call_id="c", name=f"t{number}", duration_s=1.0, error_type=f"e{number}"
        )
        metrics.observe_events([Received(semconv.TOOL_END, event, 0.0, "event")])
    labels = {
        (sample.labels["gen_ai_tool_name"], sample.labels["error_type"])
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
        if sample.name == "gen_ai_execute_tool_duration_seconds_count"
    }
    assert len(labels) == TOOL_NAMES_MAX + 1
    assert len({error for _, error in labels}) == ERROR_TYPES_MAX + 1


def test_unknown_value_of_a_backend_has_no_sample() -> None:
    metrics = ServiceMetrics()
    engine = FakeEngine(backends=(backend_view("a"), backend_view("b", healthy=False)))
    register(metrics, engine)
    samples = {
        (sample.name, sample.labels["backend"]): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
        if "backend" in sample.labels
    }
    assert samples["tao_backend_healthy", "a"] == 1
    assert samples["tao_backend_healthy", "b"] == 0
    assert ("tao_backend_prefill_tokens_per_second", "a") not in samples


def test_open_calls_are_counted_by_tool_and_once_per_session_id() -> None:
    engine = Engine(Parameters())
    started = [SessionStarted(session_id="a", agent=agent) for agent in ("main", "explore")]
    calls = [("a", "1", "bash"), ("a", "2", "bash"), ("b", "1", "read"), ("c", "1", "bash")]
    tools = [ToolStarted(session_id=s, call_id=c, name=name) for s, c, name in calls]
    engine.step(0.0, [*started, *tools, ToolEnded(session_id="c", call_id="1")])
    metrics = ServiceMetrics()
    register(metrics, engine)
    counted = {
        sample.labels["gen_ai_tool_name"]: sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
        if sample.name == "tao_tool_active"
    }
    assert counted == {"bash": 2, "read": 1}
