"""Filling adds sessions where they fit, as many small ones as can be packed."""

import numpy as np
from hypothesis import given
from placement_strategies import problems

from tao_coordinator.scheduling.placement import Effort, PlacementProblem
from tao_coordinator.scheduling.placement.cohen_katz_raz import place
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import pack
from tao_coordinator.scheduling.placement.plan import check_feasible
from tao_coordinator.scheduling.placement.stage_fill import fill


def meter() -> Meter:
    return Meter(Effort(work=10**9))


def equal_sessions(weights: list[int], budgets: list[int], ready: int = 1) -> PlacementProblem:
    n, m = len(weights), len(budgets)
    column = np.array(weights, np.int64)
    return PlacementProblem(
        weights=column[:, None].repeat(m, axis=1),
        budgets=np.array(budgets, np.int64),
        classes=np.zeros(n, np.int64),
        credits=np.zeros((n, m), np.int64),
        ready=np.full(n, ready, np.int64),
        tokens=column,
        eligible=np.ones((n, m), bool),
    )


@given(problems())
def test_fill_moves_nobody_and_keeps_all_constraints(problem: PlacementProblem) -> None:
    packed = pack(problem)
    core = place(packed.pairs, meter(), num_passes=1)
    core[::2] = -1
    filled = fill(packed, core, meter())
    check_feasible(problem, filled)
    assert (filled[core >= 0] == core[core >= 0]).all()


@given(problems())
def test_fill_leaves_no_session_that_would_fit(problem: PlacementProblem) -> None:
    packed = pack(problem)
    filled = fill(packed, np.full(problem.num_sessions, -1, np.int64), meter())
    for i in (filled < 0).nonzero()[0]:
        for b in range(problem.num_backends):
            again = filled.copy()
            again[i] = b
            try:
                check_feasible(problem, again)
            except AssertionError:
                continue
            raise AssertionError(f"session {i} would fit backend {b}")


def test_small_ready_sessions_are_packed_large_first() -> None:
    """Smallest first would put 3 and 4 on one backend and leave no room for 7."""
    problem = equal_sessions([3, 4, 7, 20], [7, 7])
    filled = fill(pack(problem), np.full(4, -1, np.int64), meter())
    assert (filled[:3] >= 0).all()
    assert filled[3] == -1


def test_sessions_that_are_not_ready_go_largest_first() -> None:
    problem = equal_sessions([3, 5, 6], [6], ready=0)
    assert fill(pack(problem), np.full(3, -1, np.int64), meter()).tolist() == [-1, -1, 0]
