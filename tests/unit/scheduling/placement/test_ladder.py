"""Later rungs return no less, cut-short searches still return something, same in same out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_strategies import problems

from tao_coordinator.bench.decision_problems import dense
from tao_coordinator.scheduling.placement import (
    FULL,
    INSTANT,
    LOOP,
    Effort,
    PlacementProblem,
    Rung,
    SparsePlacementProblem,
    solve,
)

FAMILIES = ("base", "multi3", "aged", "card", "allnew", "product")


@given(problems())
def test_each_rung_returns_no_less_than_the_one_before(problem: PlacementProblem) -> None:
    before: tuple[int, ...] = ()
    for rung in list(Rung)[: Rung.GRID]:
        plan = solve(problem, Effort(work=10**6, rung_max=rung))
        plan.check(problem)
        assert plan.objective >= before
        assert plan.rung <= rung
        before = plan.objective


@pytest.mark.parametrize("family", FAMILIES)
def test_more_effort_returns_no_less(family: str) -> None:
    problem = dense(family, 5, 40, 4)
    before: tuple[int, ...] = ()
    for work in (0, 1_000, 3_000, 10_000, 30_000, 100_000):
        plan = solve(problem, Effort(work=work))
        plan.check(problem)
        assert plan.objective >= before
        before = plan.objective


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_backends", [4, 16])
def test_same_problem_and_effort_give_the_same_plan(family: str, num_backends: int) -> None:
    one = solve(dense(family, 2, 48, num_backends), LOOP)
    other = solve(dense(family, 2, 48, num_backends), LOOP)
    assert one.backend_of.tolist() == other.backend_of.tolist()
    assert (one.work, one.certificate, one.rung) == (other.work, other.certificate, other.rung)


@pytest.mark.parametrize("family", FAMILIES)
def test_work_stays_near_its_budget(family: str) -> None:
    """No block runs on for long once the budget is spent."""
    problem = dense(family, 3, 120, 8)
    for work in (5_000, 20_000, 50_000):
        assert solve(problem, Effort(work=work)).work <= work + 20_000


def test_clock_cuts_the_search_short_and_is_reported() -> None:
    seconds = 0.0

    def clock() -> float:
        nonlocal seconds
        seconds += 0.001  # every look at it takes a millisecond
        return seconds

    plan = solve(dense("allnew", 3, 60, 5), FULL.timed(clock, limit_s=0.05))
    assert plan.elapsed_s is not None
    assert 0.05 <= plan.elapsed_s < 0.06
    assert solve(dense("allnew", 3, 10, 2), INSTANT).elapsed_s is None


def test_instant_is_the_local_ratio_plan() -> None:
    plan = solve(dense("base", 1, 60, 5), INSTANT)
    assert plan.rung == Rung.LOCAL_RATIO


def test_plan_with_every_session_at_its_best_place_is_optimal_at_once() -> None:
    problem = dense("base", 1, 4, 2, is_empty=True)
    plan = solve(problem, Effort(work=10**6, rung_max=Rung.TRIVIAL))
    assert plan.certificate.is_optimal
    assert plan.objective.sessions == 4


def test_token_gap_ends_the_search() -> None:
    """A hopeless proof: subset sums."""
    problem = dense("hot", 4, 150, 8)
    patient = solve(problem, Effort(work=300_000))
    assert patient.certificate.num_proved == 3
    wide = patient.certificate.gap * 2 + 0.001
    quick = solve(problem, Effort(work=300_000, token_gap=wide))
    assert quick.certificate.num_proved == 3
    assert quick.certificate.gap <= wide
    assert quick.work < patient.work


def test_no_sessions_no_backends() -> None:
    for n, m in ((0, 2), (3, 0), (0, 0)):
        problem = PlacementProblem(
            weights=np.zeros((n, m), np.int64),
            budgets=np.zeros(m, np.int64),
            classes=np.zeros(n, np.int64),
            credits=np.zeros((n, m), np.int64),
            ready=np.zeros(n, np.int64),
            tokens=np.zeros(n, np.int64),
            eligible=np.ones((n, m), bool),
        )
        plan = solve(problem)
        plan.check(problem)
        assert plan.certificate.is_optimal
        assert (plan.backend_of == -1).all()


@given(problems(sessions_max=5, backends_max=3), st.integers(4, 6))
@settings(max_examples=50)
def test_many_backends_of_which_few_matter_give_the_same(
    problem: PlacementProblem, copies: int
) -> None:
    """The sparse ladder goes first from twelve backends on: pad with backends nobody may use."""
    n, m = problem.weights.shape
    extra = 12 + copies - m
    padded = PlacementProblem(
        weights=np.hstack((problem.weights, np.ones((n, extra), np.int64))),
        budgets=np.append(problem.budgets, np.full(extra, 100)),
        classes=problem.classes,
        credits=np.hstack((problem.credits, np.ones((n, extra), np.int64))),
        ready=problem.ready,
        tokens=problem.tokens,
        eligible=np.hstack((problem.eligible, np.zeros((n, extra), bool))),
        session_limits=None
        if problem.session_limits is None
        else np.append(problem.session_limits, np.full(extra, 2)),
    )
    effort = Effort(work=10**6)
    few, many = solve(problem, effort), solve(padded, effort)
    many.check(padded)
    assert few.certificate.is_optimal
    assert many.certificate.is_optimal
    assert few.objective == many.objective


def test_values_too_large_for_one_integer_go_the_sparse_way() -> None:
    """Per backend they fit: the plan is as good, and nothing false is claimed about it."""
    problem = dense("base", 4, 60, 4)
    tall = replace(problem, credits=problem.credits * 4_000_000, tokens=problem.tokens * 1_000)
    plan = solve(tall, Effort(work=200_000))
    plan.check(tall)
    exact = solve(problem, Effort(work=200_000))
    assert exact.certificate.num_proved >= 2
    assert plan.objective.credit <= exact.objective.credit * 4_000_000
    assert plan.certificate.bound[1] >= exact.objective.credit * 4_000_000


def test_sparse_form_of_a_small_problem_is_solved_like_the_dense_one() -> None:
    problem = dense("multi3", 4, 30, 3)
    sessions, backends = problem.credits.nonzero()
    same = SparsePlacementProblem(
        weights=problem.weights[:, :1],
        eligible=problem.eligible[:, :1],
        kind_of=np.zeros(3, np.int64),
        budgets=problem.budgets,
        classes=problem.classes,
        ready=problem.ready,
        tokens=problem.tokens,
        credit_sessions=sessions,
        credit_backends=backends,
        credits=problem.credits[sessions, backends],
    )
    assert solve(same).backend_of.tolist() == solve(problem).backend_of.tolist()


@pytest.mark.parametrize("effort", [INSTANT, LOOP, FULL])
def test_where_nothing_fits_the_empty_plan_is_proved_at_once(effort: Effort) -> None:
    """The most frequent question of a full fleet: cheap, and with a closed certificate."""
    full = dense("base", 5, 40, 4)
    for problem in (
        replace(full, budgets=np.minimum(full.budgets, full.weights.min(axis=0) - 1)),
        replace(full, eligible=np.zeros_like(full.eligible)),
        replace(full, session_limits=np.zeros(4, np.int64)),
    ):
        plan = solve(problem, effort)
        plan.check(problem)
        assert plan.certificate.is_optimal
        assert (plan.backend_of == -1).all()
        assert plan.work < 100
    one = full.budgets.copy()
    one[1:] = -1
    one[0] = full.weights[:, 0].min()
    assert solve(replace(full, budgets=one), effort).objective.sessions == 1
