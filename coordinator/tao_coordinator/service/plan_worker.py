"""Makes large placement plans in a process of their own, so that no lease waits for one.

A thread would not do: the solver holds the interpreter lock for most of its time. The process is
started with the first plan (about half a second), lives as long as the coordinator, and is killed
and replaced when it does not answer. A plan that cannot be made is answered with `None`: the engine
then decides by simpler means.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio import to_process

from tao_coordinator.core.effects import Effect, SolvePlan
from tao_coordinator.core.events import Event, PlanSolved
from tao_coordinator.errors import EngineError
from tao_coordinator.scheduling.placement import FULL, PlacementProblem, Plan, solve

_log = logging.getLogger(__name__)

SOLVE_S_MAX: Final = 0.25
"""The search ends with the best plan found so far."""
ANSWER_S_MAX: Final = 5.0
"""A process that has not answered by then, start included, is killed."""


def make_plan(problem: object, limit_s: float) -> Plan:
    """Solve within about `limit_s` seconds; runs in the other process.

    Raises:
        TypeError: it is no placement problem.
    """
    if not isinstance(problem, PlacementProblem):
        raise TypeError(f"not a placement problem: {type(problem).__name__}")
    start_s = time.perf_counter()
    return solve(problem, FULL.timed(lambda: time.perf_counter() - start_s, limit_s))


class PlanWorker:
    """One plan at a time; a newer order replaces one that was not begun."""

    def __init__(
        self,
        dispatch: Callable[[Sequence[Event]], list[Effect]],
        make: Callable[[object, float], Plan] = make_plan,
        answer_s_max: float = ANSWER_S_MAX,
    ) -> None:
        """Answer through `dispatch`.

        Args:
            dispatch: gives events to the engine.
            make: importable by the other process.
            answer_s_max: seconds after which the process is given up.
        """
        self._dispatch = dispatch
        self._make = make
        self._answer_s_max = answer_s_max
        self._order: SolvePlan | None = None
        self._ordered = asyncio.Event()
        self._has_failed = False

    def order(self, wanted: SolvePlan) -> None:
        """Ask for a plan; never blocks."""
        self._order = wanted
        self._ordered.set()

    async def run(self) -> None:
        """Until cancelled; the process dies with it."""
        limiter = anyio.CapacityLimiter(1)
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            order, self._order = self._order, None
            if order is None:
                continue
            plan = await self._solve(order, limiter)
            try:
                self._dispatch((PlanSolved(plan_id=order.plan_id, plan=plan),))
            except EngineError:
                # Logged by the runtime; the next plan may be another story.
                continue

    async def _solve(self, order: SolvePlan, limiter: anyio.CapacityLimiter) -> Plan | None:
        try:
            with anyio.fail_after(self._answer_s_max):
                plan = await to_process.run_sync(
                    self._make, order.problem, SOLVE_S_MAX, cancellable=True, limiter=limiter
                )
        except Exception as error:  # noqa: BLE001
            # Whatever the other process does, it must cost one plan and no more: killed for
            # memory, hanging, an error in the solver, no process to be had. Logged below.
            if not self._has_failed:
                _log.warning(
                    "plan %d was not made (%s: %s); plans are made within the loop until one is",
                    order.plan_id,
                    type(error).__name__,
                    error,
                )
            self._has_failed = True
            return None
        if self._has_failed:
            _log.info("plans are made beside the loop again")
            self._has_failed = False
        return plan
