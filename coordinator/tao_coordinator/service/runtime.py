"""The engine's host: one clock, one timer, the table of waiting callers.

Everything runs on one event loop and `Engine.step` never awaits, so no lock is needed: each request
handler dispatches its events, the effects come back in the same call, and callers that wait for a
held turn sleep on a future that a later dispatch resolves.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tao_coordinator.core.effects import Effect, Grant, Hold, Reject, SolvePlan, Warn
from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    LeaseRenewed,
    PollEnded,
    PollStarted,
    TurnAbandoned,
    TurnRequested,
)
from tao_coordinator.core.observation import Observation, ReadinessView
from tao_coordinator.core.plans import PlanRecord
from tao_coordinator.errors import EngineError
from tao_coordinator.prediction.remaining import Remaining
from tao_coordinator.service.decision_log import DecisionLog
from tao_coordinator.service.handed_over import HandedOver
from tao_coordinator.service.journal.journal import Journal
from tao_coordinator.service.journal.writer import JournalState
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.operator_log import OperatorLog

_log = logging.getLogger(__name__)

TIMER_S_MIN = 0.001
"""The timer never fires sooner: an engine that asks to be woken in the past must not spin."""
FAILED_STEP_RETRY_S = 1.0
"""After a step that raised, the engine is called again this much later."""


class DecisionEngine(Protocol):
    """What the runtime needs of `tao_coordinator.engine.Engine`."""

    def step(self, now_s: float, events: Sequence[Event]) -> tuple[list[Effect], float | None]:
        """Take in events; return orders and the next wake-up on the same clock."""
        ...

    def has_lease(self, lease_id: str) -> bool:
        """Whether this lease is alive, as of the last step."""
        ...

    def observe(self, now_s: float) -> Observation:
        """Show the whole state."""
        ...

    def honesty(self) -> ReadinessView:
        """Show how far the readiness predictor can be trusted."""
        ...

    def expected_return(self, session_id: str, now_s: float) -> Remaining:
        """When a session is expected to want its backend again."""
        ...

    def plan(self, plan_id: int) -> PlanRecord | None:
        """One joint plan, while it is remembered."""
        ...

    def learned(self) -> dict[str, object]:
        """Past durations as plain values."""
        ...

    def recall(self, learned: Mapping[str, object]) -> None:
        """Add what an earlier engine has learned; `ValueError` when it is none."""
        ...


class HoldEnd(Enum):
    """Why a poll of a held turn ended without grant or rejection."""

    STILL_HELD = "still_held"
    DISCONNECTED = "disconnected"
    ABANDONED = "abandoned"
    """Another request took the turn back (DELETE)."""
    SHUTTING_DOWN = "shutting_down"


@dataclass(slots=True)
class _Waiter:
    """The connections that wait for one held turn; usually one, two while a client reconnects."""

    answer: asyncio.Future[Grant | Reject | HoldEnd] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    num_polls: int = 0


class Runtime:
    """Feeds the engine and carries out its orders. Every method runs on the event loop's thread."""

    def __init__(
        self,
        engine: DecisionEngine,
        metrics: ServiceMetrics,
        clock: Callable[[], float] = time.monotonic,
        journal: Journal | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._metrics = metrics
        self._journal = journal
        self._operator_log = OperatorLog()
        self._decisions = DecisionLog()
        self._waiters: dict[str, _Waiter] = {}
        self._handed_over = HandedOver()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s: float | None = None
        self._is_closing = False
        self._order_plan: Callable[[SolvePlan], None] | None = None

    def make_plans_with(self, order: Callable[[SolvePlan], None]) -> None:
        """Who makes plans beside the loop, and answers with `PlanSolved`; must not block."""
        self._order_plan = order

    @property
    def is_closing(self) -> bool:
        """True once the shutdown began: no turn is accepted any more."""
        return self._is_closing

    @property
    def num_polls(self) -> int:
        """Connections that wait for a held turn right now."""
        return sum(waiter.num_polls for waiter in self._waiters.values())

    def dispatch(self, events: Sequence[Event], ages_s: Sequence[float] = ()) -> list[Effect]:
        """Give `events` to the engine and carry out what it orders.

        Args:
            events: In order.
            ages_s: How long ago each of them happened, for the journal; empty: just now.

        Returns:
            The effects, for a caller that looks for its own answer among them.

        Raises:
            EngineError: The step failed; logged, and the timer stays armed.
        """
        if self._handed_over:
            ended = self._handed_over.ended_by(events)
            events = [*ended, *events]
            ages_s = [*(0.0 for _ in ended), *ages_s] if ages_s else ()
        now_s = self._clock()
        try:
            effects, wake_up_s = self._engine.step(now_s, events)
        except Exception as error:
            # The one boundary around the engine: a bug in a decision must cost this request only,
            # never the timer that every held turn depends on.
            _log.exception("engine step with %d events failed", len(events))
            self._metrics.engine_errors.inc()
            self._arm(now_s, now_s + FAILED_STEP_RETRY_S)
            raise EngineError("the decision engine failed; see the coordinator's log") from error
        self._metrics.step_s.observe(self._clock() - now_s)
        for effect in effects:
            self._carry_out(effect)
        if self._journal is not None:
            self._journal.take(now_s, events, effects, ages_s)
        self._arm(now_s, wake_up_s)
        return effects

    def observe(self) -> Observation:
        """The engine's state now."""
        return self._engine.observe(self._clock())

    def honesty(self) -> ReadinessView:
        """How far the readiness predictor can be trusted."""
        return self._engine.honesty()

    def expected_return(self, session_id: str) -> Remaining:
        """When a session is expected to want its backend again."""
        return self._engine.expected_return(session_id, self._clock())

    def journal_state(self) -> JournalState | None:
        """How the journal does; `None`: none is kept."""
        return None if self._journal is None else self._journal.state()

    def recent_decisions(self) -> list[dict[str, object]]:
        """The newest grants and refusals, newest first."""
        return self._decisions.newest(self._clock())

    def plan(self, plan_id: int) -> tuple[PlanRecord, float] | None:
        """One joint plan and its age in seconds; `None`: unknown, or forgotten."""
        record = self._engine.plan(plan_id)
        return None if record is None else (record, max(0.0, self._clock() - record.decided_s))

    def request_turn(
        self, turn: TurnRequested, released: LeaseReleased | None = None
    ) -> Grant | Hold | Reject:
        """Ask for a lease, or ask again for the same one.

        Args:
            turn: What is asked.
            released: The session's turn before, where its release has not arrived by itself yet.

        Raises:
            EngineError: The step failed or gave no answer.
        """
        answer: Grant | Hold | Reject | None = None
        for effect in self.dispatch((turn,) if released is None else (released, turn)):
            if isinstance(effect, Grant | Hold | Reject) and effect.request_id == turn.request_id:
                answer = effect
        if answer is None:
            raise EngineError("the decision engine gave no answer to this turn")
        return answer

    async def hold(
        self, request_id: str, wait_s: float, disconnected: asyncio.Future[None]
    ) -> Grant | Reject | HoldEnd:
        """Wait for a held turn on behalf of one connection.

        Args:
            request_id: A turn that the engine just answered with `Hold`.
            wait_s: At most this long.
            disconnected: Done once the caller's connection is gone.

        Returns:
            The engine's word or why there is none yet. With `DISCONNECTED` the turn has been taken
            back, unless another connection still waits for it.
        """
        if self._is_closing:
            return HoldEnd.SHUTTING_DOWN
        waiter = self._waiters.setdefault(request_id, _Waiter())
        waiter.num_polls += 1
        is_abandoned = True
        try:
            self.dispatch((PollStarted(request_id=request_id),))
            await asyncio.wait(
                (waiter.answer, disconnected),
                timeout=wait_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if disconnected.done():
                # Also when the grant came first: nobody is there to use it.
                return HoldEnd.DISCONNECTED
            is_abandoned = False
            return waiter.answer.result() if waiter.answer.done() else HoldEnd.STILL_HELD
        finally:
            waiter.num_polls -= 1
            if waiter.num_polls == 0 and self._waiters.get(request_id) is waiter:
                del self._waiters[request_id]
                if is_abandoned:
                    # A failing step is logged; raised here it would replace a cancellation.
                    with contextlib.suppress(EngineError):
                        self.dispatch((TurnAbandoned(request_id=request_id),))

    def end_poll(self, request_id: str) -> None:
        """The caller was told to ask again, unless another of its connections still waits."""
        if request_id not in self._waiters:
            self.dispatch((PollEnded(request_id=request_id),))

    def abandon(self, request_id: str) -> None:
        """The caller no longer wants this turn. Idempotent."""
        self.dispatch((TurnAbandoned(request_id=request_id),))
        self._resolve(request_id, HoldEnd.ABANDONED)

    def renew(self, lease_id: str) -> bool:
        """The caller of a running turn is alive; false when no such lease is."""
        self.dispatch((LeaseRenewed(lease_id=lease_id),))
        return self._engine.has_lease(lease_id)

    def release(self, released: LeaseReleased) -> None:
        """A turn is over. Idempotent."""
        self.dispatch((released,))

    def release_at_next_event(self, lease_id: str, turn: TurnRequested) -> None:
        """The turn runs where nobody tells of its end: what its session does next ends it."""
        self._handed_over.add(lease_id, turn)

    def begin_shutdown(self) -> None:
        """Answer every held turn at once and accept no further one. Idempotent."""
        self._is_closing = True
        for waiter in self._waiters.values():
            if not waiter.answer.done():
                waiter.answer.set_result(HoldEnd.SHUTTING_DOWN)

    def close(self) -> None:
        """Disarm the timer. The engine is not called any more by itself."""
        self._is_closing = True
        self._disarm()

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Grant):
            if not effect.is_repeat:
                self._metrics.observe_grant(effect)
                self._decisions.note(effect, self._clock())
            self._resolve(effect.request_id, effect)
        elif isinstance(effect, Reject):
            self._decisions.note(effect, self._clock())
            self._resolve(effect.request_id, effect)
        elif isinstance(effect, Warn):
            self._operator_log.tell(effect)
        elif isinstance(effect, SolvePlan) and self._order_plan is not None:
            self._order_plan(effect)

    def _resolve(self, request_id: str, answer: Grant | Reject | HoldEnd) -> None:
        waiter = self._waiters.get(request_id)
        if waiter is not None and not waiter.answer.done():
            waiter.answer.set_result(answer)

    def _arm(self, now_s: float, wake_up_s: float | None) -> None:
        if self._is_closing:
            return
        if wake_up_s == self._timer_at_s and self._timer is not None:
            return
        self._disarm()
        if wake_up_s is not None:
            # A delay, not a date: the loop's own clock is another one.
            delay_s = max(TIMER_S_MIN, wake_up_s - now_s)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)
            self._timer_at_s = wake_up_s

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at_s = None

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_s = None
        # A failing step is logged by dispatch, which also arms the timer again.
        with contextlib.suppress(EngineError):
            self.dispatch(())
