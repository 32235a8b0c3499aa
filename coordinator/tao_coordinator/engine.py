"""The engine: facts in, orders out, no clock of its own.

`Engine.step(now_s, events) -> (effects, next_wakeup_s)` is all there is. The service calls it for
every request and whenever the wake-up time has come; the simulator calls it in virtual time; tests
call it with numbers. One step is: take in the events, end what has expired, and, while turns are
held and something changed, ask the policy whom to interrupt and whom to admit.

Invariants (asserted in `check`, by the ledger, and where a planned grant is carried out): a session
has at most one seat; a planned grant keeps its backend's budget; no lease is used after expiry;
every turn ends in grant, rejection or cancellation; sums return to 0; time never goes back.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tao_coordinator.core import expiry, fleet, granting, intake, invariants, ledger, telemetry
from tao_coordinator.core.effects import Effect, Hold, Reject, RejectReason
from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    LeaseRenewed,
    PlanSolved,
    PollEnded,
    PollStarted,
    SessionEnded,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.core.model import Session, Turn
from tao_coordinator.core.observation import Observation, ReadinessView
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.plans import PlanLog, PlanRecord
from tao_coordinator.core.reserve import look_at_growth
from tao_coordinator.core.state import State
from tao_coordinator.core.view import observe
from tao_coordinator.prediction.predictor import PREDICTORS, ReadinessPredictor
from tao_coordinator.prediction.remaining import Remaining
from tao_coordinator.scheduling import catalogue
from tao_coordinator.scheduling.catalogue import POLICIES as POLICIES
from tao_coordinator.scheduling.control.loop import ControlLoop
from tao_coordinator.scheduling.policy import (
    Assignment,
    KeepsPlans,
    MakesPlansAside,
    Policy,
    ReadsReadiness,
)
from tao_coordinator.scheduling.tao import Tao

CROWD = 64
"""Held turns beyond which admission is looked at every `CROWD_ADMIT_S` instead of at each event."""
CROWD_ADMIT_S = 0.05


class Engine:
    """Decides who runs now, where, and who waits."""

    def __init__(
        self,
        parameters: Parameters,
        policy: str | Policy = "tao",
        *,
        makes_plans_aside: bool = False,
        lease_prefix: str = "l",
    ) -> None:
        """Start with no backends and no sessions.

        Args:
            parameters: constants of the decision.
            policy: one of `POLICIES`, or a policy with parameters of its own.
            makes_plans_aside: whoever calls carries out `SolvePlan`; else each plan is made within
                the step that needs it, whatever it takes.
            lease_prefix: of its lease ids; callers also give back leases of an engine before it.

        Raises:
            ValueError: unknown policy.
        """
        if isinstance(policy, str):
            policy = catalogue.make(policy, parameters, makes_plans_aside=makes_plans_aside)
        self.policy = policy
        # A policy that asks none has one all the same: it learns for people and for the next run.
        self.readiness: ReadinessPredictor = (
            policy.readiness if isinstance(policy, ReadsReadiness) else PREDICTORS["hazard"]()
        )
        # Asked at every step, and a protocol is slow to recognise.
        self._planner = policy if isinstance(policy, MakesPlansAside) else None
        is_ours = isinstance(policy, Tao)
        if not is_ours:
            # Rejecting new sessions in time is our promise; the rivals hold as long as theirs do.
            parameters = replace(parameters, new_wait_s_max=math.inf)
        self.state = State(parameters, lease_prefix)
        self._control = ControlLoop() if is_ours else None
        self._started_s: float | None = None
        self._now_s = float("-inf")
        self._next_tick_s = float("-inf")
        self._next_admit_s = float("-inf")
        self._positions: dict[str, int] = {}
        self._changed = False  # a held turn may fit now that did not before
        self._handlers: dict[type, Callable[[Any], None]] = {
            TurnRequested: self._turn_requested,
            PollStarted: self._poll_started,
            PollEnded: self._poll_ended,
            TurnAbandoned: self._turn_abandoned,
            LeaseRenewed: self._lease_renewed,
            LeaseReleased: self._lease_released,
            SessionEnded: self._session_ended,
            **{kind: self._informs(apply) for kind, apply in telemetry.HANDLERS.items()},
            **{kind: self._changes_fleet(apply) for kind, apply in fleet.HANDLERS.items()},
            PlanSolved: self._plan_solved,
        }
        self._effects: list[Effect] = []

    def step(self, now_s: float, events: Sequence[Event]) -> tuple[list[Effect], float | None]:
        """Take in events dated `now_s` and decide.

        Args:
            now_s: monotonic seconds; an earlier time than the last step's counts as that one.
            events: facts since the last step, in order.

        Returns:
            Orders to carry out, in order; and the latest time of the next step, `None` when nothing
            is alive that time could end.
        """
        self._now_s = now_s = max(now_s, self._now_s)
        if self._started_s is None:
            self._started_s = now_s
        self._effects = []
        for event in events:
            self._handlers[type(event)](event)
        state = self.state
        is_tick = now_s >= self._next_tick_s
        if is_tick:
            self._effects += expiry.sweep(state, now_s)
            self._next_tick_s = now_s + state.parameters.tick_s
            self._changed = True
            if self._control is not None:
                self._correct(self._control)
            self._interrupt()
            self._number_the_queue()
        if self._changed:
            self._admit()
        self._tell_predictor()
        if not (state.held or state.leases or state.sessions):
            return self._effects, None
        # Whatever an overfull queue has put off is looked at before the next tick.
        return self._effects, self._next_admit_s if self._changed else self._next_tick_s

    def observe(self, now_s: float) -> Observation:
        """The whole picture at `now_s`, for people and metrics; O(sessions)."""
        started_s = now_s if self._started_s is None else self._started_s
        plans = self.policy.plans if isinstance(self.policy, KeepsPlans) else PlanLog()
        return observe(self.state, self.policy.name, plans, now_s, started_s)

    def plan(self, plan_id: int) -> PlanRecord | None:
        """One joint plan, while it is remembered; `None` also for policies that keep none."""
        return self.policy.plans.get(plan_id) if isinstance(self.policy, KeepsPlans) else None

    def honesty(self) -> ReadinessView:
        """How far the readiness predictor could be trusted so far; O(1), about 1 ms."""
        return self.readiness.calibration().view()

    def expected_return(self, session_id: str, now_s: float) -> Remaining:
        """When a session is expected to want its backend again, for people."""
        return self.readiness.remaining(session_id, now_s)

    def has_lease(self, lease_id: str) -> bool:
        """Whether this lease is alive, as of the last step."""
        return lease_id in self.state.leases

    def learned(self) -> dict[str, object]:
        """Past durations as plain values, for `recall` after a restart."""
        return self.readiness.export()

    def recall(self, learned: Mapping[str, object]) -> None:
        """Add what an earlier engine has learned.

        Raises:
            ValueError: it is no export of this predictor; nothing is changed then.
        """
        self.readiness.merge(learned)

    def check(self) -> None:
        """Assert every invariant; O(everything), for tests and simulation."""
        invariants.check(self.state)

    # --- turns -----------------------------------------------------------------------------------

    def _turn_requested(self, event: TurnRequested) -> None:
        state, now_s = self.state, self._now_s
        known = self._answer_again(event.request_id)
        if known is not None:
            self._effects.append(known)
            return
        taken = intake.take_in(state, event, now_s)
        if isinstance(taken, Reject):
            state.totals.rejected[taken.reason.value] += 1
            self._effects.append(taken)
            return
        self._note_return(event, taken.session)
        # Whoever is resident goes at once; others only where they overtake nobody.
        assignment = self.policy.immediate(state, taken, now_s)
        if assignment is not None:
            self._grant(assignment)
            return
        is_first = not state.held
        if not taken.session.lease_ids:
            # It competes for room anew: what it held is free for whoever comes first.
            ledger.leave_seat(state, taken.session)
        ledger.hold(state, taken)
        self._changed = True
        self._admit()
        if is_first and state.held:
            # Somebody waits now: seats that are not worth their room are given up for it.
            self._interrupt()
            self._admit()
        if event.request_id in state.held:
            self._effects.append(self._hold_notice(taken))

    def _answer_again(self, request_id: str) -> Effect | None:
        """The answer to a poll; `None` for a request that was never seen."""
        state = self.state
        turn = state.held.get(request_id)
        if turn is not None:
            return self._hold_notice(turn)
        lease_id = state.lease_by_request.get(request_id)
        if lease_id is not None:
            return granting.order_of(state, state.leases[lease_id], is_repeat=True)
        if request_id in state.finished:
            return state.finished[request_id] or Reject(
                request_id=request_id,
                reason=RejectReason.LEASE_EXPIRED,
                message="this request had its lease already; a new turn needs a new request_id",
            )
        return None

    def _admit(self) -> None:
        """Ask the policy who goes; an overfull queue is looked at a few times a second only."""
        state, now_s = self.state, self._now_s
        if len(state.held) > CROWD and now_s < self._next_admit_s:
            return
        self._changed = False
        if not state.held:
            return
        self._next_admit_s = now_s + CROWD_ADMIT_S
        for assignment in self.policy.admit(state, now_s):
            self._grant(assignment)
        wanted = None if self._planner is None else self._planner.take_question()
        if wanted is not None:
            self._effects.append(wanted)

    def _plan_solved(self, event: PlanSolved) -> None:
        if self._planner is not None:
            self._planner.answer(event)
            self._changed = True

    def _number_the_queue(self) -> None:
        """Positions are as of the last tick: counting them at each poll would be quadratic."""
        ordered = sorted(self.state.held.values(), key=intake.queue_order)
        self._positions = {turn.request_id: n for n, turn in enumerate(ordered, start=1)}
        self.state.see_queue(self._now_s)

    def _hold_notice(self, turn: Turn) -> Hold:
        last = len(self.state.held)
        position = min(last, self._positions.get(turn.request_id, last))
        return intake.hold_notice(self.state, turn, position, self._now_s)

    def _note_return(self, event: TurnRequested, session: Session) -> None:
        self.readiness.observe(event, self._now_s)
        if session.idle_since_s is not None and not (session.held_ids or session.lease_ids):
            ledger.came_back(self.state)

    def _grant(self, assignment: Assignment) -> None:
        self._effects.append(
            granting.grant(
                self.state,
                assignment.turn,
                assignment.backend,
                self._now_s,
                policy=self.policy.name,
                reason=assignment.reason,
                plan_id=assignment.plan_id,
                keeps_pool=assignment.keeps_pool,
                keeps_budget=assignment.keeps_budget,
            )
        )

    def _poll_started(self, event: PollStarted) -> None:
        turn = self.state.held.get(event.request_id)
        if turn is not None:
            turn.poll_deadline_s = None

    def _poll_ended(self, event: PollEnded) -> None:
        turn = self.state.held.get(event.request_id)
        if turn is not None:
            turn.poll_deadline_s = self._now_s + self.state.parameters.poll_grace_s

    def _turn_abandoned(self, event: TurnAbandoned) -> None:
        state = self.state
        turn = state.held.get(event.request_id)
        if turn is not None:
            state.totals.abandoned += 1
            ledger.drop_held(state, turn, intake.abandoned(turn.request_id))
            self._changed = True
            return
        lease_id = state.lease_by_request.get(event.request_id)
        if lease_id is not None and not state.leases[lease_id].started:
            self._lease_released(LeaseReleased(lease_id=lease_id, outcome=TurnOutcome.CANCELLED))

    # --- leases ----------------------------------------------------------------------------------

    def _lease_renewed(self, event: LeaseRenewed) -> None:
        lease = self.state.leases.get(event.lease_id)
        if lease is None:
            return
        if lease.expires_s > self._now_s:
            ledger.start(self.state, lease, self._now_s)
        else:  # over, though no tick has looked at it yet
            self._lease_released(LeaseReleased(lease_id=event.lease_id, outcome=TurnOutcome.LOST))

    def _lease_released(self, event: LeaseReleased) -> None:
        lease = self.state.leases.get(event.lease_id)
        if lease is not None:
            ledger.finish(self.state, lease, event, self._now_s)
            self._tell_predictor()
            self._changed = True

    # --- sessions and backends -------------------------------------------------------------------

    def _session_ended(self, event: SessionEnded) -> None:
        state = self.state
        self.readiness.observe(event, self._now_s)
        for session in state.of_id(event.session_id):
            if event.agent and session.key.agent != event.agent:
                continue
            for request_id in list(session.held_ids):
                refusal = Reject(
                    request_id=request_id,
                    reason=RejectReason.SESSION_ENDED,
                    message=f"session {event.session_id} has ended",
                )
                ledger.drop_held(state, state.held[request_id], refusal)
                state.totals.rejected[RejectReason.SESSION_ENDED.value] += 1
                self._effects.append(refusal)
            ledger.end_session(state, session)
        self._changed = True

    def _tell_predictor(self) -> None:
        """Pass on what no event says: replies that ended, sessions that are gone."""
        state = self.state
        for session_id in state.replies_ended:
            self.readiness.turn_ended(session_id, self._now_s)
        for session_id in state.ids_gone:
            if session_id not in state.keys_by_id:
                self.readiness.forget(session_id)
        state.replies_ended.clear()
        state.ids_gone.clear()

    def _interrupt(self) -> None:
        for session in self.policy.interrupts(self.state, self._now_s):
            ledger.release_seat(self.state, session)

    def _correct(self, control: ControlLoop) -> None:
        state = self.state
        look_at_growth(state)
        corrections = control.correct(state)
        state.typical.passes_through = corrections.passes_through
        for backend_id, factor in corrections.capacity_factors.items():
            backend = state.backends[backend_id]
            backend.capacity_factor = factor
            ledger.fit_caches(state, backend)

    def _informs(self, apply: Callable[[State, Any, float], None]) -> Callable[[Any], None]:
        def handle(event: Any) -> None:
            apply(self.state, event, self._now_s)
            self.readiness.observe(event, self._now_s)

        return handle

    def _changes_fleet(self, apply: fleet.Handler) -> Callable[[Any], None]:
        def handle(event: Any) -> None:
            self._effects += apply(self.state, event, self._now_s)
            self._changed = True

        return handle
