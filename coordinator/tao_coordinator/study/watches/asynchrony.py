"""The terms of TAO's Eq. 12, plan by plan, and whether the bound held.

    max_{x feasible at t} U_t(x) - U_t(y)  <=  A + 2 eps + T

x_s is the plan made at s, y what was carried out of it at t, U the summed value.

For `tao-paper` (optimal on its grid, so no solver gap) both maxima are solved again, on the grid:

    T    U_t(x_s) - U_t(y), exact
    A    max_{X_t} U_t - max_{X'} U_t, X' = plans feasible at both times (the heavier weight, the
         smaller budget of the two): X' may be a little less than the intersection, never more
    eps  sum_i max_b |k_ib(t) - k_ib(s)|: how far credit has decayed, the only change of values that
         the source gives its bound for
    J    sum_i |r_i(t) - r_i(s)| and |t_i(t) - t_i(s)|, the allowance: readiness jumps between 0 and
         1, and the tokens of a session are counted otherwise once it is back

U is taken twice: as credit alone, in tokens, where nothing can jump; and as the whole value
(k R + r) T + t, with R and T larger than any sum below them, as a number. The second bound is
checked without J and with eps + J for eps.

For `tao` the terms are those that the policy itself states (`core.plans.Asynchrony`: A and eps as
upper bounds, and a solver gap G); the maximum at t is what the whole ladder finds.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from tao_coordinator.scheduling.placement import LOOP, PlacementProblem, solve
from tao_coordinator.scheduling.placement.plan import objective_of
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.rivals.grid_decision import Decide, Decision
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.watches.watch import BoundedPlan, LatePlan, Series, Watch

ROWS_MAX: Final = 2_000
_SUMS: Final = ("best", "loss", "feasibility", "drift", "execution", "gap")


class AsynchronyWatch(Watch):
    """Adds up the terms."""

    hears_late_plans = True

    def __init__(self) -> None:
        """No plan was late yet."""
        self._decide: Decide | None = None
        self._grid = (1, 1)
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self.num_plans = 0
        """Those for which the bound is promised and could be checked."""
        self.num_unchecked = 0
        """By fallback, or too large to be solved again."""
        self.num_dropped = 0
        self.num_shortened = 0
        self.num_jumped = 0
        """Plans in which anybody's readiness differs at t."""
        self.num_violated = dict.fromkeys(("credit", "value", "value_with_jumps"), 0)
        self._has_values = False
        self._rows: Series = []

    def decide(self, decide: Decide) -> Decide:
        """See `Watch`; it is also how the maxima are solved."""
        self._decide = decide

        def watched(problem: PlacementProblem, quantum_tokens: int, states_max: int) -> Decision:
            self._grid = (quantum_tokens, states_max)
            return decide(problem, quantum_tokens, states_max)

        return watched

    def late(self, plan: LatePlan | BoundedPlan) -> None:
        """See `Watch`."""
        if isinstance(plan, BoundedPlan):
            self._stated(plan)
        else:
            self._solve_again(plan)

    def measures(self, record: RunRecord) -> dict[str, float]:
        """Shares of plans; terms as means in tokens of credit."""
        if not self.num_plans:
            return {}
        tokens = {name: total / self.num_plans for name, total in self._sums.items()}
        tokens["drift"] *= 2.0
        found = {
            "late_plans": float(self.num_plans),
            "late_unchecked": self.num_unchecked / (self.num_plans + self.num_unchecked),
            "late_dropped": self.num_dropped / self.num_plans,
            "late_shortened": self.num_shortened / self.num_plans,
            **{f"bound_{name}_tokens": value for name, value in tokens.items()},
            "bound_tokens": sum(tokens.values()) - tokens["best"] - tokens["loss"],
            "violated_credit": self.num_violated["credit"] / self.num_plans,
        }
        if self._has_values:
            found["late_jumped"] = self.num_jumped / self.num_plans
            found["violated_value"] = self.num_violated["value"] / self.num_plans
            found["violated_value_with_jumps"] = (
                self.num_violated["value_with_jumps"] / self.num_plans
            )
        return found

    def series(self, record: RunRecord) -> dict[str, Series]:
        """`terms`: per plan what was lost and the bound on it, tokens of credit."""
        return {"terms": self._rows}

    # --- tao -------------------------------------------------------------------------------------

    def _stated(self, plan: BoundedPlan) -> None:
        best = max(plan.value, solve(plan.live, LOOP).objective.credit)
        self.num_plans += 1
        self._count(plan.num_planned, plan.num_carried_out)
        loss = best - plan.value
        terms = (plan.feasibility_change, plan.value_drift, plan.execution_loss, plan.solver_gap)
        self._add(*(plan.unit_tokens * term for term in (best, loss, *terms)))
        right = terms[0] + 2 * terms[1] + terms[2] + terms[3]
        self.num_violated["credit"] += loss > right

    # --- tao-paper -------------------------------------------------------------------------------

    def _solve_again(self, plan: LatePlan) -> None:
        live, then = plan.live, plan.then
        best = None if plan.used_fallback else self._best(live)
        both = None if best is None else self._best(_feasible_twice(then, live))
        if best is None or both is None:
            self.num_unchecked += 1
            return
        self.num_plans += 1
        self._count(int((plan.planned >= 0).sum()), int((plan.carried_out >= 0).sum()))
        self.num_jumped += bool((live.ready != then.ready).any())
        self._has_values = True
        drift = np.where(then.eligible, np.abs(live.credits - then.credits), 0)
        eps = int(drift.max(axis=1, initial=0).sum())
        sums = [_sums(live, where) for where in (best, both, plan.planned, plan.carried_out)]
        best_credit, both_credit, planned, value = (credit for credit, _, _ in sums)
        loss = best_credit - value
        self._add(best_credit, loss, best_credit - both_credit, eps, planned - value, 0.0)
        # Loss less A and T, for any U: what only the change of values can explain.
        self.num_violated["credit"] += both_credit - planned > 2 * eps
        radix_t = 1 + int(max(then.tokens.sum(), live.tokens.sum()))
        radix_r = 1 + live.num_sessions
        numbers = [(k * radix_r + r) * radix_t + t for k, r, t in sums]
        excess = numbers[1] - numbers[2]
        eps *= radix_r * radix_t
        jumps = int(np.abs(live.ready - then.ready).sum()) * radix_t
        jumps += int(np.abs(live.tokens - then.tokens).sum())
        self.num_violated["value"] += excess > 2 * eps
        self.num_violated["value_with_jumps"] += excess > 2 * (eps + jumps)

    def _best(self, problem: PlacementProblem) -> Int64 | None:
        """An optimal plan on the grid; `None`: it is too large."""
        assert self._decide is not None
        found = self._decide(problem, *self._grid)
        return None if found.used_fallback else found.backend_of

    def _count(self, num_planned: int, num_carried_out: int) -> None:
        self.num_dropped += num_carried_out == 0 < num_planned
        self.num_shortened += 0 < num_carried_out < num_planned

    def _add(self, *terms: float) -> None:
        for name, term in zip(_SUMS, terms, strict=True):
            self._sums[name] += term
        if len(self._rows) < ROWS_MAX:
            _, loss, feasibility, drift, execution, gap = terms
            bound = feasibility + 2.0 * drift + execution + gap
            self._rows.append([float(loss), float(bound)])


def _feasible_twice(then: PlacementProblem, live: PlacementProblem) -> PlacementProblem:
    """Values of t, constraints of both."""
    return replace(
        live,
        weights=np.maximum(then.weights, live.weights),
        budgets=np.minimum(then.budgets, live.budgets),
        eligible=then.eligible & live.eligible,
    )


def _sums(problem: PlacementProblem, where: Int64) -> tuple[int, int, int]:
    found = objective_of(problem, where)
    return found.credit, found.ready, found.tokens
