"""Prometheus metrics: counters that the shell keeps, and the engine's state read at scrape time.

Names follow the OpenTelemetry translation (`tao.session.count` is `tao_session_count`). No label
carries ids of sessions, requests, leases or calls; backend ids are the operator's own words. Labels
that come from outside (tool names, error types) are bounded: the first ones seen get a label, the
rest share `_OTHER`.
"""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tao_client import semconv
from tao_coordinator.adapters.events.receiver import FOREIGN_NAMES, Received, Tally
from tao_coordinator.core.effects import Grant
from tao_coordinator.core.events import ToolEnded
from tao_coordinator.core.observation import BackendView, Counters, Observation, ReadinessView
from tao_coordinator.core.plans import PlanTotals

OTHER: Final = "_OTHER"
TOOL_NAMES_MAX: Final = 50
ERROR_TYPES_MAX: Final = 20

_EVENT_LABELS = semconv.EVENT_NAMES | FOREIGN_NAMES | {semconv.EXECUTE_TOOL, "hook"}
_DELAY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_HTTP_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_HOLD_BUCKETS_S = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 90, 120, 300, 600, 900)
_STEP_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
_TOOL_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class BoundedLabel:
    """The first `limit` values keep their name; later ones become `_OTHER`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """The label to use for `value`."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._limit:
            return OTHER
        self._seen.add(value)
        return value


class ServiceMetrics:
    """What the shell counts itself. One registry per coordinator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.http_s = Histogram(
            "http_server_request_duration_seconds",
            "Duration of HTTP requests, long polls included.",
            ("http_route", "http_request_method", "http_response_status_code"),
            buckets=_HTTP_BUCKETS_S,
            registry=self.registry,
        )
        self.step_s = Histogram(
            "tao_engine_step_seconds",
            "Time that one step of the decision engine took.",
            buckets=_STEP_BUCKETS_S,
            registry=self.registry,
        )
        self.engine_errors = Counter(
            "tao_engine_errors", "Engine steps that failed.", registry=self.registry
        )
        self.relay_fail_open = Counter(
            "tao_relay_fail_open",
            "Relayed calls sent without a lease, since the engine failed.",
            registry=self.registry,
        )
        self.relay_failures = Counter(
            "tao_relay_backend_failures",
            "Relayed calls that a backend did not answer, or broke off.",
            ("backend",),
            registry=self.registry,
        )
        self._hold_s = Histogram(
            "tao_turn_hold_seconds",
            "Time that granted turns were held before their lease.",
            ("reason",),
            buckets=_HOLD_BUCKETS_S,
            registry=self.registry,
        )
        self._events = Counter(
            "tao_coordinator_events",
            "Lifecycle records received, by what became of them.",
            ("tao_event_name", "tao_event_outcome", "tao_event_source"),
            registry=self.registry,
        )
        self._event_delay_s = Histogram(
            "tao_coordinator_event_delay_seconds",
            "Arrival minus the record's own timestamp; 0 where the clocks differ.",
            ("tao_event_name",),
            buckets=_DELAY_BUCKETS_S,
            registry=self.registry,
        )
        self._tool_s = Histogram(
            "gen_ai_execute_tool_duration_seconds",
            "Duration of tool calls as their emitters measured it.",
            ("gen_ai_tool_name", "error_type"),
            buckets=_TOOL_BUCKETS_S,
            registry=self.registry,
        )
        self._children: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        self.tool_label = BoundedLabel(TOOL_NAMES_MAX)
        """One for all metrics by tool, so that a tool has the same label everywhere."""
        self._error_label = BoundedLabel(ERROR_TYPES_MAX)

    def observe_grant(self, grant: Grant) -> None:
        """Count the hold of a turn that just got its lease."""
        self._hold_s.labels(grant.receipt.reason).observe(grant.receipt.hold_s)

    def observe_tally(self, tally: Tally, source: str) -> None:
        """Count what one request carried beside the events that count.

        Args:
            tally: What became of its records.
            source: `event`, `span` or `hook`.
        """
        for name, number in tally.rejected.items():
            self._events.labels(_event_label(name), "rejected", source).inc(number)
        if tally.num_ignored:
            self._events.labels(OTHER, "ignored", source).inc(tally.num_ignored)
        for outcome, number in tally.dropped.items():
            self._events.labels(OTHER, outcome.value, source).inc(number)

    def observe_events(self, received: Sequence[Received]) -> None:
        """Count events that go to the engine."""
        for record in received:
            accepted, delay_s = self._event_children(record.name, record.source)
            accepted.inc()
            delay_s.observe(record.age_s)
            event = record.event
            if isinstance(event, ToolEnded) and event.duration_s is not None:
                error = self._error_label(event.error_type) if event.error_type else ""
                self._tool_s.labels(self.tool_label(event.name), error).observe(event.duration_s)

    def _event_children(self, name: str, source: str) -> tuple[Counter, Histogram]:
        """Counter and delay of one kind of event; looking labels up costs more than using them."""
        key = (_event_label(name), source)
        children = self._children.get(key)
        if children is None:
            children = self._children[key] = (
                self._events.labels(key[0], "accepted", source),
                self._event_delay_s.labels(key[0]),
            )
        return children

    def page(self) -> bytes:
        """The exposition page, Prometheus text format."""
        return generate_latest(self.registry)


class EngineCollector(Collector):
    """Reads the engine once per scrape. `observe` must be called on the event loop's thread."""

    def __init__(
        self,
        observe: Callable[[], Observation],
        honesty: Callable[[], ReadinessView],
        version: str,
        tool_label: BoundedLabel,
    ) -> None:
        self._observe = observe
        self._honesty = honesty
        self._version = version
        self._tool_label = tool_label

    def collect(self) -> Iterable[Metric]:
        """All families of one scrape."""
        observation = self._observe()
        yield _info(observation, self._version)
        yield _sessions(observation)
        yield self._tools(observation)
        yield _gauge("tao_turn_held", "Turns that wait for a lease.", len(observation.held))
        yield _gauge(
            "tao_turn_overdue",
            "Held turns of started sessions beyond the soft bound.",
            sum(held.overdue for held in observation.held),
        )
        yield from _counters(observation.counters)
        yield from _plans(observation.plans)
        yield from _readiness(self._honesty())
        yield from _backends(observation.backends)

    def _tools(self, observation: Observation) -> Metric:
        """Open calls by tool. Agents and models of one session id share theirs: counted once."""
        tools = {session.session_id: session.open_tools for session in observation.sessions}
        open_calls = Count(
            self._tool_label(call.name) for calls in tools.values() for call in calls
        )
        family = GaugeMetricFamily(
            "tao_tool_active", "Open tool calls.", labels=("gen_ai_tool_name",)
        )
        for name, number in open_calls.items():
            family.add_metric((name,), number)
        return family


