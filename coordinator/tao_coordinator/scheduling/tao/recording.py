"""Plans as records for people: who competed, who was chosen, and why the others were not.

A record is made with every plan, thousands of candidates included, and hardly ever looked at: kept
are arrays and names, rows are made on demand. Turns are not kept: their sessions would outlive
their end for as long as the record.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.plans import Candidate, Quality
from tao_coordinator.scheduling.placement import Objective, PlacementProblem, Plan
from tao_coordinator.scheduling.policy import Assignment

_WAITS: Final = ("outvalued", "no_room", "no_backend")


class Competitors:
    """The candidates of one plan; see `core.plans.Candidate` for the meaning of the fields."""

    __slots__ = (
        "_bucket_tokens", "_credits", "_decided_s", "_homes", "_late", "_names", "_needs",
        "_why_chosen_waits", "_whys",
    )  # fmt: skip

    def __init__(
        self,
        turns: Sequence[Turn],
        backends: Sequence[Backend],
        problem: PlacementProblem,
        plan: Plan | None,
        found: Sequence[Assignment],
        *,
        why_chosen_waits: str,
        decided_s: float,
        bucket_tokens: int,
    ) -> None:
        """Keep what the rows will say.

        Args:
            turns: n of them, in the problem's order.
            backends: m of them.
            problem: with the budgets before anybody was placed.
            plan: `None`: there was none.
            found: who goes.
            why_chosen_waits: what kept those waiting that the plan had chosen; everybody, if there
                was no plan.
            decided_s: monotonic seconds.
            bucket_tokens: tokens per unit of credit.
        """
        self._names = [_names(turn) for turn in turns]
        self._decided_s = decided_s
        self._bucket_tokens = bucket_tokens
        self._why_chosen_waits = why_chosen_waits
        self._homes = {a.turn.request_id: a.backend.backend_id for a in found}
        self._late = problem.classes
        self._credits = problem.credits.max(axis=1, initial=0)
        chosen = np.zeros(len(turns), bool) if plan is None else plan.backend_of >= 0
        needs = problem.weights.min(axis=1, initial=1 << 60)
        if plan is not None:
            where = plan.backend_of[chosen]
            needs[chosen] = problem.weights[chosen.nonzero()[0], where]
        self._needs = needs
        fits = (problem.eligible & (problem.weights <= problem.budgets[None, :])).any(axis=1)
        whys = np.where(fits, 0, np.where(problem.eligible.any(axis=1), 1, 2))
        whys[chosen | (plan is None)] = len(_WAITS)
        self._whys = whys.astype(np.int8)

    def __len__(self) -> int:
        return len(self._names)

    def rows(self) -> tuple[Candidate, ...]:
        """One row each, in the problem's order."""
        return tuple(
            Candidate(
                request_id=request_id,
                session_id=session_id,
                agent=agent,
                hold_s=self._decided_s - arrived_s,
                is_overdue=bool(self._late[i]),
                need_tokens=int(self._needs[i]),
                credit_tokens=int(self._credits[i]) * self._bucket_tokens,
                backend_id=self._homes.get(request_id),
                why="chosen" if request_id in self._homes else self._why(i),
            )
            for i, (request_id, session_id, agent, arrived_s) in enumerate(self._names)
        )

    def why_waiting(self) -> dict[str, str]:
        """By request id, of those who go on waiting."""
        return {
            request_id: self._why(i)
            for i, (request_id, *_) in enumerate(self._names)
            if request_id not in self._homes
        }

    def _why(self, i: int) -> str:
        code = int(self._whys[i])
        return self._why_chosen_waits if code == len(_WAITS) else _WAITS[code]


def _names(turn: Turn) -> tuple[str, str, str, float]:
    key = turn.session.key
    return turn.request_id, key.session_id, key.agent, turn.arrived_s


def quality(plan: Plan) -> Quality:
    """The plan's objective and certificate as plain values."""
    proved = Objective._fields[: plan.certificate.num_proved]
    return Quality(
        objective=plan.objective._asdict(),
        proved=tuple(proved),
        gap=plan.certificate.gap,
        rung=plan.rung.name.lower(),
        work=plan.work,
        solve_s=plan.elapsed_s,
    )
