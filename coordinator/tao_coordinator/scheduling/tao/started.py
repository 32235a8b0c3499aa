"""Held started sessions compete jointly for what the budgets leave; overdue ones lead.

Few pairs of session and backend are placed within the step. More are asked for as a plan made
beside the loop (`SolvePlan`), one at a time: what happens meanwhile is taken up by the next one. A
plan that does not come, or whose sessions have changed, is dropped; after `DROPPED_MAX` dropped
plans in a row the next is made within the step, so that somebody always goes on.
"""

from collections.abc import Callable, Collection

import numpy as np

from tao_coordinator.core.effects import SolvePlan
from tao_coordinator.core.events import PlanSolved
from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.plans import (
    Asynchrony,
    PlanLog,
    PlanOutcome,
    PlanPath,
    PlanRecord,
)
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.placement import (
    INSTANT,
    INSTANT_OVERDUE,
    PlacementProblem,
    Plan,
    solve,
)
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.tao import aside, competition, recording
from tao_coordinator.scheduling.tao.aside import Snapshot
from tao_coordinator.scheduling.tao.room import Room, is_overdue, place_alone

LOOP_PAIRS_MAX = 512
"""Pairs of session and backend placed within a step where larger plans can be made beside it."""
LOOP_SESSIONS_MAX = 256
"""Sessions placed within a step at most."""
ASIDE_PAIRS_MAX = 500_000
"""Pairs in one plan made aside: 12 MB of arrays on their way to another process."""
PLAN_WAIT_S = 2.0
"""A plan that has not come by then is dropped."""
DROPPED_MAX = 2
"""Plans dropped in a row before one is made within the step."""


Place = Callable[[PlacementProblem], Plan]
"""Makes a plan within a step."""


def place_instantly(problem: PlacementProblem) -> Plan:
    """One Cohen-Katz-Raz plan with improving passes; with overdue sessions the better of two."""
    return solve(problem, INSTANT_OVERDUE if problem.classes.any() else INSTANT)


