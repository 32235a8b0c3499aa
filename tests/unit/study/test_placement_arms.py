"""Greedy rules by hand on small problems; the witness against a count by hand."""

import numpy as np
from placement_brute_force import optimum

from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.study.placement_arms import (
    Witness,
    place_greedily,
    place_short_first,
    place_thoroughly,
)


def problem(
    weights: list[int], credits: list[list[int]], budgets: list[int], late: int = -1
) -> PlacementProblem:
    n, m = len(weights), len(budgets)
    return PlacementProblem(
        weights=np.repeat(np.array(weights, np.int64)[:, None], m, axis=1),
        budgets=np.array(budgets, np.int64),
        classes=np.array([i == late for i in range(n)], np.int64),
        credits=np.array(credits, np.int64),
        ready=np.ones(n, np.int64),
        tokens=np.array(weights, np.int64),
        eligible=np.ones((n, m), bool),
    )


SMALL_BLOCKS_LARGE = problem([3, 8], [[3, 0], [8, 0]], [10, 2])
"""One backend holds either session; greedy by arrival takes the first, which is worth less."""


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


def test_witness_counts_what_greedy_missed() -> None:
    witness = Witness()
    witness(problem([3], [[3, 0]], [10, 2]))  # one alone is nothing to choose
    witness(SMALL_BLOCKS_LARGE)
    witness(problem([3, 4], [[3, 0], [4, 0]], [10, 2]))  # all fit
    found = witness.measures()
    assert (found["snapshots"], found["snapshots_proved"]) == (2.0, 1.0)
    assert found["snapshots_greedy_better"] == 0.5
    assert found["snapshots_greedy_equal"] == 0.5
    assert found["snapshots_greedy_worse"] == 0.0
    assert found["credit_over_greedy"] == (8 + 7) / (3 + 7)