def _event_label(name: str) -> str:
    return name if name in _EVENT_LABELS else OTHER


def _info(observation: Observation, version: str) -> Metric:
    family = GaugeMetricFamily("tao_coordinator_info", "Always 1.", labels=("version", "policy"))
    family.add_metric((version, observation.policy), 1)
    return family


def _sessions(observation: Observation) -> Metric:
    family = GaugeMetricFamily("tao_session_count", "Live sessions.", labels=("tao_session_state",))
    phases = Count(session.phase for session in observation.sessions)
    for phase in ("inference", "held", "tool", "wait", "idle"):
        family.add_metric((phase,), phases.get(phase, 0))
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counters(counters: Counters) -> Iterable[Metric]:
    for name, text, label, values in (
        ("tao_lease_granted", "Leases granted.", "reason", counters.granted),
        ("tao_lease_rejected", "Turns refused.", "reason", counters.rejected),
        ("tao_lease_released", "Leases over.", "outcome", counters.released),
    ):
        family = CounterMetricFamily(name, text, labels=(label,))
        for value, number in values.items():
            family.add_metric((value,), number)
        yield family
    for name, text, number in (
        ("tao_turn_abandoned", "Turns whose caller went away while held.", counters.abandoned),
        ("tao_seat_released", "Idle seats given up by price.", counters.seats_released),
        ("tao_tool_started", "Tool calls started.", counters.tool_starts),
        ("tao_tool_ended", "Tool calls ended.", counters.tool_ends),
        ("tao_tool_expired", "Tool calls whose end never came.", counters.tools_expired),
        ("tao_prompt_tokens", "Prompt tokens of released turns.", counters.prompt_tokens),
        ("tao_cached_tokens", "Of those, reported as cached.", counters.cached_tokens),
        (
            "tao_turn_served_elsewhere",
            "Turns that a gateway sent to another backend than the planned one.",
            counters.served_elsewhere,
        ),
    ):
        yield CounterMetricFamily(name, text, value=number)
    yield _gauge(
        "tao_turn_hold_started_max_seconds",
        "Longest hold of a started session.",
        counters.hold_started_s_max,
    )
    yield _gauge(
        "tao_turn_hold_new_max_seconds", "Longest hold of a new session.", counters.hold_new_s_max
    )


