"""Certificates claim what is proved and no more; checks notice what is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.scheduling.placement import (
    Certificate,
    Objective,
    PlacementProblem,
    Plan,
    SparsePlacementProblem,
    solve,
)
from tao_coordinator.scheduling.placement.plan import check_feasible, objective_of

vectors = st.tuples(*[st.integers(0, 3)] * 5).map(lambda five: Objective(*five))


@given(vectors, vectors)
def test_certificate_claims_nothing_after_the_first_open_coordinate(
    one: Objective, other: Objective
) -> None:
    objective, bound = min(one, other), max(one, other)
    certificate = Certificate.of(objective, bound)
    proved = certificate.num_proved
    assert objective[:proved] == bound[:proved]
    assert certificate.is_optimal == (objective == bound)
    if not certificate.is_optimal:
        assert certificate.bound == bound[: proved + 1]
        assert objective[proved] < bound[proved]
        assert certificate.gap == (bound[proved] - objective[proved]) / bound[proved]
    else:
        assert certificate.gap == 0


def test_bound_below_the_objective_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="below"):
        Certificate.of(Objective(0, 5, 0, 0, 1), Objective(0, 4, 9, 9, 9))


def problem() -> PlacementProblem:
    return PlacementProblem(
        weights=np.array([[10, 20], [10, 20], [5, 5]], np.int64),
        budgets=np.array([15, 40], np.int64),
        classes=np.array([0, 1, 0], np.int64),
        credits=np.array([[3, 0], [0, 4], [0, 0]], np.int64),
        ready=np.array([1, 0, 1], np.int64),
        tokens=np.array([10, 20, 5], np.int64),
        eligible=np.array([[True, True], [True, True], [True, False]]),
        session_limits=np.array([2, 1], np.int64),
    )


def test_objective_sums_what_is_placed() -> None:
    assert objective_of(problem(), np.array([0, 1, -1])) == Objective(1, 7, 1, 30, 2)


@pytest.mark.parametrize(
    ("backend_of", "why"),
    [
        ([0, 0, -1], "budgets"),
        ([1, 1, -1], "limits"),
        ([-1, -1, 1], "may not use"),
        ([2, -1, -1], "no such backend"),
        ([-2, -1, -1], "no such backend"),
        ([0, 0], "one entry per session"),
    ],
)
def test_check_notices_violations(backend_of: list[int], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_feasible(problem(), np.array(backend_of, np.int64))


def test_plan_check_notices_a_wrong_objective() -> None:
    plan = solve(problem())
    plan.check(problem())
    wrong: Plan = replace(plan, objective=plan.objective._replace(ready=0))
    with pytest.raises(AssertionError):
        wrong.check(problem())


def test_problem_refuses_shapes_and_signs_that_nobody_means() -> None:
    good = problem()
    with pytest.raises(ValueError, match="weights"):
        replace(good, weights=good.weights[:2])
    with pytest.raises(ValueError, match="negative"):
        replace(good, tokens=-good.tokens)
    with pytest.raises(ValueError, match="eligible"):
        replace(good, eligible=good.eligible[:, :1])
    with pytest.raises(ValueError, match="session_limits"):
        replace(good, session_limits=np.array([1], np.int64))


def test_sparse_and_dense_form_answer_alike() -> None:
    dense = problem()
    sparse = SparsePlacementProblem(
        weights=dense.weights,
        eligible=dense.eligible,
        kind_of=np.array([0, 1]),
        budgets=dense.budgets,
        classes=dense.classes,
        ready=dense.ready,
        tokens=dense.tokens,
        credit_sessions=np.array([1, 0]),
        credit_backends=np.array([1, 0]),
        credits=np.array([4, 3]),
        session_limits=dense.session_limits,
    )
    sessions, backends = (part.ravel() for part in np.indices((3, 2)))
    for question in ("pair_weights", "pair_credits", "pair_eligible"):
        one = getattr(dense, question)(sessions, backends)
        other = getattr(sparse, question)(sessions, backends)
        assert one.tolist() == other.tolist()
    assert solve(sparse).objective == solve(dense).objective
