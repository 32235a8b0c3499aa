"""Floors of the policy study, held on recorded sessions: below them the build fails.

The figures are the second ones of the study's target table (section 6), for coding agents with 1.5
times the context that one backend holds. The seeds are used nowhere else.
"""

from functools import cache

import pytest
import recorded_sessions

from tao_coordinator.study.cell import run_cell
from tao_coordinator.study.studies.grid import cross
from tao_coordinator.study.studies.pressure import workload_cell
from tao_coordinator.study.study import StudyOptions, arms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEEDS = (211, 212, 213)
"""One is enough but for the caps, whose rate differs by a tenth between seeds."""
CAPS = ("static-cap:sessions_max=7", "static-cap:sessions_max=8")
SHOWN = ("output_tokens_per_s", "task_s_mean", "task_s_p99", "hold_started_s_max", "hit_rate")


@cache
def measured(arm: str, seed: int) -> dict[str, float]:
    options = StudyOptions(seeds=(seed,), traces=recorded_sessions.traces("swe"))
    (cell,) = cross(options, [workload_cell(options, "swe", 1, 1.5)], arms(arm))
    measures = run_cell(cell).measures
    print(arm, seed, {name: round(measures[name], 3) for name in SHOWN})
    assert measures["unfinished"] == 0.0
    return measures


def ours_over(arm: str, measure: str) -> float:
    return measured("tao", SEEDS[0])[measure] / measured(arm, SEEDS[0])[measure]


def test_throughput_over_routers_without_control() -> None:
    assert ours_over("sticky-least-loaded", "output_tokens_per_s") >= 3.3


def test_throughput_over_the_best_static_cap() -> None:
    """The one that is best over the seeds, as an operator finds it by trial."""

    def rate(arm: str) -> float:
        return sum(measured(arm, seed)["output_tokens_per_s"] for seed in SEEDS)

    assert rate("tao") >= 1.06 * max(rate(cap) for cap in CAPS)


def test_throughput_and_latency_against_thunderagent() -> None:
    assert ours_over("thunderagent", "output_tokens_per_s") >= 1.07
    assert ours_over("thunderagent", "task_s_mean") <= 0.90


def test_throughput_and_latency_against_tao_as_published() -> None:
    assert ours_over("tao-paper", "output_tokens_per_s") >= 0.97
    assert ours_over("tao-paper", "task_s_mean") <= 1.01


def test_slow_sessions_take_less_than_half_as_long_as_under_tao() -> None:
    """As published, and with 10 % of the capacity taken off by hand."""
    assert ours_over("tao-paper", "task_s_p99") < 0.5
    assert ours_over("tao-paper@0.9", "task_s_p99") < 0.5


def test_started_sessions_wait_within_the_hard_bound() -> None:
    assert measured("tao", SEEDS[0])["hold_started_s_max"] <= 125.0
