"""`tao bench readiness`: replay a trace and ask, before it happens, who is about to return.

Sessions of the trace share one clock: `lanes` of them run at a time, each starting when an earlier
one is over (or at its own arrival time, where the trace has one). Predictors see starts when they
happen and durations only once they have passed. Questions are asked at ticks of 1 s (several series
of them, pooled: `phases`) and after every event: of each running call ("does it end within H?",
during its first `first_s` seconds), and of each idle session ("does it ask for a turn within H?").
"""

import gc
import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tao_coordinator.bench.readiness_score import (
    Forecast,
    ReadyScore,
    StartForecast,
    StartScore,
    by_tool,
    score_ready,
    score_starts,
)
from tao_coordinator.core.events import (
    Event,
    SessionEnded,
    ToolEnded,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.prediction.predictor import PREDICTORS, ReadinessPredictor
from tao_coordinator.traces.records import SessionRecord, ToolRecord, Trace

SUB_AGENT_TOOLS: Final = ("Task", "Agent")
"""Calls with a model inside; left out of questions."""
LANE_GAP_S: Final = 0.5
TOOL_QUESTIONS_MIN: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessSettings:
    """What is asked."""

    horizon_s: float = 1.0
    first_s: float = 40.0
    """Calls and idle sessions are asked about up to this age."""
    lanes: int = 32
    """Sessions at a time."""
    phases: int = 4
    """Series of ticks, 1 s apart each, pooled: which phase a call meets is chance."""
    model: str | None = None
    """Only sessions of this model."""
    left_out_tools: tuple[str, ...] = SUB_AGENT_TOOLS
    predictors: tuple[str, ...] = tuple(PREDICTORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorResult:
    """Figures of one predictor."""

    calls_at_ticks: ReadyScore
    calls_at_events: ReadyScore
    sessions_at_ticks: ReadyScore
    at_start: StartScore
    by_tool: dict[str, ReadyScore]
    update_us: float
    """Mean processor time of one event."""
    query_us: float
    """Mean processor time of one question: the answer, P(ready by H) and the median."""
    calibration: dict[str, object]
    """What the predictor reports about itself."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "calls_at_ticks": self.calls_at_ticks.to_json(),
            "calls_at_events": self.calls_at_events.to_json(),
            "sessions_at_ticks": self.sessions_at_ticks.to_json(),
            "at_start": self.at_start.to_json(),
            "by_tool": {tool: score.to_json() for tool, score in self.by_tool.items()},
            "update_us": self.update_us,
            "query_us": self.query_us,
            "calibration": self.calibration,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessResult:
    """Figures of all predictors on one trace."""

    num_sessions: int
    num_calls: int
    predictors: dict[str, PredictorResult]

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "num_sessions": self.num_sessions,
            "num_calls": self.num_calls,
            "predictors": {name: result.to_json() for name, result in self.predictors.items()},
        }


def run(
    trace: Trace,
    settings: ReadinessSettings,
    on_progress: Callable[[str], None] = lambda _: None,
    factories: dict[str, Callable[[], ReadinessPredictor]] | None = None,
) -> ReadinessResult:
    """Replay and score.

    Args:
        trace: what happened.
        settings: what to ask.
        on_progress: told what happens, in words.
        factories: predictors by name instead of `settings.predictors`.

    Raises:
        ValueError: no session to replay, or an unknown predictor.
    """
    sessions = [s for s in trace.sessions if settings.model in (None, s.model)]
    if not sessions:
        raise ValueError(f"no session of model {settings.model!r} in this trace")
    makers = factories
    if makers is None:
        unknown = set(settings.predictors) - set(PREDICTORS)
        if unknown:
            raise ValueError(f"unknown predictor {min(unknown)!r}; known: {', '.join(PREDICTORS)}")
        makers = {name: PREDICTORS[name] for name in settings.predictors}
    facts = timeline(sessions, settings.lanes)
    results: dict[str, PredictorResult] = {}
    # The collector would walk over the growing pile of answers and be counted as the predictor's.
    gc.disable()
    try:
        for name, maker in makers.items():
            on_progress(f"replaying {len(sessions)} sessions, {len(facts)} facts: {name}")
            results[name] = _Replay(maker(), settings).run(facts)
    finally:
        gc.enable()
    num_calls = sum(isinstance(fact.event, ToolStarted) for fact in facts)
    return ReadinessResult(num_sessions=len(sessions), num_calls=num_calls, predictors=results)


# --- the timeline ---------------------------------------------------------------------------------


class Fact(NamedTuple):
    """Something that happens at a time; what it reveals about the future is for the judge only."""

    at_s: float
    order: int
    """Among facts of one instant: ends, turns, replies, starts, ends of sessions."""
    session_id: str
    event: Event | None
    """`None`: a reply is complete."""
    ends_s: float = 0.0
    """Of a tool start: when the call will end. Of a reply: when the session asks again."""


_ENDS, _TURN, _REPLY, _STARTS, _OVER = range(5)


def timeline(sessions: Sequence[SessionRecord], lanes: int) -> list[Fact]:
    """All facts of all sessions on one clock, in order."""
    free_s = [0.37 * lane for lane in range(max(1, lanes))]
    heapq.heapify(free_s)
    facts: list[Fact] = []
    for session in sessions:
        start_s = session.arrival_s
        if start_s is None:
            start_s = heapq.heappop(free_s)
            heapq.heappush(free_s, start_s + _length_s(session) + LANE_GAP_S)
        own = list(_facts_of(session, start_s))
        over_s = max((fact.at_s for fact in own), default=start_s)
        name = session.session_id
        facts += [*own, Fact(over_s, _OVER, name, SessionEnded(session_id=name))]
    # Stable: facts of one session that share time and kind keep their order.
    facts.sort(key=lambda fact: (fact.at_s, fact.order))
    return facts


def _length_s(session: SessionRecord) -> float:
    last_s = max((turn.arrival_s + (turn.duration_s or 0.0) for turn in session.turns), default=0.0)
    return max([last_s, *(tool.end_s for turn in session.turns for tool in turn.tools)])


def _facts_of(session: SessionRecord, start_s: float) -> Iterator[Fact]:
    name = session.session_id
    turns = session.turns
    number = 0
    for index, turn in enumerate(turns):
        arrival_s = start_s + turn.arrival_s
        request = TurnRequested(request_id=turn.request_id, session_id=name)
        yield Fact(arrival_s, _TURN, name, request)
        next_s = start_s + turns[index + 1].arrival_s if index + 1 < len(turns) else float("inf")
        reply_s = min(arrival_s + (turn.duration_s or 0.0), next_s)
        yield Fact(reply_s, _REPLY, name, None, next_s)
        for tool in turn.tools:
            number += 1
            yield from _tool_facts(name, tool, tool.call_id or f"call-{number}", start_s)


def _tool_facts(name: str, tool: ToolRecord, call_id: str, start_s: float) -> Iterator[Fact]:
    begins_s, ends_s = start_s + tool.start_s, start_s + tool.end_s
    started = ToolStarted(
        session_id=name,
        call_id=call_id,
        name=tool.tool,
        key=tool.key,
        timeout_s=tool.timeout_s,
        background=tool.background,
    )
    ended = ToolEnded(
        session_id=name,
        call_id=call_id,
        name=tool.tool,
        key=tool.key,
        duration_s=tool.duration_s,
        error_type="error" if tool.is_error else None,
    )
    yield Fact(begins_s, _STARTS, name, started, ends_s)
    # An end never comes before its start, not even for a call of no duration.
    yield Fact(ends_s, _ENDS if ends_s > begins_s else _STARTS, name, ended)


# --- the replay -----------------------------------------------------------------------------------


class _Running(NamedTuple):
    session_id: str
    call_id: str
    tool: str
    started_s: float
    ends_s: float


@dataclass(slots=True)
class _Answers:
    calls_at_ticks: list[Forecast] = field(default_factory=list[Forecast])
    calls_at_events: list[Forecast] = field(default_factory=list[Forecast])
    sessions_at_ticks: list[Forecast] = field(default_factory=list[Forecast])
    starts: list[StartForecast] = field(default_factory=list[StartForecast])


class _Replay:
    """One predictor over one timeline."""

    def __init__(self, predictor: ReadinessPredictor, settings: ReadinessSettings) -> None:
        self._predictor = predictor
        self._settings = settings
        self._running: dict[tuple[str, str], _Running] = {}
        self._idle: dict[str, tuple[float, float]] = {}
        """Idle sessions: since when, and until when."""
        self._answers = _Answers()
        self._update_s = 0.0
        self._query_s = 0.0
        self._num_queries = 0

    def run(self, facts: Sequence[Fact]) -> PredictorResult:
        phases = self._settings.phases
        number = int(facts[0].at_s * phases) if facts else 0
        for fact in facts:
            if not self._running and not self._idle:
                number = max(number, int(fact.at_s * phases))
            while number / phases <= fact.at_s:
                self._tick(number / phases)
                number += 1
            self._take(fact)
        return self._result(facts)

    def _take(self, fact: Fact) -> None:
        started_s = time.thread_time()
        if fact.event is None:
            self._predictor.turn_ended(fact.session_id, fact.at_s)
        else:
            self._predictor.observe(fact.event, fact.at_s)
        self._update_s += time.thread_time() - started_s
        self._follow(fact)
        for running in self._running.values():
            answer = self._ask(running, fact.at_s)
            if answer is not None:
                self._answers.calls_at_events.append(answer)

    def _follow(self, fact: Fact) -> None:
        """What the judge knows: who runs, who is idle, and until when."""
        event, name = fact.event, fact.session_id
        if event is None:
            self._idle[name] = (fact.at_s, fact.ends_s)
        elif isinstance(event, TurnRequested | SessionEnded):
            self._idle.pop(name, None)
        elif isinstance(event, ToolEnded):
            self._running.pop((name, event.call_id), None)
        elif isinstance(event, ToolStarted) and not event.background:
            if event.name in self._settings.left_out_tools:
                return
            call = _Running(name, event.call_id, event.name, fact.at_s, fact.ends_s)
            self._running[name, event.call_id] = call
            answer = self._predictor.remaining(name, fact.at_s, call_id=event.call_id)
            duration_s = fact.ends_s - fact.at_s
            self._answers.starts.append(
                StartForecast(fact.at_s, event.name, answer.median_s, answer.interval_s, duration_s)
            )

    def _tick(self, now_s: float) -> None:
        for running in self._running.values():
            answer = self._ask(running, now_s)
            if answer is not None:
                self._answers.calls_at_ticks.append(answer)
        if not now_s.is_integer():
            return  # idle sessions outnumber running calls: one series is enough
        settings = self._settings
        for name, (since_s, until_s) in list(self._idle.items()):
            if now_s - since_s > settings.first_s:
                del self._idle[name]
            elif until_s > now_s:
                probability, median_s = self._query(name, None, now_s)
                is_ready = until_s - now_s <= settings.horizon_s
                self._answers.sessions_at_ticks.append(
                    Forecast("", probability, median_s, is_ready)
                )

    def _ask(self, running: _Running, now_s: float) -> Forecast | None:
        if now_s - running.started_s > self._settings.first_s or running.ends_s <= now_s:
            return None
        probability, median_s = self._query(running.session_id, running.call_id, now_s)
        is_over = running.ends_s - now_s <= self._settings.horizon_s
        return Forecast(running.tool, probability, median_s, is_over)

    def _query(self, name: str, call_id: str | None, now_s: float) -> tuple[float, float]:
        started_s = time.thread_time()
        answer = self._predictor.remaining(name, now_s, call_id=call_id)
        probability = answer.p_ready_by(self._settings.horizon_s)
        median_s = answer.median_s
        self._query_s += time.thread_time() - started_s
        self._num_queries += 1
        return probability, median_s

    def _result(self, facts: Sequence[Fact]) -> PredictorResult:
        answers = self._answers
        at_ticks = score_ready(answers.calls_at_ticks)
        cut = len(answers.starts) // 3
        return PredictorResult(
            calls_at_ticks=at_ticks,
            calls_at_events=score_ready(answers.calls_at_events),
            sessions_at_ticks=score_ready(answers.sessions_at_ticks),
            at_start=score_starts(answers.starts[cut:]),
            by_tool=by_tool(answers.calls_at_ticks, at_ticks.threshold, TOOL_QUESTIONS_MIN),
            update_us=1e6 * self._update_s / max(1, len(facts)),
            query_us=1e6 * self._query_s / max(1, self._num_queries),
            calibration=self._predictor.calibration().to_json(),
        )
