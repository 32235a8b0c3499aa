"""Eq. 5-6 as reconstructed: the margin by its formula, staleness, probes, precedence."""

import math
import statistics

import pytest

from tao_coordinator.core.events import (
    SessionDeadlineSet,
    SessionWaiting,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.prediction.paper import Moments, PaperPredictor, PaperSettings
from tao_coordinator.prediction.remaining import Source


def learn(predictor: PaperPredictor, tool: str, *durations_s: float) -> None:
    for number, duration_s in enumerate(durations_s):
        predictor.observe(
            ToolEnded(
                session_id="past", call_id=f"{tool}{number}", name=tool, duration_s=duration_s
            ),
            0.0,
        )


def start(predictor: PaperPredictor, tool: str = "Bash", now_s: float = 0.0) -> None:
    predictor.observe(ToolStarted(session_id="s", call_id="c", name=tool), now_s)


def ready(predictor: PaperPredictor, now_s: float) -> bool:
    return predictor.remaining("s", now_s).p_ready_by(1.0) == 1.0


def test_deadline_is_the_empirical_bernstein_bound() -> None:
    values = [1.0, 2.0, 4.0, 9.0, 4.5]
    moments = Moments()
    for value in values:
        moments.add(value)
    log_term = math.log(2.0 / 0.05)
    expected = (
        statistics.mean(values)
        + math.sqrt(2.0 * statistics.variance(values) * log_term / 5)
        + 7.0 * (max(values) - min(values)) * log_term / (3.0 * 4)
    )
    free = PaperSettings(margin_is_capped=False)
    assert moments.deadline_s(free) == pytest.approx(expected)
    assert moments.deadline_s(PaperSettings()) == 9.0


def test_margin_vanishes_with_many_samples() -> None:
    moments = Moments()
    for number in range(100_000):
        moments.add(2.0 + number % 2)
    assert moments.deadline_s(PaperSettings()) == pytest.approx(2.5, abs=0.02)


def test_history_falls_back_from_tool_to_all_to_5_s() -> None:
    predictor = PaperPredictor()
    start(predictor)
    assert predictor.remaining("s", 0.0).median_s == 5.0
    assert predictor.remaining("s", 0.0).source is Source.PRIOR
    learn(predictor, "Read", 2.0)
    assert predictor.remaining("s", 0.0).median_s == 2.0
    assert predictor.remaining("s", 0.0).level == "all"
    learn(predictor, "Bash", 8.0)
    assert predictor.remaining("s", 0.0).median_s == 8.0
    assert predictor.remaining("s", 0.0).level == "tool"


def test_elapsed_time_is_taken_off_and_readiness_is_within_the_horizon() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 8.0)
    start(predictor)
    assert predictor.remaining("s", 3.0).median_s == 5.0
    assert not ready(predictor, 6.9)
    assert ready(predictor, 7.0)


def test_overdue_call_is_probed_ever_more_rarely() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 8.0)
    start(predictor)
    probed = [tick for tick in range(0, 200) if ready(predictor, 8.0 + tick)]
    # Windows open 0, 1, 3, 7, 15, 31 s past the deadline, then every 30 s.
    assert probed == [0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181]


def test_prediction_goes_stale_until_it_is_refreshed() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 40.5)
    start(predictor)
    assert not ready(predictor, 39.9)  # within H, but set more than 30 s ago
    predictor.observe(ToolProgressed(session_id="s", call_id="c", remaining_s=0.6), 39.9)
    assert ready(predictor, 39.9)


def test_stated_deadline_wins_over_history_and_completion_over_both() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 8.0)
    event = ToolStarted(session_id="s", call_id="c", name="Bash", remaining_s=20.0)
    predictor.observe(event, 0.0)
    answer = predictor.remaining("s", 5.0)
    assert (answer.median_s, answer.source) == (15.0, Source.DEADLINE)
    predictor.observe(ToolEnded(session_id="s", call_id="c"), 6.0)
    assert ready(predictor, 6.0)
    assert ready(predictor, 600.0)


def test_session_returns_with_the_last_of_its_calls() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 8.0)
    learn(predictor, "Read", 0.1)
    start(predictor)
    predictor.observe(ToolStarted(session_id="s", call_id="d", name="Read"), 0.0)
    assert not ready(predictor, 0.0)
    assert predictor.remaining("s", 0.0).median_s == 8.0
    assert predictor.remaining("s", 0.0, call_id="d").median_s == 0.1


def test_session_deadline_wait_and_turn() -> None:
    predictor = PaperPredictor()
    predictor.observe(SessionDeadlineSet(session_id="s", remaining_s=12.0), 0.0)
    assert predictor.remaining("s", 2.0).median_s == 10.0
    predictor.observe(TurnRequested(request_id="r", session_id="s"), 3.0)
    assert ready(predictor, 3.0)
    predictor.turn_ended("s", 4.0)
    predictor.observe(SessionWaiting(session_id="s", expected_duration_s=60.0), 5.0)
    assert predictor.remaining("s", 5.0).median_s == 60.0


def test_point_is_kept_exactly_when_it_is_cheaper_than_the_refill() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 20.0)
    start(predictor)
    assert predictor.remaining("s", 0.0).keep_limit_s(19.0) == 0.0
    assert predictor.remaining("s", 0.0).keep_limit_s(21.0) == math.inf


def test_export_and_merge_are_having_seen_both() -> None:
    whole, left, right = PaperPredictor(), PaperPredictor(), PaperPredictor()
    learn(whole, "Bash", 1.0, 5.0, 2.0, 9.0)
    learn(left, "Bash", 1.0, 5.0)
    learn(right, "Bash", 2.0, 9.0)
    left.merge(right.export())
    start(whole)
    start(left)
    expected_s = whole.remaining("s", 0.0).median_s
    assert left.remaining("s", 0.0).median_s == pytest.approx(expected_s)


@pytest.mark.parametrize(
    "damaged", [{}, {"tools": 3}, {"tools": {"a": [1.0]}}, {"tools": {"a": [-1.0] * 5}}]
)
def test_damaged_export_is_refused(damaged: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="tool"):
        PaperPredictor().merge(damaged)


def test_verdicts_at_start_are_checked() -> None:
    predictor = PaperPredictor()
    learn(predictor, "Bash", 0.5)
    for number, duration_s in enumerate((0.4, 30.0)):
        call_id = f"n{number}"
        predictor.observe(ToolStarted(session_id="s", call_id=call_id, name="Bash"), 1.0)
        event = ToolEnded(session_id="s", call_id=call_id, duration_s=duration_s)
        predictor.observe(event, 31.0)
    total = predictor.calibration().by_source["total"]
    assert total.count == 2.0
    assert 0.0 < total.brier <= 1.0
