"""Overdue sessions are put in where they cost least, and nothing becomes infeasible."""

import numpy as np
from hypothesis import given
from placement_strategies import problems

from tao_coordinator.scheduling.placement import Effort, PlacementProblem
from tao_coordinator.scheduling.placement.cohen_katz_raz import place
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.overdue import insert
from tao_coordinator.scheduling.placement.packing import pack
from tao_coordinator.scheduling.placement.plan import check_feasible


def meter() -> Meter:
    return Meter(Effort(work=10**9))


@given(problems())
def test_insertion_is_feasible_and_never_loses_class(problem: PlacementProblem) -> None:
    packed = pack(problem)
    before = place(packed.pairs, meter(), num_passes=1)
    before[::2] = -1
    after = insert(packed, before, meter())
    check_feasible(problem, after)
    assert packed.objective_of(after) >= packed.objective_of(before)
    assert packed.objective_of(after).classes >= packed.objective_of(before).classes


def test_overdue_session_goes_where_least_credit_is_in_the_way() -> None:
    """Both backends are full; on the second less credit has to leave."""
    problem = PlacementProblem(
        weights=np.full((3, 2), 10, np.int64),
        budgets=np.array([10, 10], np.int64),
        classes=np.array([0, 0, 1], np.int64),
        credits=np.array([[9, 0], [0, 4], [0, 0]], np.int64),
        ready=np.ones(3, np.int64),
        tokens=np.full(3, 10, np.int64),
        eligible=np.ones((3, 2), bool),
    )
    assert insert(pack(problem), np.array([0, 1, -1]), meter()).tolist() == [0, -1, 1]
