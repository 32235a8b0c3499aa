"""Greedy rules by hand on small problems."""

import numpy as np
from placement_brute_force import optimum
from small_problems import SMALL_BLOCKS_LARGE, problem

from tao_coordinator.study.placement_arms import (
    place_greedily,
    place_short_first,
    place_thoroughly,
)


def test_greedy_goes_home_else_where_most_room_is_in_the_given_order() -> None:
    plan = place_greedily(problem([4, 4, 4], [[0, 4], [0, 0], [0, 4]], [9, 9]))
    assert plan.backend_of.tolist() == [1, 0, 1]
    assert place_greedily(SMALL_BLOCKS_LARGE).backend_of.tolist() == [0, -1]


def test_short_first_lets_small_sessions_block_a_valuable_one() -> None:
    same = problem([8, 3], [[8, 0], [3, 0]], [10, 2])
    assert place_short_first(same).backend_of.tolist() == [-1, 0]
    assert place_greedily(same).backend_of.tolist() == [0, -1]


def test_overdue_sessions_come_first_under_every_rule() -> None:
    late = problem([3, 8], [[3, 0], [8, 0]], [10, 2], late=1)
    for place in (place_greedily, place_short_first):
        assert place(late).backend_of.tolist() == [-1, 0]


def test_plans_are_feasible_and_no_rule_beats_the_optimum() -> None:
    draw = np.random.default_rng(4)
    for _ in range(60):
        n, m = int(draw.integers(1, 6)), int(draw.integers(1, 4))
        credits = draw.integers(0, 9, (n, m)) * (draw.random((n, m)) < 0.5)
        one = problem(
            draw.integers(1, 9, n).tolist(), credits.tolist(), draw.integers(0, 20, m).tolist()
        )
        best = optimum(one)
        for place in (place_greedily, place_short_first, place_thoroughly):
            plan = place(one)
            plan.check(one)
            assert plan.objective <= best
