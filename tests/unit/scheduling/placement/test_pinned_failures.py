"""Failures found by the property tests while the solver was written, kept as plain cases."""

from dataclasses import replace

import numpy as np

from tao_coordinator.bench.decision_problems import dense
from tao_coordinator.scheduling.placement import (
    Effort,
    Objective,
    PlacementProblem,
    Rung,
    knapsack,
    solve,
)
from tao_coordinator.scheduling.placement.cohen_katz_raz import place
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import pack
from tao_coordinator.scheduling.placement.plan import objective_of
from tao_coordinator.scheduling.placement.sparse import instance as instances
from tao_coordinator.scheduling.placement.sparse import ladder as sparse_ladder
from tao_coordinator.scheduling.placement.sparse.prices import CreditBound


def problem(
    weights: list[list[int]],
    budgets: list[int],
    credits: list[list[int]],
    *,
    classes: list[int] | None = None,
    eligible: list[list[bool]] | None = None,
) -> PlacementProblem:
    n, m = len(weights), len(budgets)
    return PlacementProblem(
        weights=np.array(weights, np.int64).reshape(n, m),
        budgets=np.array(budgets, np.int64),
        classes=np.zeros(n, np.int64) if classes is None else np.array(classes, np.int64),
        credits=np.array(credits, np.int64).reshape(n, m),
        ready=np.ones(n, np.int64),
        tokens=np.zeros(n, np.int64),
        eligible=np.ones((n, m), bool) if eligible is None else np.array(eligible),
    )


def test_knapsack_of_nothing_into_less_than_nothing_is_worth_nothing() -> None:
    """It was worth -1."""
    nothing = np.zeros(0, np.int64)
    assert knapsack.solve(nothing, nothing, -1).value == 0


def test_backend_that_lost_a_session_is_solved_again() -> None:
    """Passes skip backends whose answer cannot have changed; freed room was forgotten."""
    robbed = problem([[60, 60], [60, 60]], [100, 100], [[0, 9], [0, 0]])
    assert place(pack(robbed).pairs, Meter(Effort(work=10**6)), 3).tolist() == [1, 0]


def test_overdue_session_forced_onto_its_home_earns_its_credit() -> None:
    """The sparse plan counted 0."""
    forced = problem(
        [[1, 0], [1, 0]],
        [1, 1],
        [[0, 1], [1, 0]],
        classes=[1, 0],
        eligible=[[True, True], [True, False]],
    )
    meter = Meter(Effort(work=10**6))
    plan = sparse_ladder.climb(instances.read(forced), Effort(work=10**6), meter).plan
    assert plan.objective == objective_of(forced, plan.backend_of)
    assert plan.objective.credit == 2


def test_credit_bound_without_any_pair_is_zero() -> None:
    """An index error."""
    bound = CreditBound(instances.read(problem([], [0], [])), 0, Meter(Effort(work=10**6)))
    assert [bound.evaluate(start) for start in bound.starts()] == [0, 0]


def test_last_allowed_rung_is_not_exceeded() -> None:
    """A label search ran although prices were the last rung allowed."""
    tied = problem(
        [[0, 1], [1, 1]], [2, 1], [[0, 1], [1, 2]], eligible=[[False, True], [True, True]]
    )
    for rung in list(Rung)[: Rung.GRID]:
        assert solve(tied, Effort(work=10**6, rung_max=rung)).rung <= rung


def test_bound_read_in_whole_units_does_not_carry() -> None:
    """Prices with fractions of a credit made the credit bound one too high, forever."""
    near = dense("base", 1009, 98, 8, is_empty=True)
    plan = solve(near, Effort(work=60_000))
    assert plan.certificate.num_proved >= 2


def test_choice_without_duplicates_is_taken_as_a_plan() -> None:
    """The sparse bound was met by its own choice, which nobody looked at."""
    meter = Meter(Effort(work=10**6))
    limited = replace(dense("base", 11, 120, 16), session_limits=np.full(16, 3, np.int64))
    outcome = sparse_ladder.climb(instances.read(limited), Effort(work=10**6), meter)
    assert outcome.certificate.num_proved >= 2


def test_no_room_at_all_is_proved_optimal() -> None:
    nowhere = problem([[5]], [-1], [[3]])
    plan = solve(nowhere)
    assert plan.certificate.is_optimal
    assert plan.objective == Objective(0, 0, 0, 0, 0)


def test_number_of_sessions_is_proved_where_nobody_has_tokens() -> None:
    """A coordinate of zeros was skipped, and with it the count that is searched beside it."""
    idle = replace(
        problem(
            [[0, 0], [0, 0], [1, 1], [1, 1]],
            [1, 1],
            [[0, 0], [0, 0], [0, 1], [0, 0]],
            eligible=[[False, False], [False, False], [True, True], [False, True]],
        ),
        ready=np.zeros(4, np.int64),
    )
    plan = solve(idle, Effort(work=10**6))
    assert plan.certificate.is_optimal
    assert plan.objective == Objective(0, 1, 0, 0, 1)