class StartedSessions:
    """Stage 1: who of the started sessions goes, and where."""

    def __init__(
        self, plans: PlanLog, loop_pairs_max: int | None, place: Place = place_instantly
    ) -> None:
        """Write to `plans`; place at most `loop_pairs_max` pairs within a step (`None`: all)."""
        self._place = place
        self._plans = plans
        self._loop_pairs_max = loop_pairs_max
        self._wanted: SolvePlan | None = None
        self._asked: Snapshot | None = None
        self._answer: PlanSolved | None = None
        self._num_dropped = 0
        self._is_outdated = False
        """Something changed since the snapshot was taken."""

    def take_question(self) -> SolvePlan | None:
        """The plan that is wanted, once."""
        wanted, self._wanted = self._wanted, None
        return wanted

    def answer(self, solved: PlanSolved) -> None:
        """Take in a plan; one that is not waited for any more is left aside."""
        if self._asked is not None and solved.plan_id == self._asked.plan_id:
            self._answer = solved

    def place(
        self, state: State, started: list[Turn], room: Room, now_s: float
    ) -> list[Assignment] | None:
        """Assignments of this moment; `None`: a plan is being made, or to be asked for."""
        found = self._finish(state, started, room, now_s)
        if self._asked is not None:
            self._is_outdated = True
            return None
        if found is not None and self._num_dropped < DROPPED_MAX:
            return found
        backends = [b for b in state.backends.values() if b.usable]
        if not started or not backends:
            return []
        if self._fits_loop(len(started), len(backends)):
            return self._place_now(state, started, backends, room, now_s)
        self._is_outdated = True
        return None

    def look_ahead(self, state: State, waiting: list[Turn], room: Room, now_s: float) -> None:
        """Ask for the next plan, with what room this moment has left, if it is time for one."""
        if self._asked is not None or not self._is_outdated or not waiting:
            return
        backends = [b for b in state.backends.values() if b.usable]
        if backends:
            self._ask(state, waiting, backends, room, now_s)

    # --- within the step -------------------------------------------------------------------------

    def _fits_loop(self, num_sessions: int, num_backends: int) -> bool:
        limit = self._loop_pairs_max
        is_small = limit is None or num_sessions * num_backends <= limit
        return is_small or self._num_dropped >= DROPPED_MAX

    def _place_now(
        self,
        state: State,
        waiting: list[Turn],
        backends: list[Backend],
        room: Room,
        now_s: float,
    ) -> list[Assignment]:
        self._num_dropped, self._is_outdated = 0, False
        late = _late(state, waiting, now_s)
        turns = _overdue_first(waiting, late, LOOP_SESSIONS_MAX)
        problem = competition.build(state, turns, backends, room, late)
        plan = self._place(problem)
        plan_id = self._plans.next_id()
        indices: list[int] = plan.backend_of.tolist()
        chosen = [(turn, backends[b]) for turn, b in zip(turns, indices, strict=True) if b >= 0]
        found = _settle(state, chosen, turns, late, room, plan_id)
        record = PlanRecord(
            plan_id=plan_id,
            decided_s=now_s,
            path=PlanPath.LOOP,
            outcome=PlanOutcome.APPLIED,
            candidates=recording.Competitors(
                turns,
                backends,
                problem,
                plan,
                found,
                why_chosen_waits="behind_overdue",
                decided_s=now_s,
                bucket_tokens=state.parameters.credit_bucket_tokens,
            ),
            quality=recording.quality(plan),
        )
        self._plans.add(record)
        return found

    # --- beside the loop -------------------------------------------------------------------------

    def _ask(
        self,
        state: State,
        waiting: list[Turn],
        backends: list[Backend],
        room: Room,
        now_s: float,
    ) -> None:
        late = _late(state, waiting, now_s)
        turns = _overdue_first(waiting, late, max(1, ASIDE_PAIRS_MAX // len(backends)))
        problem = competition.build(state, turns, backends, room, late)
        self._asked = Snapshot.take(self._plans.next_id(), now_s, turns, backends, problem)
        self._answer, self._is_outdated = None, False
        self._wanted = SolvePlan(plan_id=self._asked.plan_id, problem=problem)

    def _finish(
        self, state: State, started: list[Turn], room: Room, now_s: float
    ) -> list[Assignment] | None:
        """Carry out or drop the plan that was asked for; `None`: there is none, or not yet."""
        snapshot, solved = self._asked, self._answer
        if snapshot is None or (solved is None and now_s - snapshot.taken_s < PLAN_WAIT_S):
            return None
        self._asked = self._answer = None
        plan = None if solved is None else solved.plan
        late = _late(state, started, now_s)
        live = competition.build(state, snapshot.turns, snapshot.backends, room, late)
        room.keep_for_started({})
        if not isinstance(plan, Plan):
            self._drop(snapshot, live, None, PlanOutcome.FAILED, None, state, now_s)
            return []
        if not aside.still_valid(snapshot, plan, state, live):
            terms = self._cost(snapshot, plan, live, started, [], state, now_s)
            self._drop(snapshot, live, plan, PlanOutcome.CHANGED, terms, state, now_s)
            return []
        self._num_dropped = 0
        prefix = aside.longest_prefix(plan.backend_of, live)
        where: list[int] = plan.backend_of.tolist()
        chosen = [(snapshot.turns[i], snapshot.backends[where[i]]) for i in prefix]
        found = _settle(state, chosen, started, late, room, snapshot.plan_id)
        room.keep_for_started(aside.left_by(snapshot, plan))
        given = {assignment.turn.request_id for assignment in found}
        carried_out = [i for i in prefix if snapshot.turns[i].request_id in given]
        terms = self._cost(snapshot, plan, live, started, carried_out, state, now_s)
        is_whole = len(carried_out) == int((plan.backend_of >= 0).sum())
        self._is_outdated |= not is_whole
        outcome = PlanOutcome.APPLIED if is_whole else PlanOutcome.SHORTENED
        self._note(snapshot, live, plan, outcome, terms, found, state, now_s)
        return found

    def _drop(
        self,
        snapshot: Snapshot,
        live: PlacementProblem,
        plan: Plan | None,
        outcome: PlanOutcome,
        terms: Asynchrony | None,
        state: State,
        now_s: float,
    ) -> None:
        self._num_dropped += 1
        self._is_outdated = True
        self._note(snapshot, live, plan, outcome, terms, [], state, now_s)

    def _note(
        self,
        snapshot: Snapshot,
        live: PlacementProblem,
        plan: Plan | None,
        outcome: PlanOutcome,
        terms: Asynchrony | None,
        found: list[Assignment],
        state: State,
        now_s: float,
    ) -> None:
        why = {PlanOutcome.CHANGED: "changed", PlanOutcome.FAILED: "failed"}.get(outcome, "cut")
        self._plans.add(
            PlanRecord(
                plan_id=snapshot.plan_id,
                decided_s=now_s,
                path=PlanPath.ASIDE,
                outcome=outcome,
                candidates=recording.Competitors(
                    snapshot.turns,
                    snapshot.backends,
                    live,
                    plan,
                    found,
                    why_chosen_waits=why,
                    decided_s=now_s,
                    bucket_tokens=state.parameters.credit_bucket_tokens,
                ),
                quality=None if plan is None else recording.quality(plan),
                asynchrony=terms,
            )
        )

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
        seen = {turn.request_id for turn in snapshot.turns}
        bucket = state.parameters.credit_bucket_tokens
        homes = {b.backend_id: b for b in state.backends.values() if b.usable}
        arrived = 0
        for turn in started:
            home = homes.get(turn.session.last_backend_id or "")
            if turn.request_id not in seen and home is not None:
                arrived += state.resident_tokens(turn.session, home) // bucket
        held = np.array([state.held.get(t.request_id) is t for t in snapshot.turns], bool)
        return aside.cost(
            snapshot, plan, live, held, arrived, carried_out, now_s=now_s, bucket_tokens=bucket
        )


def _late(state: State, turns: Collection[Turn], now_s: float) -> set[str]:
    return {turn.request_id for turn in turns if is_overdue(state, turn, now_s)}


def _overdue_first(turns: list[Turn], late: set[str], count: int) -> list[Turn]:
    """So that the limit on the problem's size never hides them."""
    return sorted(turns, key=lambda turn: turn.request_id not in late)[:count]


def _settle(
    state: State,
    chosen: list[tuple[Turn, Backend]],
    competing: list[Turn],
    late: set[str],
    room: Room,
    plan_id: int,
) -> list[Assignment]:
    """Give the chosen their places, unless an overdue turn that got none waits for that room."""
    chosen_ids = {turn.request_id for turn, _ in chosen}
    for turn in competing:
        if turn.request_id in late and turn.request_id not in chosen_ids:
            room.wait_for(turn)
    found: list[Assignment] = []
    for turn, backend in chosen:
        if turn.request_id not in late and backend.backend_id in room.waited_for:
            continue
        room.take(backend, state.need_tokens(turn, backend), state.growth_beside(backend))
        found.append(
            Assignment(
                turn=turn,
                backend=backend,
                reason="planned",
                plan_id=plan_id,
                keeps_pool=True,
                keeps_budget=True,
            )
        )
    others = [turn for turn in competing if turn.request_id not in chosen_ids]
    return found + place_alone(state, others, room)
