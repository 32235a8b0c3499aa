"""Terms of Eq. 12 against enumeration of all plans of small problems."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from small_problems import problem

from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.scheduling.placement.plan import check_feasible, objective_of
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.rivals.grid_decision import decide
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.watches.asynchrony import AsynchronyWatch
from tao_coordinator.study.watches.watch import BoundedPlan, LatePlan

NO_RUN = RunRecord()
GRID = (1, 100_000)


def plans(one: PlacementProblem) -> Iterator[Int64]:
    for where in product(range(-1, one.num_backends), repeat=one.num_sessions):
        plan = np.array(where, np.int64)
        try:
            check_feasible(one, plan)
        except AssertionError:
            continue
        yield plan


def best(one: PlacementProblem) -> int:
    return max(objective_of(one, plan).credit for plan in plans(one))


def watched(late: LatePlan) -> dict[str, float]:
    watch = AsynchronyWatch()
    watch.decide(decide)(late.then, *GRID)  # it learns the grid
    watch.late(late)
    return watch.measures(NO_RUN)


def draw_late(draw: np.random.Generator) -> LatePlan:
    """Credit decays, weights grow, budgets move, readiness jumps."""
    n, m = int(draw.integers(2, 5)), int(draw.integers(1, 3))
    credits = draw.integers(0, 12, (n, m)) * (draw.random((n, m)) < 0.6)
    then = problem(
        draw.integers(1, 9, n).tolist(),
        credits.tolist(),
        draw.integers(2, 16, m).tolist(),
        ready=draw.integers(0, 2, n).tolist(),
    )
    grown = then.weights + draw.integers(0, 2, (n, 1))
    live = replace(
        then,
        weights=grown,
        tokens=grown[:, 0],
        budgets=np.maximum(0, then.budgets + draw.integers(-4, 5, m)),
        credits=(credits * draw.uniform(0.6, 1.0)).round().astype(np.int64),
        ready=draw.integers(0, 2, n),
    )
    planned = decide(then, *GRID).backend_of
    done = np.full(n, -1, np.int64)
    for i in (planned >= 0).nonzero()[0]:
        done[i] = planned[i]
        try:
            check_feasible(live, done)
        except AssertionError:
            done[i] = -1
            break
    return LatePlan(then=then, live=live, planned=planned, carried_out=done, used_fallback=False)


def test_terms_are_those_of_all_plans_and_the_bound_holds() -> None:
    draw = np.random.default_rng(11)
    num_lost = 0
    for _ in range(60):
        late = draw_late(draw)
        found = watched(late)
        top = best(late.live)
        value = objective_of(late.live, late.carried_out).credit
        planned = objective_of(late.live, late.planned).credit
        assert found["bound_best_tokens"] == top
        assert found["bound_loss_tokens"] == top - value
        assert found["bound_execution_tokens"] == planned - value
        num_lost += top > value
        twice = [
            objective_of(late.live, plan).credit
            for plan in plans(late.then)
            if any(np.array_equal(plan, other) for other in plans(late.live))
        ]
        assert found["bound_feasibility_tokens"] >= top - max(twice)
        changes = np.abs(late.live.credits - late.then.credits).max(axis=1)
        assert found["bound_drift_tokens"] == 2 * changes.sum()
        assert found["violated_credit"] == found["violated_value_with_jumps"] == 0.0
    assert num_lost > 10


def test_without_credit_a_jump_of_readiness_needs_its_allowance() -> None:
    then = problem([5, 4], [[0], [0]], [5], ready=[0, 0])
    live = replace(then, ready=np.array([0, 1], np.int64))
    planned = np.array([0, -1], np.int64)
    late = LatePlan(then=then, live=live, planned=planned, carried_out=planned, used_fallback=False)
    found = watched(late)
    assert found["late_jumped"] == 1.0
    assert found["violated_credit"] == 0.0
    assert found["violated_value"] == 1.0
    assert found["violated_value_with_jumps"] == 0.0


def test_a_stated_bound_that_is_too_small_is_found_out() -> None:
    live = problem([5, 4], [[5], [3]], [5])
    plan = BoundedPlan(
        feasibility_change=1, value_drift=0, execution_loss=0, solver_gap=0, value=3, live=live,
        num_planned=2, num_carried_out=1, unit_tokens=2_048,
    )  # fmt: skip
    for stated, violated in ((1, 1.0), (2, 0.0)):
        watch = AsynchronyWatch()
        watch.late(replace(plan, feasibility_change=stated))
        found = watch.measures(NO_RUN)
        assert found["violated_credit"] == violated
        assert found["bound_best_tokens"] == 5 * 2_048
        assert found["bound_loss_tokens"] == (5 - 3) * 2_048
        assert (found["late_shortened"], found["late_dropped"]) == (1.0, 0.0)


def test_fallbacks_are_not_checked() -> None:
    watch = AsynchronyWatch()
    then = problem([5], [[0]], [5])
    watch.decide(decide)(then, *GRID)
    planned = np.array([0], np.int64)
    late = LatePlan(then=then, live=then, planned=planned, carried_out=planned, used_fallback=True)
    watch.late(late)
    assert watch.measures(NO_RUN) == {}
    watch.late(replace(late, used_fallback=False))
    assert watch.measures(NO_RUN)["late_unchecked"] == 0.5
