"""A plan made beside the loop meets the state of a moment later (TAO, section on asynchrony).

1. *Snapshot*: the problem as it was, and of each session what a plan takes for granted, its
   signature: it is still held, on the same turn, with the same last backend and calls in flight.
   Cache credit changes all the time and is left out.
2. *Re-check*: a chosen session whose signature changed, or that may no longer run where the plan
   wants it, drops the whole plan.
3. *Longest prefix*: else its pairs are carried out, most valuable first (overdue, credit, tokens),
   up to the first that no longer fits.
4. *What it cost*: the terms of Eq. 12 (`core.plans.Asynchrony`), as upper bounds that need no
   second solution. The bound on A: take a plan that is feasible now, take out of it the turns that
   were not held at s, the pairs that were not allowed at s, and on each backend b the least
   valuable sessions per token until Delta_b tokens are gone, with

       Delta_b = max(0, room_b(t) - room_b(s)) + sum_i max(0, w_ib(s) - w_ib(t)).

   What is left was feasible at s too. What was taken out on b is worth at most the fractional
   knapsack of capacity Delta_b over all sessions, and one session more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.plans import Asynchrony
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.placement import PlacementProblem, Plan
from tao_coordinator.scheduling.placement.problem import Bool, Int64

Signature = tuple[int, str | None, frozenset[str]]
"""Completed turns, last backend, calls in flight."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a plan was asked for."""

    plan_id: int
    taken_s: float
    turns: tuple[Turn, ...]
    backends: tuple[Backend, ...]
    problem: PlacementProblem
    signatures: tuple[Signature, ...]

    @staticmethod
    def take(
        plan_id: int,
        now_s: float,
        turns: Iterable[Turn],
        backends: Iterable[Backend],
        problem: PlacementProblem,
    ) -> "Snapshot":
        """Of these turns on these backends, in the problem's order."""
        turns = tuple(turns)
        return Snapshot(
            plan_id, now_s, turns, tuple(backends), problem, tuple(_signature(t) for t in turns)
        )

    def unchanged(self, state: State, live: PlacementProblem, i: int, b: int) -> bool:
        """Whether session i is what it was and may still run on backend b."""
        turn = self.turns[i]
        return (
            state.held.get(turn.request_id) is turn
            and _signature(turn) == self.signatures[i]
            and bool(live.eligible[i, b])
        )


def still_valid(snapshot: Snapshot, plan: Plan, state: State, live: PlacementProblem) -> bool:
    """Whether every chosen session is still what the plan took it for."""
    return all(
        snapshot.unchanged(state, live, i, b)
        for i, b in enumerate(plan.backend_of.tolist())
        if b >= 0
    )


def left_by(snapshot: Snapshot, plan: Plan) -> dict[str, int]:
    """Tokens by backend that the plan left of the snapshot's budgets."""
    left = snapshot.problem.budgets.copy()
    chosen = (plan.backend_of >= 0).nonzero()[0]
    where = plan.backend_of[chosen]
    np.subtract.at(left, where, snapshot.problem.weights[chosen, where])
    return {b.backend_id: int(left[i]) for i, b in enumerate(snapshot.backends)}


def longest_prefix(backend_of: Int64, live: PlacementProblem) -> list[int]:
    """Chosen sessions, most valuable first, up to the first that does not fit the live budgets."""
    chosen = (backend_of >= 0).nonzero()[0]
    where = backend_of[chosen]
    credits = live.credits[chosen, where]
    order = np.lexsort((-live.tokens[chosen], -live.ready[chosen], -credits, -live.classes[chosen]))
    left = live.budgets.copy()
    found: list[int] = []
    for place in order.tolist():
        i, b = int(chosen[place]), int(where[place])
        left[b] -= live.weights[i, b]
        if left[b] < 0:
            break
        found.append(i)
    return found


def cost(
    snapshot: Snapshot,
    plan: Plan,
    live: PlacementProblem,
    held: Bool,
    arrived_credit: int,
    carried_out: list[int],
    *,
    now_s: float,
    bucket_tokens: int,
) -> Asynchrony:
    """The terms of Eq. 12.

    Args:
        snapshot: at s.
        plan: made for it.
        live: the same turns and backends at t.
        held: [n] which of the turns are still held.
        arrived_credit: sum over turns that were not in the snapshot of their largest credit at t,
            in buckets.
        carried_out: sessions of the plan that were given their place.
        now_s: t.
        bucket_tokens: tokens per unit of credit.
    """
    before = snapshot.problem
    allowed = live.eligible & held[:, None]
    # Values are compared whether or not a pair is still feasible: U_t(x_s) counts them all.
    drift = _row_max_sum(np.where(before.eligible, np.abs(live.credits - before.credits), 0))
    newly = _row_max_sum(np.where(allowed & ~before.eligible, live.credits, 0))
    change = arrived_credit + newly + _worth_of_room(before, live, allowed)
    rows = np.array(carried_out, np.int64)
    value = int(live.credits[rows, plan.backend_of[rows]].sum())
    chosen = (plan.backend_of >= 0).nonzero()[0]
    where = plan.backend_of[chosen]
    planned = int(live.credits[chosen, where].sum())
    bound = plan.certificate.bound
    ceiling = _row_max_sum(np.where(before.eligible, before.credits, 0))
    if len(bound) > 1:
        ceiling = min(ceiling, bound[1])
    return Asynchrony(
        age_s=now_s - snapshot.taken_s,
        value_tokens=value * bucket_tokens,
        feasibility_change_tokens=change * bucket_tokens,
        value_drift_tokens=drift * bucket_tokens,
        execution_loss_tokens=(planned - value) * bucket_tokens,
        solver_gap_tokens=(ceiling - plan.objective.credit) * bucket_tokens,
    )


def _signature(turn: Turn) -> Signature:
    session = turn.session
    return (session.turns, session.last_backend_id, frozenset(session.lease_ids))


def _row_max_sum(values: Int64) -> int:
    return int(values.max(axis=1).sum()) if values.size else 0


def _worth_of_room(before: PlacementProblem, live: PlacementProblem, allowed: Bool) -> int:
    """Buckets of credit that budgets and weights, better now than then, can be worth at most."""
    # Of what weighs more now, only the old weight counts as taken out of the old budget.
    weights = np.minimum(before.weights, live.weights)
    lighter = np.where(allowed, np.maximum(0, before.weights - live.weights), 0).sum(axis=0)
    gained = np.maximum(0, live.budgets - before.budgets) + lighter
    # Sessions have credit on a backend or two: of a thousand, few columns need to be looked at.
    rows, columns = (allowed & (live.credits > 0)).nonzero()
    worth = 0.0
    for b in np.unique(columns[gained[columns] > 0]).tolist():
        use = rows[columns == b]
        credits, sizes = live.credits[use, b], np.maximum(1, weights[use, b])
        order = np.argsort(-credits / sizes, kind="stable")
        credits, sizes = credits[order], sizes[order]
        until = np.cumsum(sizes)
        share = np.clip((gained[b] - (until - sizes)) / sizes, 0.0, 1.0)
        worth += float((share * credits).sum()) + float(credits.max(initial=0))
    return int(np.ceil(worth))
