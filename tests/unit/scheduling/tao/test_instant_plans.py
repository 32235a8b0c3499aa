"""Plans made within a step against the whole ladder: what haste costs with overdue sessions."""

from statistics import mean

import pytest

from tao_coordinator.bench.decision_problems import dense
from tao_coordinator.scheduling.placement import INSTANT, Effort, PlacementProblem, Plan, solve
from tao_coordinator.scheduling.tao.started import place_instantly

SEEDS = range(7_000, 7_016)


def credit_loss(problem: PlacementProblem, plan: Plan) -> float | None:
    """Share of the credit that the whole ladder finds; `None`: it places more overdue sessions."""
    best = solve(problem, Effort(work=200_000)).objective
    if plan.objective.classes < best.classes:
        return None
    return 1.0 - plan.objective.credit / max(1, best.credit)


@pytest.mark.parametrize(("family", "loss_max"), [("product", 0.03), ("aged", 0.15)])
def test_overdue_sessions_do_not_cost_the_others_their_caches(family: str, loss_max: float) -> None:
    """Local ratio alone, as it was, loses several times that."""
    problems = [dense(family, seed, 35, 4) for seed in SEEDS]
    ours = [credit_loss(problem, place_instantly(problem)) for problem in problems]
    alone = [credit_loss(problem, solve(problem, INSTANT)) for problem in problems]
    assert sum(loss is None for loss in ours) <= 1
    assert mean(loss for loss in ours if loss is not None) <= loss_max
    assert mean(loss for loss in alone if loss is not None) > 1.5 * loss_max


def test_without_overdue_sessions_one_plan_is_enough() -> None:
    problems = [dense("base", seed, 35, 4) for seed in SEEDS]
    losses = [credit_loss(problem, place_instantly(problem)) for problem in problems]
    assert mean(loss for loss in losses if loss is not None) <= 0.01
