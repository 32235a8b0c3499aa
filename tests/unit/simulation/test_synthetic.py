"""Synthetic sessions have the statistics that their shapes state."""

from itertools import pairwise
from statistics import mean, median

import pytest

from tao_coordinator.simulation.synthetic import BLENDS, SHAPES, draw_sessions, poisson_arrivals


@pytest.mark.parametrize("name", [*SHAPES, *BLENDS])
def test_equal_seeds_give_equal_sessions_and_every_context_grows(name: str) -> None:
    sessions = draw_sessions(name, 30, 3)
    assert sessions == draw_sessions(name, 30, 3)
    assert sessions != draw_sessions(name, 30, 4)
    assert len({session.session_id for session in sessions}) == 30
    for session in sessions:
        context = 0
        for turn in session.turns:
            assert turn.kept_tokens == context < turn.input_tokens
            context = turn.input_tokens + turn.output_tokens


def test_published_statistics_of_coding_agents_are_met() -> None:
    """Medians that the public trace has: first prompt, replies, turns, calls above five seconds."""
    turns = [turn for session in draw_sessions("swe", 400, 1) for turn in session.turns]
    sessions = draw_sessions("swe", 400, 1)
    assert median(s.turns[0].input_tokens for s in sessions) == pytest.approx(13_400, rel=0.05)
    assert median(turn.output_tokens for turn in turns) == pytest.approx(144, rel=0.1)
    assert median(len(s.turns) for s in sessions) == pytest.approx(42, rel=0.15)
    assert mean(turn.tool_phase_s > 5.0 for turn in turns) == pytest.approx(0.28, abs=0.04)


def test_calls_end_at_the_harness_limit() -> None:
    tools = [
        tool
        for session in draw_sessions("swe-lite", 300, 1)
        for turn in session.turns
        for tool in turn.tools
    ]
    assert max(tool.duration_s for tool in tools) == 30.0
    assert all(tool.timeout_s == 30.0 for tool in tools)
    # Published: 9.4 % of the calls run into the limit.
    assert mean(tool.duration_s == 30.0 for tool in tools) == pytest.approx(0.085, abs=0.02)


def test_a_blend_has_its_shares() -> None:
    sessions = draw_sessions("mixed", 2_000, 1)
    share = mean(session.family == "swe-lite" for session in sessions)
    assert share == pytest.approx(300 / 389, abs=0.03)


def test_unknown_workload_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'chess'; there are swe, "):
        draw_sessions("chess", 1, 1)


def test_arrivals_come_at_their_rate() -> None:
    times = poisson_arrivals(0.5, 4_000, 1)
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(8_000, rel=0.05)
    gaps = [after - before for before, after in pairwise(times)]
    short = mean(gap < 2.0 * 0.6931 for gap in gaps)  # the median of an exponential
    assert short == pytest.approx(0.5, abs=0.03)
