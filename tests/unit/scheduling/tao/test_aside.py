"""Eq. 12's terms against brute force: the bound on what asynchrony costs is never too low."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from placement_brute_force import optimum

from tao_coordinator.core.model import Backend, Session, SessionKey, Turn
from tao_coordinator.core.plans import Asynchrony
from tao_coordinator.scheduling.placement import FULL, INSTANT, PlacementProblem, Plan, solve
from tao_coordinator.scheduling.tao.aside import Snapshot, cost, left_by, longest_prefix

BUCKET = 2_048


def turn(n: int) -> Turn:
    session = Session(
        key=SessionKey(f"s{n}", "", ""),
        root_id=f"s{n}",
        parent_id=None,
        tenant="",
        priority=0,
        last_activity_s=0.0,
    )
    return Turn(
        request_id=f"r{n}",
        session=session,
        arrived_s=0.0,
        queued_s=0.0,
        input_tokens=1,
        output_tokens=1,
        timeout_s=None,
    )


def backend(n: int) -> Backend:
    return Backend(f"b{n}", f"http://b{n}", capacity_override_tokens=None, capacity_scale=1.0)


@st.composite
def problems(draw: st.DrawFn, n: int, m: int) -> PlacementProblem:
    def matrix(low: int, high: int) -> list[list[int]]:
        row = st.lists(st.integers(low, high), min_size=m, max_size=m)
        return draw(st.lists(row, min_size=n, max_size=n))

    return PlacementProblem(
        weights=np.array(matrix(1, 9), np.int64).reshape(n, m),
        budgets=np.array(draw(st.lists(st.integers(0, 20), min_size=m, max_size=m)), np.int64),
        classes=np.zeros(n, np.int64),
        credits=np.array(matrix(0, 6), np.int64).reshape(n, m),
        ready=np.ones(n, np.int64),
        tokens=np.array(draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)), np.int64),
        eligible=np.array(matrix(0, 1), bool).reshape(n, m),
    )


@st.composite
def moments(draw: st.DrawFn) -> tuple[PlacementProblem, PlacementProblem, list[bool], int]:
    """The problem at s; at t with further turns; which old turns are still held; their number."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    before = draw(problems(n, m))
    after = draw(problems(n + draw(st.integers(0, 2)), m))
    if draw(st.booleans()):  # little has changed
        weights, credits, eligible = (
            after.weights.copy(),
            after.credits.copy(),
            after.eligible.copy(),
        )
        weights[:n], credits[:n], eligible[:n] = before.weights, before.credits, before.eligible
        after = dataclasses.replace(after, weights=weights, credits=credits, eligible=eligible)
    held = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return before, after, held, n


def first_rows(problem: PlacementProblem, n: int) -> PlacementProblem:
    return dataclasses.replace(
        problem,
        weights=problem.weights[:n],
        classes=problem.classes[:n],
        credits=problem.credits[:n],
        ready=problem.ready[:n],
        tokens=problem.tokens[:n],
        eligible=problem.eligible[:n],
    )


def snapshot_of(problem: PlacementProblem) -> Snapshot:
    n, m = problem.weights.shape
    turns = [turn(i) for i in range(n)]
    return Snapshot.take(1, 10.0, turns, [backend(b) for b in range(m)], problem)


def terms_of(
    before: PlacementProblem, after: PlacementProblem, held: list[bool], plan: Plan
) -> tuple[Asynchrony, list[int]]:
    n = before.num_sessions
    old = first_rows(after, n)
    kept = np.array(held, bool)
    live = dataclasses.replace(old, eligible=old.eligible & kept[:, None])
    chosen = [
        i for i in longest_prefix(plan.backend_of, old) if live.eligible[i, plan.backend_of[i]]
    ]
    arrived = int(np.where(after.eligible[n:], after.credits[n:], 0).max(axis=1, initial=0).sum())
    return (
        cost(
            snapshot_of(before),
            plan,
            old,
            kept,
            arrived,
            chosen,
            now_s=10.5,
            bucket_tokens=BUCKET,
        ),
        chosen,
    )


@given(moments(), st.sampled_from([INSTANT, FULL]))
def test_loss_is_never_larger_than_its_bound(
    moment: tuple[PlacementProblem, PlacementProblem, list[bool], int], effort: object
) -> None:
    before, after, held, n = moment
    plan = solve(before, FULL if effort is FULL else INSTANT)
    terms, _ = terms_of(before, after, held, plan)
    still = np.concatenate([np.array(held, bool), np.ones(after.num_sessions - n, bool)])
    now = dataclasses.replace(after, eligible=after.eligible & still[:, None])
    best = optimum(now).credit * BUCKET
    assert best - terms.value_tokens <= terms.loss_max_tokens
    assert min(dataclasses.astuple(terms)) >= 0


@given(problems(4, 2))
def test_nothing_is_lost_when_nothing_changed(problem: PlacementProblem) -> None:
    plan = solve(problem, FULL)
    terms, chosen = terms_of(problem, problem, [True] * 4, plan)
    assert chosen == longest_prefix(plan.backend_of, problem)
    assert len(chosen) == plan.objective.sessions
    assert terms.loss_max_tokens == 0
    assert terms.value_tokens == plan.objective.credit * BUCKET == optimum(problem).credit * BUCKET


@given(problems(5, 2), problems(5, 2))
def test_prefix_fits_and_nothing_more_valuable_is_skipped(
    before: PlacementProblem, after: PlacementProblem
) -> None:
    plan = solve(before, FULL)
    chosen = longest_prefix(plan.backend_of, after)
    value = {
        i: (int(after.credits[i, b]), int(after.tokens[i]))
        for i, b in enumerate(plan.backend_of.tolist())
        if b >= 0
    }
    assert [value[i] for i in chosen] == sorted(value.values(), reverse=True)[: len(chosen)]
    left = after.budgets.astype(int).tolist()
    for i in chosen:
        left[plan.backend_of[i]] -= int(after.weights[i, plan.backend_of[i]])
    assert min(left) >= 0


@given(problems(5, 3))
def test_what_a_plan_leaves_is_its_budgets_less_what_it_uses(problem: PlacementProblem) -> None:
    plan = solve(problem, FULL)
    left = left_by(snapshot_of(problem), plan)
    for b in range(3):
        used = sum(int(problem.weights[i, b]) for i in range(5) if int(plan.backend_of[i]) == b)
        assert left[f"b{b}"] == int(problem.budgets[b]) - used
