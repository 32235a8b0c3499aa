"""The default predictor against closed forms, and properties over arbitrary histories."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_coordinator.core.events import (
    Event,
    SessionDeadlineSet,
    SessionEnded,
    SessionHeartbeat,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.prediction import hazard as module
from tao_coordinator.prediction.hazard import HazardPredictor
from tao_coordinator.prediction.predictor import PREDICTORS, ReadinessPredictor
from tao_coordinator.prediction.remaining import Source


class World:
    """Feeds a predictor with whole calls, one after the other."""

    def __init__(self) -> None:
        self.predictor = HazardPredictor()
        self.now_s = 0.0
        self._num = 0

    def call(
        self,
        duration_s: float,
        *,
        session: str | None = None,
        key: str = "make",
        timeout_s: float | None = None,
        remaining_s: float | None = None,
    ) -> None:
        """One call from start to end; by default of a session of its own."""
        self._num += 1
        name = session or f"past-{self._num}"
        self.start(name, f"call-{self._num}", key=key, timeout_s=timeout_s, remaining_s=remaining_s)
        self.now_s += duration_s
        self.see(ToolEnded(session_id=name, call_id=f"call-{self._num}"))

    def start(
        self,
        session: str = "s",
        call_id: str = "c",
        *,
        tool: str = "Bash",
        key: str = "make",
        timeout_s: float | None = None,
        remaining_s: float | None = None,
    ) -> None:
        self.see(
            ToolStarted(
                session_id=session,
                call_id=call_id,
                name=tool,
                key=key,
                timeout_s=timeout_s,
                remaining_s=remaining_s,
            )
        )

    def see(self, event: Event) -> None:
        self.predictor.observe(event, self.now_s)

    def p(self, age_s: float, horizon_s: float = 1.0) -> float:
        """P(the call that starts now ends within the horizon, at that age)."""
        return self.predictor.remaining("s", self.now_s + age_s).p_ready_by(horizon_s)


# --- closed forms --------------------------------------------------------------------------------


def test_exponential_history_gives_the_same_hazard_at_every_age() -> None:
    draw = random.Random(1)
    world = World()
    for _ in range(900):
        world.call(draw.expovariate(1 / 5.0))
    world.start()
    expected = 1.0 - math.exp(-1.0 / 5.0)
    for age_s in (0.0, 1.0, 3.0, 6.0, 10.0):
        assert world.p(age_s) == pytest.approx(expected, abs=0.05)
    median_s = world.predictor.remaining("s", world.now_s + 4.0).median_s
    assert median_s == pytest.approx(5.0 * math.log(2.0), rel=0.2)


def test_deterministic_history_says_when_to_within_a_bucket() -> None:
    world = World()
    for _ in range(300):
        world.call(10.0)
    world.start()
    low_s, high_s = world.predictor.remaining("s", world.now_s).interval_s
    assert 6.0 < low_s < 10.0 < high_s < 15.0
    assert world.p(2.0) < 0.05
    assert world.predictor.remaining("s", world.now_s + 2.0).median_s == pytest.approx(8.0, rel=0.3)
    # 10 s lies in the bucket 8.5..10.6 s, and a quarter of each end is spread to both sides.
    assert world.p(6.0, 7.5) > 0.9


def test_past_everything_ever_seen_the_future_is_as_long_as_the_past() -> None:
    world = World()
    for _ in range(300):
        world.call(10.0)
    world.start()
    assert world.predictor.remaining("s", world.now_s + 100.0).median_s > 50.0
    assert world.p(100.0) < 0.02


def test_mixture_is_quick_or_killed_by_its_time_out() -> None:
    """70 % end at 0.5 s; the rest would run for ever and are killed at 30 s."""
    draw = random.Random(2)
    world = World()
    for _ in range(600):
        world.call(0.5 if draw.random() < 0.7 else 30.02, timeout_s=30.0)
    world.start(timeout_s=30.0)
    assert world.p(0.0) == pytest.approx(0.7, abs=0.06)
    assert world.p(2.0) < 0.1
    answer = world.predictor.remaining("s", world.now_s + 5.0)
    assert answer.median_s == pytest.approx(25.0, abs=0.01)
    assert answer.quantile(0.999) == pytest.approx(25.0, abs=0.01)
    assert world.p(29.2) == 1.0


def test_a_kill_says_nothing_about_calls_with_another_time_out() -> None:
    killed, ended = World(), World()
    for world, timeout_s in ((killed, 30.0), (ended, None)):
        for _ in range(100):
            world.call(30.0, timeout_s=timeout_s)
        world.start(timeout_s=600.0)
    assert ended.p(20.0, 22.0) > 0.9
    assert killed.p(20.0, 22.0) < 0.4


def test_time_out_that_nobody_enforces_is_not_taken_for_a_kill() -> None:
    world = World()
    for _ in range(100):
        world.call(60.0, timeout_s=10.0)
    world.start()
    assert world.predictor.remaining("s", world.now_s).median_s == pytest.approx(60.0, rel=0.3)


def test_past_its_time_out_an_end_is_expected_ever_later() -> None:
    world = World()
    world.start(timeout_s=30.0)
    soon, later = world.p(30.5), world.p(50.0)
    assert 0.3 < soon < 0.6
    assert later < 0.1
    assert world.predictor.remaining("s", world.now_s + 31.0).source is Source.DEADLINE


# --- evidence and back-off -----------------------------------------------------------------------


def test_answer_says_whose_history_it_is() -> None:
    world = World()
    world.start("s", "c")
    levels: list[tuple[Source, str]] = []

    def note() -> None:
        answer = world.predictor.remaining("s", world.now_s)
        levels.append((answer.source, answer.level))

    note()
    for _ in range(6):
        world.see(ToolEnded(session_id="x", call_id="x", name="Read", key="", duration_s=0.1))
    note()
    for key in ("make", "ls"):
        for _ in range(6):
            world.call(3.0, key=key)
        note()
    world.call(3.0, session="s")
    note()
    assert levels == [
        (Source.PRIOR, ""),
        (Source.HISTORY, "all"),
        (Source.HISTORY, "key"),
        (Source.HISTORY, "key"),
        (Source.HISTORY, "session"),
    ]


def test_own_recent_calls_pull_the_answer_but_weakly() -> None:
    world = World()
    for _ in range(300):
        world.call(1.0)
    world.start()
    before = world.p(0.0, 2.0)
    world.see(ToolEnded(session_id="s", call_id="c", duration_s=60.0))
    after: list[float] = []
    for number in range(8):
        world.start("s", f"again-{number}")
        after.append(world.p(0.0, 2.0))
        world.see(ToolEnded(session_id="s", call_id=f"again-{number}", duration_s=60.0))
    assert before > 0.95
    assert after == sorted(after, reverse=True)
    # Four own calls at most against four pseudo-counts in each bucket.
    assert 0.3 < after[-1] < 0.9
    assert after[-1] == pytest.approx(after[-2])


def test_key_matters_more_than_its_tool() -> None:
    world = World()
    for _ in range(50):
        world.call(0.1, key="ls")
        world.call(100.0, key="make")
    world.start("s", "c", key="ls")
    world.start("t", "c", key="make")
    assert world.p(0.0) > 0.9
    assert world.predictor.remaining("t", world.now_s).median_s == pytest.approx(100.0, rel=0.3)


def test_running_calls_of_others_count_while_they_hang() -> None:
    """The key used to take 3 s; now twenty calls of other sessions have been running for 100 s."""
    quiet, hanging = World(), World()
    for world in (quiet, hanging):
        for _ in range(10):
            world.call(3.0)
    for number in range(20):
        hanging.start(f"other-{number}", "c")
    for world in (quiet, hanging):
        world.now_s += 100.0
        world.start()
    assert quiet.p(0.0, 5.0) > 0.5
    assert hanging.p(0.0, 5.0) < 0.35


def test_questions_change_no_later_answer() -> None:
    asked, silent = World(), World()
    for world in (asked, silent):
        for number in range(30):
            world.start(f"o{number}", "c", key="ls")
            for _ in range(8):
                world.now_s += 1.0
                if world is asked:
                    world.predictor.remaining(f"o{number}", world.now_s).keep_limit_s(30.0)
                    world.predictor.remaining("unknown", world.now_s)
            world.see(ToolEnded(session_id=f"o{number}", call_id="c"))
        world.start()
    assert asked.p(2.0) == silent.p(2.0)
    assert asked.predictor.export() == silent.predictor.export()


def test_drift_is_followed() -> None:
    world = World()
    for _ in range(1500):
        world.call(1.0)
    for _ in range(1500):
        world.call(40.0)
    world.start()
    assert world.predictor.remaining("s", world.now_s).median_s == pytest.approx(40.0, rel=0.3)


# --- stated times --------------------------------------------------------------------------------


def test_stated_remaining_time_overrides_history() -> None:
    world = World()
    for _ in range(100):
        world.call(1.0)
    world.start(remaining_s=60.0)
    answer = world.predictor.remaining("s", world.now_s + 10.0)
    assert answer.source is Source.DEADLINE
    assert answer.median_s == pytest.approx(50.0, rel=0.1)
    assert answer.keep_limit_s(20.0) == 0.0
    assert answer.keep_limit_s(120.0) > 50.0


def test_progress_overrides_history_too() -> None:
    world = World()
    world.start()
    world.now_s += 30.0
    world.see(ToolProgressed(session_id="s", call_id="c", ratio=0.5))
    answer = world.predictor.remaining("s", world.now_s)
    assert answer.source is Source.PROGRESS
    assert answer.median_s == pytest.approx(30.0, rel=0.15)


def test_emitter_that_always_promises_too_little_is_believed_for_what_it_is() -> None:
    world = World()
    for _ in range(60):
        world.call(100.0, remaining_s=10.0)
    world.start(remaining_s=10.0)
    assert world.predictor.remaining("s", world.now_s).median_s == pytest.approx(100.0, rel=0.2)


def test_precise_emitter_is_believed_to_the_second() -> None:
    world = World()
    for _ in range(200):
        world.call(60.0, remaining_s=60.0)
    world.start(remaining_s=60.0)
    assert world.p(50.0) < 0.1
    assert world.p(58.0, 4.0) > 0.85


def test_stated_time_is_bounded_by_the_time_out() -> None:
    world = World()
    world.start(timeout_s=20.0, remaining_s=500.0)
    assert world.predictor.remaining("s", world.now_s + 5.0).quantile(0.99) == pytest.approx(15.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e300, 0.0])
def test_absurd_stated_times_and_time_outs_do_no_harm(value: float) -> None:
    world = World()
    world.start("s", "a", remaining_s=value)
    world.start("s", "b", timeout_s=value)
    world.see(ToolProgressed(session_id="s", call_id="b", ratio=value))
    world.see(SessionWaiting(session_id="t", expected_duration_s=value))
    world.see(SessionDeadlineSet(session_id="u", remaining_s=value))
    for name in "stu":
        answer = world.predictor.remaining(name, world.now_s + 3.0)
        assert 0.0 <= answer.p_ready_by(1.0) <= 1.0
        assert answer.median_s >= 0.0
        assert 0.0 <= answer.idle_cost_s(30.0) <= 30.0
    world.now_s += 10.0
    for call_id in "ab":
        world.see(ToolEnded(session_id="s", call_id=call_id, duration_s=value))
    for name in "stu":
        world.see(TurnRequested(request_id="r", session_id=name))
    world.start("v", "a", remaining_s=5.0)
    assert 0.0 <= world.predictor.remaining("v", world.now_s).p_ready_by(1.0) <= 1.0


def test_deadline_of_the_session_overrides_its_calls() -> None:
    world = World()
    world.start()
    world.see(SessionDeadlineSet(session_id="s", remaining_s=40.0))
    answer = world.predictor.remaining("s", world.now_s)
    assert answer.source is Source.DEADLINE
    assert answer.median_s == pytest.approx(40.0, rel=0.1)
    world.see(SessionDeadlineSet(session_id="s", remaining_s=0.0))
    assert world.p(0.0) > 0.9


# --- what a session waits for --------------------------------------------------------------------


def test_session_returns_when_the_last_of_its_calls_ends() -> None:
    world = World()
    for _ in range(100):
        world.call(0.1, key="ls")
        world.call(50.0, key="make")
    world.start("s", "quick", key="ls")
    assert world.p(0.0) > 0.9
    world.start("s", "slow", key="make")
    assert world.p(0.0) < 0.1
    both = world.predictor.remaining("s", world.now_s)
    assert both.median_s == pytest.approx(50.0, rel=0.3)
    alone = world.predictor.remaining("s", world.now_s, call_id="quick")
    assert alone.p_ready_by(1.0) > 0.9


def test_parallel_calls_are_independent() -> None:
    draw = random.Random(3)
    world = World()
    for _ in range(400):
        world.call(draw.expovariate(1 / 5.0))
    world.start("s", "one")
    single = world.p(0.0, 3.0)
    world.start("s", "two")
    assert world.p(0.0, 3.0) == pytest.approx(single**2)


def test_background_call_is_not_waited_for() -> None:
    world = World()
    event = ToolStarted(session_id="s", call_id="b", name="Bash", key="server", background=True)
    world.see(event)
    world.start("s", "c", key="ls")
    world.see(ToolEnded(session_id="s", call_id="c"))
    world.see(TurnRequested(request_id="r", session_id="s"))
    assert world.predictor.remaining("s", world.now_s).source is Source.TURN
    assert world.p(0.0, 0.0) == 1.0


def test_after_its_tools_a_session_is_as_good_as_back() -> None:
    world = World()
    for number in range(50):
        name = f"p{number}"
        world.call(2.0, session=name)
        world.now_s += 0.02
        world.see(TurnRequested(request_id=name, session_id=name))
    world.start()
    world.now_s += 2.0
    world.see(ToolEnded(session_id="s", call_id="c"))
    assert world.p(0.0) > 0.9
    # ... but one that has not come back for a minute will not come within the next second.
    assert world.p(60.0) < 0.1


def test_waits_for_a_person_have_a_history_of_their_own() -> None:
    world = World()
    for number in range(60):
        name = f"p{number}"
        world.call(0.5, session=name)
        world.see(SessionWaiting(session_id=name, reason="approval"))
        world.now_s += 90.0
        world.see(TurnRequested(request_id=name, session_id=name))
    world.see(SessionWaiting(session_id="s", reason="approval"))
    assert world.predictor.remaining("s", world.now_s).median_s == pytest.approx(90.0, rel=0.3)
    world.start("t", "c")
    assert world.predictor.remaining("t", world.now_s).median_s < 1.0


def test_announced_wait_is_a_deadline() -> None:
    world = World()
    world.see(SessionWaiting(session_id="s", reason="cron", expected_duration_s=300.0))
    answer = world.predictor.remaining("s", world.now_s)
    assert answer.source is Source.DEADLINE
    assert answer.median_s == pytest.approx(300.0, rel=0.1)


def test_unknown_session_gets_the_answer_of_a_session_that_has_just_replied() -> None:
    world = World()
    answer = world.predictor.remaining("nobody", 0.0)
    assert (answer.source, answer.level) == (Source.PRIOR, "")
    for number in range(50):
        name = f"p{number}"
        world.predictor.turn_ended(name, world.now_s)
        world.now_s += 20.0
        world.see(TurnRequested(request_id=name, session_id=name))
    answer = world.predictor.remaining("nobody", world.now_s)
    assert answer.source is Source.HISTORY
    assert answer.median_s == pytest.approx(20.0, rel=0.3)


def test_lost_calls_do_not_keep_a_session_away() -> None:
    world = World()
    world.start(timeout_s=10.0)
    world.now_s += 5.0
    world.see(SessionHeartbeat(session_id="s", open_call_ids=()))
    world.see(TurnRequested(request_id="r", session_id="s"))
    assert world.p(0.0) == 1.0
    world.predictor.turn_ended("s", world.now_s)
    world.start("s", "lost", timeout_s=10.0)
    world.see(TurnRequested(request_id="r2", session_id="s"))
    assert world.p(41.0) == 1.0


def test_forgotten_session_leaves_nothing_behind() -> None:
    world = World()
    world.start()
    world.predictor.forget("s")
    world.start()
    world.see(SessionEnded(session_id="s"))
    assert world.predictor.remaining("s", world.now_s).source is Source.PRIOR


# --- properties ----------------------------------------------------------------------------------

durations = st.floats(0.0, 400.0)
steps = st.lists(
    st.tuples(
        st.sampled_from(["start", "end", "progress", "wait", "turn", "reply", "deadline"]),
        st.sampled_from("xyz"),
        st.sampled_from(["a", "b"]),
        durations,
    ),
    max_size=40,
)


def play(history: Sequence[tuple[str, str, str, float]]) -> World:
    world = World()
    for kind, session, call_id, value in history:
        world.now_s += value / 40.0
        match kind:
            case "start":
                timeout_s = value if call_id == "a" and value > 200.0 else None
                world.start(session, call_id, timeout_s=timeout_s)
            case "end":
                world.see(ToolEnded(session_id=session, call_id=call_id))
            case "progress":
                ratio = min(1.0, value / 400.0)
                world.see(ToolProgressed(session_id=session, call_id=call_id, ratio=ratio))
            case "wait":
                world.see(SessionWaiting(session_id=session, reason=call_id))
            case "turn":
                world.see(TurnRequested(request_id="r", session_id=session))
            case "reply":
                world.predictor.turn_ended(session, world.now_s)
            case _:
                world.see(SessionDeadlineSet(session_id=session, remaining_s=value))
    return world


@settings(max_examples=60)
@given(steps, st.sampled_from("xyz"), durations, st.floats(0.0, 60.0), st.floats(0.0, 60.0))
def test_any_history_gives_an_answer_that_is_monotone_in_the_horizon(
    history: list[tuple[str, str, str, float]],
    session: str,
    later_s: float,
    horizon_s: float,
    more_s: float,
) -> None:
    world = play(history)
    answer = world.predictor.remaining(session, world.now_s + later_s)
    assert 0.0 <= answer.p_ready_by(horizon_s) <= answer.p_ready_by(horizon_s + more_s) + 1e-12
    assert answer.p_ready_by(horizon_s + more_s) <= 1.0 + 1e-12
    # Quantiles count from now, so an estimate of the whole duration is never below the elapsed.
    assert 0.0 <= answer.quantile(0.1) <= answer.median_s * 1.002 + 1e-9
    low_s, high_s = answer.interval_s
    assert 0.0 <= low_s <= high_s
    assert 0.0 <= answer.idle_cost_s(30.0) <= 30.0 + 1e-9
    assert answer.keep_limit_s(30.0) >= 0.0


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["ls", "make"]), durations), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_order_of_independent_sessions_changes_nothing(
    calls: list[tuple[str, float]], draw: random.Random
) -> None:
    """The same calls at the same times; what happens at one instant comes in another order."""

    def events(order: Sequence[int]) -> list[tuple[float, Event]]:
        found: list[tuple[float, Event]] = []
        for number in order:
            key, duration_s = calls[number]
            name = f"p{number}"
            start = ToolStarted(session_id=name, call_id="c", name="Bash", key=key)
            found += [(0.0, start), (duration_s, ToolEnded(session_id=name, call_id="c"))]
        return sorted(found, key=lambda item: item[0])

    order = list(range(len(calls)))
    shuffled = list(order)
    draw.shuffle(shuffled)
    answers: list[list[float]] = []
    for one in (order, shuffled):
        predictor = HazardPredictor()
        for at_s, event in events(one):
            predictor.observe(event, at_s)
        start = ToolStarted(session_id="s", call_id="c", name="Bash", key="make")
        predictor.observe(start, 1000.0)
        answers.append(
            [predictor.remaining("s", 1000.0 + age_s).p_ready_by(1.0) for age_s in (0.0, 2.0, 50.0)]
        )
    assert answers[0] == answers[1]


@settings(max_examples=40)
@given(st.lists(durations, min_size=1, max_size=20), st.floats(1.2, 400.0))
def test_another_call_that_still_runs_never_shortens_the_estimate(
    past_s: list[float], running_s: float
) -> None:
    medians_s: list[float] = []
    for has_running in (False, True):
        world = World()
        for duration_s in past_s:
            world.call(duration_s)
        if has_running:
            world.start("other", "c")
        world.now_s += running_s
        world.start()
        medians_s.append(world.predictor.remaining("s", world.now_s).median_s)
    assert medians_s[1] >= medians_s[0] - 1e-9


# --- calibration, restarts, bounds ---------------------------------------------------------------


def test_reported_reliability_is_that_of_the_forecasts() -> None:
    draw = random.Random(7)
    world = World()
    for _ in range(750):
        world.call(draw.lognormvariate(0.5, 1.2))
        world.call(draw.expovariate(5.0), key="ls")
    report = world.predictor.calibration()
    total = report.by_source["total"]
    # Asked at the start of each call, and again at 1 s and each tripling of its age.
    assert total.count > 1500.0
    assert total.calibration_error < 0.04
    assert 0.0 < total.brier < 0.8 * total.base_rate * (1.0 - total.base_rate)
    assert report.coverage.count == 1500.0
    assert report.coverage.covered == pytest.approx(0.9, abs=0.03)
    by_source = [r.count for name, r in report.by_source.items() if name != "total"]
    assert sum(by_source) == total.count
    plain = report.to_json()
    assert plain["horizon_s"] == 1.0


def test_interval_keeps_its_coverage_when_durations_drift() -> None:
    draw = random.Random(8)
    world = World()
    inside = 0
    for number in range(3000):
        scale = 1.0 if number < 1000 else 8.0
        duration_s = scale * draw.lognormvariate(0.0, 0.8)
        world.start(f"n{number}", "c")
        low_s, high_s = world.predictor.remaining(f"n{number}", world.now_s).interval_s
        inside += number >= 1500 and low_s <= duration_s <= high_s
        world.now_s += duration_s
        world.see(ToolEnded(session_id=f"n{number}", call_id="c"))
    assert inside / 1500 == pytest.approx(0.9, abs=0.04)


def test_export_survives_a_restart_and_merges_with_what_was_learned_meanwhile() -> None:
    old, new = World(), World()
    for _ in range(100):
        old.call(30.0, remaining_s=10.0)
        old.call(30.0)
        new.call(30.0, key="other")
    new.predictor.merge(old.predictor.export())
    new.start()
    old.start()
    expected_s = old.predictor.remaining("s", old.now_s).median_s
    assert new.predictor.remaining("s", new.now_s).median_s == pytest.approx(expected_s, rel=0.05)
    new.start("t", "c", remaining_s=10.0)
    assert new.predictor.remaining("t", new.now_s).median_s == pytest.approx(30.0, rel=0.2)


def test_damaged_export_changes_nothing() -> None:
    world = World()
    for _ in range(10):
        world.call(1.0)
    before = world.predictor.export()
    bad = {**HazardPredictor().export(), "told": {"version": 0}}
    for damaged in ({}, bad, {**before, "pauses": 3}):
        with pytest.raises(ValueError, match="history"):
            world.predictor.merge(damaged)
    assert world.predictor.export() == before


def test_memory_of_a_session_is_bounded() -> None:
    world = World()
    for number in range(200):
        world.call(1.0, session="s", key=f"key {number}")
    track = world.predictor._tracker.get("s")
    assert track is not None
    assert len(track.recent) <= module.RECENT_KEYS_MAX
    assert all(len(recent) <= module.RECENT_MAX for recent in track.recent.values())


def test_closed_calls_leave_the_watch_list() -> None:
    world = World()
    for number in range(500):
        world.call(0.3, session="s")
        world.see(TurnRequested(request_id=f"{number}", session_id="s"))
        world.predictor.turn_ended("s", world.now_s)
    assert len(world.predictor._watched) < 20


def test_time_that_goes_back_counts_as_standing_still() -> None:
    world = World()
    world.start()
    later = world.predictor.remaining("s", 50.0).p_ready_by(1.0)
    assert world.predictor.remaining("s", 10.0).p_ready_by(1.0) == later


@pytest.mark.parametrize("name", list(PREDICTORS))
def test_every_predictor_keeps_the_protocol(name: str) -> None:
    predictor: ReadinessPredictor = PREDICTORS[name]()
    predictor.observe(ToolStarted(session_id="s", call_id="c", name="Bash"), 0.0)
    answer = predictor.remaining("s", 1.0)
    assert 0.0 <= answer.p_ready_by(1.0) <= 1.0
    predictor.observe(ToolEnded(session_id="s", call_id="c"), 2.0)
    assert predictor.remaining("s", 2.0).p_ready_by(1.0) > 0.3
    predictor.observe(TurnRequested(request_id="r", session_id="s"), 2.5)
    predictor.turn_ended("s", 3.0)
    other = PREDICTORS[name]()
    other.merge(predictor.export())
    assert other.calibration().by_source["total"].count == 0.0
    predictor.forget("s")
