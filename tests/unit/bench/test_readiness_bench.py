"""The replay: order, lanes, and above all that nobody sees the future."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import recorded_sessions

from tao_coordinator.bench.readiness import ReadinessSettings, run, timeline
from tao_coordinator.core.events import Event, SessionEnded, ToolEnded, ToolStarted
from tao_coordinator.prediction.calibration import Calibration
from tao_coordinator.prediction.hazard import HazardPredictor
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.prediction.remaining import Point, Remaining, Source
from tao_coordinator.traces.files import load
from tao_coordinator.traces.records import SessionRecord, ToolRecord, Trace, TurnRecord


def session(name: str, durations_s: Sequence[float], *, tool: str = "Bash") -> SessionRecord:
    """Turns of 2 s, each followed by one call."""
    turns: list[TurnRecord] = []
    at_s = 0.0
    calls: tuple[ToolRecord, ...] = ()
    for number, duration_s in enumerate([*durations_s, None]):
        turns.append(
            TurnRecord(request_id=f"{name}:{number}", arrival_s=at_s, duration_s=2.0, tools=calls)
        )
        at_s += 2.0
        if duration_s is not None:
            call = ToolRecord(
                call_id=f"c{number}", tool=tool, key="make", start_s=at_s, duration_s=duration_s
            )
            calls = (call,)
            at_s += duration_s
    return SessionRecord(session_id=name, turns=tuple(turns), model="m")


def trace(*sessions: SessionRecord) -> Trace:
    return Trace(format="test", sessions=sessions)


@dataclass
class Spy:
    """Knows what it was told; answers by a rule of the test's."""

    oracle: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    events: list[tuple[float, Event]] = field(default_factory=list[tuple[float, Event]])
    asked: list[tuple[float, str, str | None]] = field(
        default_factory=list[tuple[float, str, str | None]]
    )

    def observe(self, event: Event, now_s: float) -> None:
        self.events.append((now_s, event))

    def turn_ended(self, session_id: str, now_s: float) -> None:
        pass

    def forget(self, session_id: str) -> None:
        pass

    def remaining(self, session_id: str, now_s: float, *, call_id: str | None = None) -> Remaining:
        self.asked.append((now_s, session_id, call_id))
        end_s = self.oracle.get((session_id, call_id or ""), math.inf)
        return Remaining(Point(max(0.0, end_s - now_s)), Source.PRIOR, "")

    def calibration(self) -> Calibration:
        return HazardPredictor().calibration()

    def export(self) -> dict[str, object]:
        return {}

    def merge(self, exported: Mapping[str, object]) -> None:
        pass


def play(found: Trace, spy: ReadinessPredictor, **changes: int) -> None:
    run(found, replace(ReadinessSettings(), **changes), factories={"spy": lambda: spy})


def test_events_come_in_order_and_ends_not_before_their_time() -> None:
    draw = random.Random(1)
    found = trace(*(session(f"s{n}", [draw.expovariate(0.2) for _ in range(5)]) for n in range(6)))
    spy = Spy()
    play(found, spy, lanes=3)
    times_s = [at_s for at_s, _ in spy.events]
    assert times_s == sorted(times_s)
    started: dict[tuple[str, str], float] = {}
    for at_s, event in spy.events:
        if isinstance(event, ToolStarted):
            started[event.session_id, event.call_id] = at_s
            assert event.remaining_s is None
        elif isinstance(event, ToolEnded):
            assert event.duration_s is not None
            begun_s = started.pop((event.session_id, event.call_id))
            assert at_s == pytest.approx(begun_s + event.duration_s)
    assert not started


def test_what_happens_later_changes_no_earlier_answer() -> None:
    """Two traces that agree up to 60 s: all that is asked until then gets the same answer."""

    class Recorder(HazardPredictor):
        def __init__(self) -> None:
            super().__init__()
            self.said: list[tuple[float, float]] = []

        def remaining(
            self, session_id: str, now_s: float, *, call_id: str | None = None
        ) -> Remaining:
            answer = super().remaining(session_id, now_s, call_id=call_id)
            self.said.append((now_s, answer.p_ready_by(1.0)))
            return answer

    draw = random.Random(5)
    common = [[draw.expovariate(0.1) for _ in range(4)] for _ in range(4)]
    said: list[list[tuple[float, float]]] = []
    for tail in (0.1, 50.0):
        sessions = [session(f"s{n}", [*first, 100.0, tail, tail]) for n, first in enumerate(common)]
        recorder = Recorder()
        play(trace(*sessions), recorder)
        said.append([item for item in recorder.said if item[0] < 60.0])
    assert len(said[0]) > 100
    assert said[0] == said[1]


def test_questions_are_asked_while_calls_run_and_only_while_they_are_young() -> None:
    spy = Spy()
    play(trace(session("s", [100.0])), spy, phases=1)
    ages_s = [at_s - 2.0 for at_s, _, call_id in spy.asked if call_id == "c0"]
    # Once at its start, once for the fact of its start, then at every whole second.
    assert ages_s == [0.0, 0.0, *(float(age) for age in range(1, 41))]


def test_more_phases_ask_between_the_seconds() -> None:
    spy = Spy()
    play(trace(session("s", [10.0])), spy, phases=4)
    ages_s = [at_s - 2.0 for at_s, _, call_id in spy.asked if call_id == "c0"]
    assert len(ages_s) == 2 + 39
    assert 0.25 in ages_s


