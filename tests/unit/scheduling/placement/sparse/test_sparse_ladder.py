"""Large problems: feasible plans, honest bounds, limits and overdue sessions included."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from placement_brute_force import optimum
from placement_strategies import problems

from tao_coordinator.bench.decision_problems import dense, sparse
from tao_coordinator.scheduling.placement import (
    Effort,
    Objective,
    PlacementProblem,
    Rung,
    SparsePlacementProblem,
    solve,
)
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.plan import check_feasible, objective_of
from tao_coordinator.scheduling.placement.sparse import instance as instances
from tao_coordinator.scheduling.placement.sparse import ladder
from tao_coordinator.scheduling.placement.sparse.fill import fill, force_overdue, polish
from tao_coordinator.scheduling.placement.sparse.holes import Holes
from tao_coordinator.scheduling.placement.sparse.instance import SparseInstance
from tao_coordinator.scheduling.placement.sparse.prices import CreditBound
from tao_coordinator.scheduling.placement.sparse.state import SparsePlan

EFFORT = Effort(work=10**6)


def climb(problem: PlacementProblem | SparsePlacementProblem) -> ladder.Outcome:
    return ladder.climb(instances.read(problem), EFFORT, Meter(EFFORT))


def check(plan: SparsePlan, problem: PlacementProblem | SparsePlacementProblem) -> Objective:
    """Feasible, and all that the plan keeps about itself is true."""
    check_feasible(problem, plan.backend_of)
    assert plan.objective == objective_of(problem, plan.backend_of)
    placed = (plan.backend_of >= 0).nonzero()[0]
    at = plan.backend_of[placed]
    load = np.zeros(problem.num_backends, np.int64)
    np.add.at(load, at, problem.pair_weights(placed, at))
    assert (plan.room == problem.budgets - load).all()
    assert (plan.credit[placed] == problem.pair_credits(placed, at)).all()
    worth = plan.instance.own[placed] + plan.credit[placed] * plan.instance.units[1]
    assert (plan.worth[placed] == worth).all()
    assert not plan.worth[plan.backend_of < 0].any()
    return plan.objective


@given(problems())
def test_sparse_ladder_is_feasible_and_bounds_the_optimum(problem: PlacementProblem) -> None:
    outcome = climb(problem)
    objective = check(outcome.plan, problem)
    best = optimum(problem)
    assert objective <= best
    certificate = outcome.certificate
    assert certificate.bound >= best[: len(certificate.bound)]


@given(problems())
def test_steps_only_improve(problem: PlacementProblem) -> None:
    meter = Meter(EFFORT)
    plan = SparsePlan(instances.read(problem))
    before = check(plan, problem)
    for improve in (
        lambda: plan.local_ratio(meter),
        lambda: plan.improve_credit(4, meter),
        lambda: fill(plan, meter),
        lambda: force_overdue(plan, meter),
        lambda: plan.improve_credit(4, meter),
        lambda: polish(plan, meter),
        lambda: fill(plan, meter),
    ):
        improve()
        after = check(plan, problem)
        assert after >= before
        before = after


@given(problems())
def test_local_ratio_on_credit_is_at_least_half_the_optimal_credit(
    problem: PlacementProblem,
) -> None:
    ordinary = replace(problem, classes=np.zeros(problem.num_sessions, np.int64))
    plan = SparsePlan(instances.read(ordinary))
    plan.local_ratio(Meter(EFFORT))
    assert 2 * plan.objective.credit >= optimum(ordinary).credit


@given(problems())
def test_credit_bound_holds_for_plans_that_reach_the_class_sum(problem: PlacementProblem) -> None:
    best = optimum(problem)
    bound = CreditBound(instances.read(problem), best.classes, Meter(EFFORT))
    for start in bound.starts():
        assert bound.evaluate(start) // bound.scale >= best.credit


@given(problems())
def test_overdue_pairs_listed_or_pooled_bound_alike(problem: PlacementProblem) -> None:
    """Pooled is looser, never wrong."""
    best = optimum(problem)
    instance = instances.read(problem)
    paired = instance.classes[instance.pair_sessions] == 0
    paired |= instance.pair_credits > 0
    kept = paired.nonzero()[0]
    pooled = replace(
        instance,
        pair_backends=instance.pair_backends[kept],
        pair_sessions=instance.pair_sessions[kept],
        pair_credits=instance.pair_credits[kept],
        pair_weights=instance.pair_weights[kept],
        overdue_in_pairs=False,
    )
    bound = CreditBound(pooled, best.classes, Meter(EFFORT))
    for start in bound.starts():
        assert bound.evaluate(start) // bound.scale >= best.credit


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"is_empty": True},
        {"home_shares": (1.0, 0.9, 0.36), "new_share": 0.1},
        {"new_share": 1.0},
        {"overdue_share": 0.05},
        {"overdue_share": 0.4},
        {"sessions_per_backend_max": 3},
        {"sessions_per_backend_max": 3, "overdue_share": 0.1, "is_empty": True},
    ],
)
def test_every_feature_at_scale_gives_a_checked_plan(features: dict[str, object]) -> None:
    problem = sparse(3, 600, 60, **features)  # pyright: ignore[reportArgumentType]
    outcome = climb(problem)
    check(outcome.plan, problem)
    again = climb(problem)
    assert again.plan.backend_of.tolist() == outcome.plan.backend_of.tolist()


def test_credit_of_a_loaded_fleet_is_proved_within_one_part_in_ten_thousand() -> None:
    outcome = climb(sparse(1, 1_000, 64))
    certificate = outcome.certificate
    assert certificate.num_proved >= 2 or (certificate.num_proved == 1 and certificate.gap < 1e-4)


def test_overdue_sessions_come_before_credit() -> None:
    """Few seats, all taken by sessions with credit: overdue ones get them."""
    problem = sparse(2, 300, 40, is_empty=True, overdue_share=0.1, sessions_per_backend_max=2)
    outcome = climb(problem)
    assert outcome.plan.objective.classes == int(problem.classes.sum())
    assert outcome.certificate.num_proved >= 1


def test_pooled_overdue_sessions_are_all_placed_where_they_fit() -> None:
    """More overdue pairs than are listed one by one."""
    problem = sparse(4, 900, 100, is_empty=True, overdue_share=0.6)
    instance = instances.read(problem)
    assert not instance.overdue_in_pairs
    outcome = ladder.climb(instance, EFFORT, Meter(EFFORT))
    check(outcome.plan, problem)
    assert outcome.plan.objective.classes == int(problem.classes.sum())


def test_credit_bound_equals_that_of_full_arrays_where_it_is_proved() -> None:
    problem = dense("multi3", 6, 100, 10)
    outcome = climb(problem)
    proved = solve(problem)
    assert proved.certificate.num_proved >= 2
    assert outcome.bound.credit >= proved.objective.credit
    assert outcome.plan.objective.credit <= proved.objective.credit


def test_backends_of_one_kind_share_a_column() -> None:
    problem = dense("prefix", 1, 40, 20)
    instance = instances.read(problem)
    distinct = {tuple(column) for column in problem.weights.T.tolist()}
    assert instance.weights.shape[1] == len(distinct)
    assert (instance.weights[:, instance.kind_of] == problem.weights).all()
    assert instances.read(dense("base", 1, 40, 20)).weights.shape[1] == 1


def test_holes_give_the_tightest_room_of_any_kind() -> None:
    problem = PlacementProblem(
        weights=np.array([[4, 6, 4], [5, 5, 5]], np.int64),
        budgets=np.array([9, 6, 8], np.int64),
        classes=np.zeros(2, np.int64),
        credits=np.zeros((2, 3), np.int64),
        ready=np.ones(2, np.int64),
        tokens=np.array([4, 5], np.int64),
        eligible=np.ones((2, 3), bool),
        session_limits=np.array([1, 1, 1], np.int64),
    )
    plan = SparsePlan(instances.read(problem))
    holes = Holes(plan)
    assert (holes.largest(), holes.total()) == (9, 23)
    assert holes.packs([0, 1])
    holes.place([0, 1])
    assert plan.backend_of.tolist() == [1, 2]  # remainders 0 and 3
    assert not Holes(plan).packs([0, 1])


def instance_of(problem: PlacementProblem) -> SparseInstance:
    return instances.read(problem)


@given(problems())
def test_instant_effort_still_completes_a_plan(problem: PlacementProblem) -> None:
    effort = Effort(work=0, rung_max=Rung.LOCAL_RATIO)
    outcome = ladder.climb(instance_of(problem), effort, Meter(effort))
    check(outcome.plan, problem)
    waiting = (outcome.plan.backend_of < 0).nonzero()[0]
    for i in waiting[problem.classes[waiting] == 0].tolist():
        for b in range(problem.num_backends):
            again = outcome.plan.backend_of.copy()
            again[i] = b
            try:
                check_feasible(problem, again)
            except AssertionError:
                continue
            raise AssertionError(f"session {i} would fit backend {b}")
