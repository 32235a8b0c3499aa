"""The demo's figures from hand-made logs."""

from itertools import pairwise

import pytest

from tao_coordinator.demo.measure import (
    PolicyResult,
    context_tokens,
    first_token_times_s,
    longest_started_hold_s,
    percentile,
    summarise,
)

Record = dict[str, object]


def turn(session: str, asked: float, answered: float, **more: object) -> Record:
    return {
        "kind": "turn",
        "session_id": session,
        "asked_at": asked,
        "answered_at": answered,
        "input_tokens": 100,
        "output_tokens": 10,
        "hold_s": 0.0,
    } | more


def session(name: str, started: float, ended: float, status: str = "Submitted") -> Record:
    return {
        "kind": "session",
        "session_id": name,
        "started_at": started,
        "ended_at": ended,
        "exit_status": status,
    }


def request(session: str, received: float, first: float, **more: object) -> Record:
    return {
        "session_id": session,
        "received_at": received,
        "first_token_at": first,
        "prompt_tokens": 100,
        "cached_tokens": 50,
        "output_tokens": 10,
        "outcome": "completed",
    } | more


FLEET = [
    turn("a", 10.0, 12.0),
    turn("a", 13.0, 15.0, hold_s=0.5),
    turn("b", 10.0, 14.0),
    session("a", 10.0, 16.0),
    session("b", 10.0, 14.0, "LimitsExceeded"),
]
REQUESTS = [
    request("a", 10.5, 11.0),
    request("a", 13.5, 14.0, cached_tokens=100),
    request("b", 10.1, 13.0, cached_tokens=0),
    request("b", 10.1, 10.2, outcome="aborted"),
]


def test_summary_is_in_engine_seconds_and_counts_from_the_asking() -> None:
    result = summarise("tao", FLEET, REQUESTS, pool_tokens=200, time_scale=10.0, wall_s=9.0)
    assert result.task_s_mean == pytest.approx((60 + 40) / 2)
    assert result.task_s_max == pytest.approx(60.0)
    assert result.ttft_s_mean == pytest.approx((10 + 10 + 30) / 3)
    assert result.hit_rate == pytest.approx(150 / 300)
    assert result.makespan_s == pytest.approx(60.0)
    assert result.output_tokens_per_s == pytest.approx(30 / 60)
    assert result.hold_s_max == pytest.approx(5.0)
    assert result.hold_started_s_max == pytest.approx(5.0)
    # Contexts: a 110 from 12 to 16; b 110 at 14, where it ends at once.
    assert result.pressure_max == pytest.approx(220 / 200)
    assert result.pressure_mean == pytest.approx(110 / 200)
    assert (result.num_sessions, result.num_turns, result.num_failed_sessions) == (2, 3, 1)


def test_summary_of_nothing_is_an_error_not_a_row_of_zeros() -> None:
    with pytest.raises(ValueError, match="no turn reached a backend"):
        summarise("tao", FLEET, [], pool_tokens=1, time_scale=1.0, wall_s=0.0)


def test_request_counts_for_the_turn_in_whose_interval_it_arrived() -> None:
    turns = [turn("a", 0.0, 5.0), turn("a", 6.0, 9.0), turn("b", 0.0, 9.0)]
    requests = [request("a", 7.0, 8.0), request("a", 1.0, 1.5), request("a", 2.0, 4.0)]
    assert first_token_times_s(turns, requests) == [4.0, 2.0]


def test_first_turn_of_a_session_is_no_started_hold() -> None:
    turns = [turn("a", 5.0, 6.0, hold_s=2.0), turn("a", 0.0, 1.0, hold_s=9.0), turn("b", 0.0, 1.0)]
    assert longest_started_hold_s(turns) == 2.0


def test_peak_context_forgets_sessions_that_have_ended() -> None:
    turns = [turn("a", 0, 1), turn("b", 0, 3), turn("c", 0, 4)]
    # a: 110 during 1..2; b: from 3; b and c: from 4, where the record ends.
    mean, peak = context_tokens(turns, [session("a", 0, 2.0)])
    assert peak == 220
    assert mean == pytest.approx((110 * 1 + 0 * 1 + 110 * 1) / 3)


def test_percentile_of_one_value_is_that_value() -> None:
    assert percentile([3.0], 99) == 3.0
    assert percentile([float(n) for n in range(101)], 99) == pytest.approx(99.0)


def result(policy: str, task_s: float, **more: float) -> PolicyResult:
    fields: dict[str, float] = {
        "num_sessions": 2,
        "num_turns": 3,
        "num_failed_sessions": 0,
        "task_s_mean": task_s,
        "task_s_max": task_s,
        "ttft_s_mean": 1.0,
        "ttft_s_p99": 2.0,
        "hit_rate": 0.5,
        "output_tokens_per_s": 3.0,
        "hold_s_max": 4.0,
        "hold_started_s_max": 1.0,
        "makespan_s": 5.0,
        "pressure_mean": 1.5,
        "pressure_max": 2.0,
        "wall_s": 6.0,
    }
    return PolicyResult(policy=policy, **(fields | more))  # pyright: ignore[reportArgumentType]


def test_table_has_one_aligned_line_per_policy() -> None:
    from tao_coordinator.demo.report import table

    lines = table([result("round-robin", 100.0), result("tao", 7.0)]).splitlines()
    assert lines[0].startswith("policy")
    assert lines[2].split() == [
        "round-robin",
        *["100", "100", "1.00", "2.0", "0.500", "3", "4", "1"],
    ]
    for heading, line in pairwise([lines[0], *lines[2:]]):
        assert len(heading) == len(line)


@pytest.mark.parametrize(
    ("ours_s", "expected"),
    [(50.0, "50% shorter"), (150.0, "50% LONGER"), (97.0, "No gain here"), (104.0, "No gain here")],
)
def test_verdict_says_good_bad_or_nothing(ours_s: float, expected: str) -> None:
    from tao_coordinator.demo.report import verdict

    others = [result("round-robin", 300.0), result("sticky-least-loaded", 100.0)]
    said = verdict([*others, result("tao", ours_s)])
    assert expected in said
    assert "sticky-least-loaded" in said


def test_verdict_without_a_rival_compares_nothing() -> None:
    from tao_coordinator.demo.report import verdict

    assert verdict([result("tao", 1.0)]).startswith("Nothing to compare")