def test_sub_agent_and_background_calls_are_not_asked_about() -> None:
    plain = session("s", [10.0], tool="Task")
    turn = plain.turns[1]
    background = replace(turn.tools[0], tool="Bash", background=True)
    other = replace(
        plain, session_id="b", turns=(plain.turns[0], replace(turn, tools=(background,)))
    )
    spy = Spy()
    play(trace(plain, other), spy)
    assert not [call_id for _, _, call_id in spy.asked if call_id]


def test_oracle_is_perfect_and_a_fool_is_not() -> None:
    draw = random.Random(3)
    found = trace(*(session(f"s{n}", [draw.expovariate(0.2) for _ in range(9)]) for n in range(9)))
    ends = {
        (fact.session_id, fact.event.call_id): fact.ends_s
        for fact in timeline(found.sessions, 32)
        if isinstance(fact.event, ToolStarted)
    }
    result = run(
        found, ReadinessSettings(), factories={"oracle": lambda: Spy(ends), "fool": lambda: Spy()}
    )
    oracle, fool = result.predictors["oracle"], result.predictors["fool"]
    assert (oracle.calls_at_ticks.f1, oracle.calls_at_ticks.auc) == (1.0, 1.0)
    assert (oracle.calls_at_events.f1, oracle.calls_at_events.brier) == (1.0, 0.0)
    assert oracle.at_start.mae_s == pytest.approx(0.0)
    assert fool.calls_at_ticks.auc == 0.5
    assert fool.calls_at_ticks.brier == pytest.approx(fool.calls_at_ticks.base_rate)


def test_lanes_bound_how_many_sessions_run_at_a_time() -> None:
    sessions = [session(f"s{n}", [5.0]) for n in range(7)]
    facts = timeline(sessions, 2)
    running: set[str] = set()
    for fact in facts:
        if isinstance(fact.event, SessionEnded):
            running.discard(fact.session_id)
        else:
            running.add(fact.session_id)
        assert len(running) <= 2
    assert {fact.session_id for fact in facts} == {s.session_id for s in sessions}


def test_sessions_with_an_arrival_time_start_then() -> None:
    late = replace(session("late", [5.0]), arrival_s=500.0)
    assert timeline([late], 1)[0].at_s == 500.0


def test_idle_times_alone_can_be_asked_about_too() -> None:
    turns = tuple(
        TurnRecord(request_id=str(n), arrival_s=12.0 * n, duration_s=2.0) for n in range(40)
    )
    found = trace(SessionRecord(session_id="s", turns=turns))
    result = run(found, ReadinessSettings())
    assert result.num_calls == 0
    hazard = result.predictors["hazard"].sessions_at_ticks
    assert hazard.count > 100
    assert hazard.auc > 0.85
    assert hazard.brier < result.predictors["paper"].sessions_at_ticks.brier


def test_hazard_beats_paper_on_heavy_tails_on_every_measure() -> None:
    draw = random.Random(11)
    sessions: list[SessionRecord] = []
    for number in range(40):
        calls = [0.05 * draw.paretovariate(0.55) for _ in range(25)]
        sessions.append(session(f"s{number}", [min(600.0, call) for call in calls]))
    result = run(trace(*sessions), ReadinessSettings())
    hazard, paper = result.predictors["hazard"], result.predictors["paper"]
    assert hazard.calls_at_ticks.f1 >= paper.calls_at_ticks.f1
    assert hazard.calls_at_ticks.auc > paper.calls_at_ticks.auc + 0.2
    assert hazard.calls_at_ticks.brier < paper.calls_at_ticks.brier / 2
    assert hazard.at_start.mae_s < paper.at_start.mae_s
    assert hazard.at_start.close_share > paper.at_start.close_share
    assert hazard.at_start.covered_share == pytest.approx(0.9, abs=0.05)


def test_only_sessions_of_one_model_and_known_predictors() -> None:
    found = trace(session("s", [1.0]))
    with pytest.raises(ValueError, match="no session of model 'other'"):
        run(found, ReadinessSettings(model="other"))
    with pytest.raises(ValueError, match="unknown predictor 'guess'"):
        run(found, ReadinessSettings(predictors=("guess",)))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("model", "f1", "auc"), [("cc-haiku", 0.70, 0.90), ("cc-glm47flash", 0.43, 0.85)]
)
def test_floors_on_recorded_sessions(model: str, f1: float, auc: float) -> None:
    recorded = Path(recorded_sessions.traces("swe")["swe"])
    result = run(load(recorded), ReadinessSettings(model=model))
    hazard, paper = result.predictors["hazard"], result.predictors["paper"]
    assert hazard.calls_at_ticks.f1 >= f1
    assert hazard.calls_at_ticks.auc >= auc
    assert hazard.calls_at_ticks.calibration_error <= 0.03
    assert hazard.at_start.covered_share == pytest.approx(0.9, abs=0.03)
    assert hazard.calls_at_ticks.f1 > paper.calls_at_ticks.f1
    assert hazard.calls_at_ticks.auc > paper.calls_at_ticks.auc
    assert hazard.calls_at_ticks.brier < paper.calls_at_ticks.brier
    assert hazard.at_start.mae_s < paper.at_start.mae_s
    assert hazard.at_start.close_share > paper.at_start.close_share
