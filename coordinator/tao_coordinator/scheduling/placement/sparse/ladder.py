"""The ladder for large problems, on pairs with credit.

1. *Local ratio*: one Cohen-Katz-Raz pass over the pairs with credit (at least half the optimal
   credit where nothing is overdue), improving rounds, overdue sessions, then everybody else.
2. *Prices*: the bound on credit, and plans from what it chooses (`prices`).
3. The best plan is filled again and polished backend by backend.

Bounds: class and the rest by the merged knapsack of all backends; credit by prices.
"""

import numpy as np

from tao_coordinator.scheduling.placement import knapsack
from tao_coordinator.scheduling.placement.effort import Effort, Meter
from tao_coordinator.scheduling.placement.plan import Certificate, Rung
from tao_coordinator.scheduling.placement.prices import Steps
from tao_coordinator.scheduling.placement.problem import Int64, Objective
from tao_coordinator.scheduling.placement.sparse.fill import fill, force_overdue, polish
from tao_coordinator.scheduling.placement.sparse.instance import SparseInstance
from tao_coordinator.scheduling.placement.sparse.prices import CreditBound, Variables, step
from tao_coordinator.scheduling.placement.sparse.state import SparsePlan

_STEPS_MAX = 60
_ROUNDS = 6
_PLAN_EVERY = 6
"""Steps between plans from what the bound chose."""
_POLISH_PASSES = 2


class Outcome:
    """Best plan and bounds so far."""

    def __init__(self, instance: SparseInstance) -> None:
        self.instance = instance
        self.plan = SparsePlan(instance)
        self.rung = Rung.TRIVIAL
        self.bound = _merged_bounds(instance)

    def offer(self, plan: SparsePlan, rung: Rung) -> bool:
        """Take the plan if it is better."""
        if plan.objective <= self.plan.objective:
            return False
        self.plan, self.rung = plan, rung
        return True

    def limit_credit(self, credit: int) -> None:
        """A bound on credit for plans that reach the class bound."""
        self.bound = self.bound._replace(credit=min(self.bound.credit, credit))

    @property
    def certificate(self) -> Certificate:
        """What is proved."""
        objective = self.plan.objective
        return Certificate.of(objective, max(self.bound, objective))


def climb(instance: SparseInstance, effort: Effort, meter: Meter) -> Outcome:
    """Search until proved or the effort is spent."""
    outcome = Outcome(instance)
    meter.spend(100 + instance.num_sessions // 10)
    plan = SparsePlan(instance)
    plan.local_ratio(meter)
    _complete(plan, meter)
    outcome.offer(plan, Rung.LOCAL_RATIO)
    if meter.exhausted or effort.rung_max < Rung.PRICES:
        return outcome
    core = _descend(outcome, meter)
    if core is not None:
        outcome.offer(core, Rung.PRICES)
    if effort.rung_max >= Rung.NEIGHBOURHOOD:
        for _ in range(_POLISH_PASSES):
            if outcome.certificate.is_optimal or meter.exhausted:
                break
            better = outcome.plan.copy()
            polish(better, meter)
            fill(better, meter)
            if not outcome.offer(better, Rung.NEIGHBOURHOOD):
                break
    return outcome


def _complete(plan: SparsePlan, meter: Meter) -> None:
    """Overdue sessions, forced if need be, then everybody else."""
    if plan.instance.classes.any():
        plan.improve_credit(_ROUNDS, meter, leave_overdue=True)
        fill(plan, meter, overdue_only=True)
        force_overdue(plan, meter)
    plan.improve_credit(_ROUNDS, meter)
    fill(plan, meter)


def _descend(outcome: Outcome, meter: Meter) -> SparsePlan | None:
    """Minimise the credit bound; the best completed plan found on the way."""
    instance = outcome.instance
    best_plan: SparsePlan | None = None
    reached = outcome.plan.objective
    if reached.classes < outcome.bound.classes or not len(instance.pair_sessions):
        return None
    bound = CreditBound(instance, reached.classes, meter)
    at, steps = _best_start(bound), Steps()
    best_at = at
    for number in range(_STEPS_MAX):
        value = bound.evaluate(at)
        gradient = bound.gradient()
        outcome.limit_credit(max(reached.credit, value // bound.scale))
        if steps.record(value, gradient):
            best_at = at
        else:
            again = steps.restart()
            if again is not None:
                at, gradient, value = best_at, again, steps.bound
        goal = reached.credit * bound.scale
        moved = step(bound, at, steps, gradient, float(max(0, value - goal)))
        last = moved is None or number == _STEPS_MAX - 1 or steps.stalled(goal)
        if last or number % _PLAN_EVERY == 0:
            plan = _from_choice(instance, bound, meter)
            if plan.objective > reached:
                best_plan, reached = plan, plan.objective
        if last or outcome.bound.credit <= reached.credit or meter.exhausted or moved is None:
            break
        at = moved
    return best_plan


def _best_start(bound: CreditBound) -> Variables:
    starts = bound.starts()
    values = [bound.evaluate(start) for start in starts]
    return starts[values.index(min(values))]


def _from_choice(instance: SparseInstance, bound: CreditBound, meter: Meter) -> SparsePlan:
    """A plan from what the bound chose: each session where it earns most, then improved."""
    plan = SparsePlan(instance)
    pairs = bound.taken.nonzero()[0]
    sessions, credits = instance.pair_sessions[pairs], instance.pair_credits[pairs]
    order = np.lexsort((-credits, sessions))
    first = np.append(True, np.diff(sessions[order]) != 0)[: len(order)]
    pairs = pairs[order[first]]
    plan.place(
        instance.pair_sessions[pairs], instance.pair_backends[pairs], instance.pair_credits[pairs]
    )
    _complete(plan, meter)
    return plan


def _merged_bounds(instance: SparseInstance) -> Objective:
    """Each coordinate alone, with all backends merged into one; read from the top."""
    usable = instance.usable.nonzero()[0]
    budget = int(np.maximum(instance.budgets, 0).sum())
    weights = instance.lightest[usable]
    best = np.zeros(instance.num_sessions, np.int64)
    np.maximum.at(best, instance.pair_sessions, instance.pair_credits)

    def most(values: Int64) -> int:
        return knapsack.solve(weights, values, budget, 64, int(values.sum()) // 10_000).bound

    count = int(np.sort(weights).cumsum().searchsorted(budget, side="right"))
    return Objective(
        min(int(instance.classes[usable].sum()), most(instance.classes[usable])),
        min(int(best.sum()), most(best[usable])),
        most(instance.ready[usable]),
        most(instance.tokens[usable]),
        count,
    )