def _plans(plans: PlanTotals) -> Iterable[Metric]:
    made = CounterMetricFamily(
        "tao_plan",
        "Joint placement plans, by where they were made and what became of them.",
        labels=("path", "outcome"),
    )
    for (path, outcome), number in plans.made.items():
        made.add_metric((path, outcome), number)
    yield made
    yield CounterMetricFamily("tao_plan_solve_seconds", "Time spent on plans.", value=plans.solve_s)
    yield CounterMetricFamily(
        "tao_plan_value_tokens",
        "Cache credit of what was carried out of plans made beside the loop.",
        value=plans.value_tokens,
    )
    loss = CounterMetricFamily(
        "tao_plan_loss_tokens",
        "What making plans beside the loop cost at most, in cache credit (TAO, Eq. 12; drift"
        " counts twice).",
        labels=("term",),
    )
    for term, tokens in (
        ("feasibility_change", plans.feasibility_change_tokens),
        ("value_drift", plans.value_drift_tokens),
        ("execution_loss", plans.execution_loss_tokens),
        ("solver_gap", plans.solver_gap_tokens),
    ):
        loss.add_metric((term,), tokens)
    yield loss


def _readiness(readiness: ReadinessView) -> Iterable[Metric]:
    for name, text, value in (
        ("tao_readiness_forecasts", "Resolved readiness forecasts.", readiness.num_forecasts),
        ("tao_readiness_brier", "Mean squared error of their probabilities.", readiness.brier),
        (
            "tao_readiness_calibration_error",
            "Mean difference of probability and observed share.",
            readiness.calibration_error,
        ),
        (
            "tao_readiness_interval_coverage_ratio",
            "Share of idle times inside the stated 90 % interval.",
            readiness.interval_coverage,
        ),
    ):
        yield _gauge(name, text, value)


def _backends(backends: Sequence[BackendView]) -> Iterable[Metric]:
    columns: tuple[tuple[str, str, Callable[[BackendView], float | None]], ...] = (
        ("healthy", "1 while the backend answers.", lambda b: b.healthy),
        ("draining", "1 while it takes no new turn.", lambda b: b.draining),
        ("capacity_tokens", "KV pool.", lambda b: b.capacity_tokens),
        ("capacity_factor", "Correction by the controller.", lambda b: b.capacity_factor),
        ("budget_tokens", "What may be committed by plan.", lambda b: b.budget_tokens),
        ("committed_tokens", "Held seats and their reserve.", lambda b: b.committed_tokens),
        ("released_tokens", "Released seats.", lambda b: b.released_tokens),
        ("in_flight_tokens", "Tokens of running turns.", lambda b: b.in_flight_tokens),
        ("lease_active", "Running turns.", lambda b: b.num_in_flight),
        ("seat_count", "Seats, held and released.", lambda b: b.num_seats),
        ("shared_prefix_tokens", "Prefix counted once.", lambda b: b.shared_prefix_tokens),
        ("prefill_tokens_per_second", "Learned.", lambda b: b.prefill_tokens_per_s),
        ("requests_running", "By the engine's own count.", lambda b: b.running),
        ("requests_waiting", "By the engine's own count.", lambda b: b.waiting),
        ("kv_usage_ratio", "Referenced blocks.", lambda b: b.kv_usage_ratio),
        ("foreign_tokens", "Taken off the pool for others.", lambda b: b.foreign_tokens),
        ("foreign_requests", "Not the coordinator's own.", lambda b: b.num_foreign),
        ("sample_age_seconds", "Age of the last good sample.", lambda b: b.sample_age_s),
    )
    for name, text, read in columns:
        family = GaugeMetricFamily(f"tao_backend_{name}", text, labels=("backend",))
        for backend in backends:
            value = read(backend)
            if value is not None:
                family.add_metric((backend.backend_id,), float(value))
        yield family
