"""Policies whose plans meet a later state than they were made for, watched closely.

`LateTaoPaper` is TAO as published with the part that `tao-paper` leaves out: a plan is ready
`plan_s` after its snapshot, is dropped as a whole if a chosen session is not what it was (other
turn, other last backend, a call in flight, not paused any more) or may no longer run there, and is
else carried out as its longest prefix, most valuable first, that fits the live room. One plan at a
time; between ticks it is carried out at the first step after it is ready.

`WatchedTao` is `tao` with every plan made beside the loop, whatever its size.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tao_coordinator.core.model import Session, Turn
from tao_coordinator.core.plans import Asynchrony, PlanLog
from tao_coordinator.core.state import State
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.scheduling.placement import PlacementProblem, Plan
from tao_coordinator.scheduling.placement.problem import Bool, Int64
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.rivals.grid_decision import Decide
from tao_coordinator.scheduling.rivals.tao_paper import Contest, TaoPaper, TaoPaperParameters
from tao_coordinator.scheduling.tao import Tao, aside, competition
from tao_coordinator.scheduling.tao.aside import Snapshot
from tao_coordinator.scheduling.tao.room import Room
from tao_coordinator.scheduling.tao.started import StartedSessions
from tao_coordinator.study.watches.watch import BoundedPlan, LatePlan

Told = Callable[[LatePlan | BoundedPlan], None]


@dataclass(frozen=True, slots=True)
class _Pending:
    taken_s: float
    contest: Contest
    backend_of: Int64
    reason: str
    signatures: tuple[object, ...]


class LateTaoPaper(TaoPaper):
    """TAO as published, planning beside the loop."""

    def __init__(
        self,
        readiness: ReadinessPredictor,
        parameters: TaoPaperParameters,
        decide: Decide,
        *,
        plan_s: float,
        told: Told,
    ) -> None:
        """Plans are ready `plan_s` after they were asked for; `told` hears of each."""
        super().__init__(readiness, parameters, decide)
        self._plan_s = plan_s
        self._told = told
        self._pending: _Pending | None = None

    def resume_jointly(self, state: State, now_s: float) -> None:
        """Carry out what is ready, ask for the next plan."""
        self._finish(state, now_s)
        contest = None if self._pending is not None else self.contest(state, now_s)
        if contest is not None:
            backend_of, reason = self.plan(contest.problem)
            signatures = tuple(_signature(session) for session, _ in contest.pool)
            self._pending = _Pending(now_s, contest, backend_of, reason, signatures)

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """See `TaoPaper`; a plan that is ready is carried out first."""
        self._finish(state, now_s)
        return super().admit(state, now_s)

    def _finish(self, state: State, now_s: float) -> None:
        pending = self._pending
        if pending is None or now_s - pending.taken_s < self._plan_s:
            return
        self._pending = None
        live = self.everybody(state, now_s)
        if live is None or live.backends != pending.contest.backends:
            return
        places = {id(session): place for place, (session, _) in enumerate(live.pool)}
        late = _aligned(pending, live, places)
        chosen = (pending.backend_of >= 0).nonzero()[0].tolist()
        sessions = [pending.contest.pool[i][0] for i in chosen]
        same = all(
            id(session) in places
            and _signature(session) == pending.signatures[i]
            and late.live.eligible[i, pending.backend_of[i]]
            for i, session in zip(chosen, sessions, strict=True)
        )
        if same:
            for i in aside.longest_prefix(late.planned, late.live):
                late.carried_out[i] = late.planned[i]
            kept = late.carried_out[: len(pending.backend_of)]
            pending.contest.carry_out(kept, pending.reason)
        self._told(late)


def _signature(session: Session) -> object:
    return (session.turns, session.last_backend_id, frozenset(session.lease_ids))


def _aligned(pending: _Pending, live: Contest, places: dict[int, int]) -> LatePlan:
    """Both problems over everybody of either time, those of the snapshot first."""
    then, now = pending.contest.problem, live.problem
    n = then.num_sessions
    known = [places.get(id(session)) for session, _ in pending.contest.pool]
    new = sorted(set(range(now.num_sessions)) - {place for place in known if place is not None})
    at_then = [*range(n), *(n + place for place in new)]
    at_now = [i if place is None else n + place for i, place in enumerate(known)]
    at_now += [n + place for place in new]
    was = np.array([True] * n + [False] * len(new), bool)
    still = np.array([place is not None for place in known] + [True] * len(new), bool)
    waits = np.full(len(new), -1, np.int64)
    planned = np.concatenate([pending.backend_of, waits])
    return LatePlan(
        then=_rows(then, now, at_then, was, then.budgets),
        live=_rows(then, now, at_now, still, now.budgets),
        planned=planned,
        carried_out=np.full_like(planned, -1),
        used_fallback=pending.reason == "fallback",
    )


def _rows(
    then: PlacementProblem, now: PlacementProblem, rows: list[int], competes: Bool, budgets: Int64
) -> PlacementProblem:
    """Rows of the two problems stacked; who does not compete is eligible for nothing."""
    return PlacementProblem(
        weights=np.concatenate([then.weights, now.weights])[rows],
        budgets=budgets,
        classes=np.concatenate([then.classes, now.classes])[rows],
        credits=np.concatenate([then.credits, now.credits])[rows],
        ready=np.concatenate([then.ready, now.ready])[rows],
        tokens=np.concatenate([then.tokens, now.tokens])[rows],
        eligible=np.concatenate([then.eligible, now.eligible])[rows] & competes[:, None],
    )


class WatchedTao(Tao):
    """The default policy, all of whose plans are made beside the loop."""

    def __init__(self, readiness: ReadinessPredictor, told: Told) -> None:
        """`told` hears of each plan that met a later state, unless anybody was overdue."""
        super().__init__(readiness, loop_pairs_max=0)
        self._started = _WatchedStarted(self.plans, told)


class _WatchedStarted(StartedSessions):
    def __init__(self, plans: PlanLog, told: Told) -> None:
        super().__init__(plans, loop_pairs_max=0)
        self._told = told

    def _cost(
        self,
        snapshot: Snapshot,
        plan: Plan,
        live: PlacementProblem,
        started: list[Turn],
        carried_out: list[int],
        state: State,
        now_s: float,
    ) -> Asynchrony:
        terms = super()._cost(snapshot, plan, live, started, carried_out, state, now_s)
        if live.classes.any() or snapshot.problem.classes.any():
            return terms
        everybody = competition.build(state, started, snapshot.backends, Room(state), ())
        bucket = state.parameters.credit_bucket_tokens
        self._told(
            BoundedPlan(
                feasibility_change=terms.feasibility_change_tokens // bucket,
                value_drift=terms.value_drift_tokens // bucket,
                execution_loss=terms.execution_loss_tokens // bucket,
                solver_gap=terms.solver_gap_tokens // bucket,
                value=terms.value_tokens // bucket,
                num_planned=int((plan.backend_of >= 0).sum()),
                num_carried_out=len(carried_out),
                live=replace(everybody, budgets=live.budgets),
                unit_tokens=bucket,
            )
        )
        return terms
