"""Counts by hand, on problems whose answers a reader can see."""

import numpy as np
from placement_brute_force import optimum
from small_problems import SMALL_BLOCKS_LARGE, problem

from tao_coordinator.scheduling.rivals.grid_decision import decide
from tao_coordinator.scheduling.tao.started import place_instantly
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.placement_arms import place_short_first
from tao_coordinator.study.watches.snapshots import SnapshotWatch

NO_RUN = RunRecord()


def test_what_greedy_missed_is_counted_and_the_policys_own_plan_goes_through() -> None:
    watch = SnapshotWatch()
    place = watch.place(place_instantly)
    alone = problem([3], [[3, 0]], [10, 2])  # nothing to choose
    all_fit = problem([3, 4], [[3, 0], [4, 0]], [10, 2])
    for one in (alone, SMALL_BLOCKS_LARGE, all_fit):
        assert place(one).objective == optimum(one)
    found = watch.measures(NO_RUN)
    assert (found["snapshots"], found["snapshots_all"], found["snapshots_proved"]) == (2, 3, 1.0)
    assert found["snapshots_greedy_better"] == found["snapshots_greedy_equal"] == 0.5
    assert found["snapshots_greedy_worse"] == 0.0
    assert found["snapshots_short_first_better"] == 0.5
    assert found["snapshots_all_short_first_better"] == 1 / 3
    assert found["credit_over_greedy"] == (8 + 7) / (3 + 7)


def test_a_coarse_grid_loses_to_exact_tokens_and_never_to_itself() -> None:
    """Two sessions of 1,025 tokens fit 2,100; on the grid each takes both of its two steps."""
    watch = SnapshotWatch()
    two = problem([1_025, 1_025], [[9], [9]], [2_100])
    assert sorted(watch.decide(decide)(two, 1_024, 1_000).backend_of.tolist()) == [-1, 0]
    found = watch.measures(NO_RUN)
    assert found["snapshots_short_first_worse"] == 1.0
    assert (found["snapshots_on_grid_worse"], found["snapshots_on_grid_equal"]) == (0.0, 1.0)


def test_the_same_grid_never_beats_its_own_optimum() -> None:
    draw = np.random.default_rng(7)
    watch = SnapshotWatch()
    for _ in range(80):
        n, m = int(draw.integers(2, 7)), int(draw.integers(1, 3))
        credits = draw.integers(0, 9, (n, m)) * (draw.random((n, m)) < 0.5)
        weights = draw.integers(1, 9, n).tolist()
        one = problem(weights, credits.tolist(), draw.integers(0, 25, m).tolist())
        watch.decide(decide)(one, 3, 10_000)
    found = watch.measures(NO_RUN)
    assert found["snapshots_on_grid_worse"] == 0.0
    assert found["snapshots_on_grid_better"] > 0.1


def test_fallbacks_are_no_joint_plans() -> None:
    watch = SnapshotWatch()
    assert watch.decide(decide)(SMALL_BLOCKS_LARGE, 1, 1).used_fallback
    assert watch.measures(NO_RUN) == {}


def test_the_example_tells_where_each_rule_puts_whom() -> None:
    watch = SnapshotWatch()
    watch.decide(decide)(SMALL_BLOCKS_LARGE, 1, 1_000)
    series = watch.series(NO_RUN)
    assert place_short_first(SMALL_BLOCKS_LARGE).backend_of.tolist() == [0, -1]
    assert series["gains"] == [[8.0, 3.0]]
    assert series["example"] == [[-1, 0, 0, 0, 3, 3], [0, 8, 8, -1, 0, 0]]
    assert series["example_budgets"] == [[10.0], [2.0]]
