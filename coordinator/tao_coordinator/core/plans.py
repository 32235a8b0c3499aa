"""What was decided jointly, and what the time between deciding and doing has cost.

A *plan* places held started sessions on backends. Small ones are made within the step that asks for
them (path `loop`), larger ones beside it (`aside`): the world moves on meanwhile, so such a plan is
checked against what is live before it is carried out. `PlanLog` keeps the newest records, for
people who ask why a turn was chosen or was not, and sums for the metrics.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

CANDIDATES_MAX = 20_000
"""Candidates in all records that are kept: about 5 MB."""
RECORD_WEIGHT = 6
"""Candidates that a record counts as, beside its own: so much memory it takes."""


class PlanPath(StrEnum):
    """Where a plan was made."""

    LOOP = "loop"
    """Within the step."""
    ASIDE = "aside"
    """Beside the loop, from a snapshot."""


class PlanOutcome(StrEnum):
    """What became of a plan."""

    APPLIED = "applied"
    """As a whole."""
    SHORTENED = "shortened"
    """The longest prefix, most valuable first, that still fitted."""
    CHANGED = "changed"
    """Dropped: a chosen session was no longer what it was in the snapshot."""
    FAILED = "failed"
    """Dropped: nobody made it, or not in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One held turn that competed."""

    request_id: str
    session_id: str
    agent: str
    hold_s: float
    is_overdue: bool
    need_tokens: int
    """Private tokens of the coming turn, growth included, on the backend that it got; where it got
    none, the smallest of all."""
    credit_tokens: int
    """Predicted to be cached on its last backend."""
    backend_id: str | None
    """`None`: it goes on waiting."""
    why: str
    """`chosen`; or why not: `no_room` (more than any backend had left), `outvalued` (others were
    worth more there), `behind_overdue`, `no_backend` (none that is healthy serves it),
    `cut` (the rest of a plan that no longer fitted), `changed` and `failed` (the plan was
    dropped)."""


class Candidates(Protocol):
    """Everybody who competed; the rows are made when somebody asks for them."""

    def __len__(self) -> int:
        """How many."""
        ...

    def rows(self) -> tuple[Candidate, ...]:
        """One row each."""
        ...

    def why_waiting(self) -> dict[str, str]:
        """By request id, of those who go on waiting."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How good the plan is for the snapshot that it was made for."""

    objective: Mapping[str, int]
    """Sums over the placed sessions, by coordinate, leading one first."""
    proved: tuple[str, ...]
    """Leading coordinates of which no plan has more."""
    gap: float
    """Relative gap of the first coordinate that is not proved; 0 where all are."""
    rung: str
    """Of the ladder, where the plan was found."""
    work: int
    """Work units spent."""
    solve_s: float | None
    """Seconds, where a clock was at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asynchrony:
    """What it cost that the plan was made for the state s and met the state t (TAO, Eq. 12).

        max_{x feasible at t} U_t(x) - U_t(y)  <=  A + 2 eps + T  [+ G]

    U counts tokens of cache credit, y is what was carried out. A and eps are upper bounds, T and U
    exact. G is not in the paper, whose plans are optimal: ours may stop before the proof. Where
    sessions are overdue the maximum is over plans with as many of them as this one.
    """

    age_s: float
    """t - s."""
    value_tokens: int
    """U_t(y)."""
    feasibility_change_tokens: int
    """A: what became possible meanwhile is worth at most this."""
    value_drift_tokens: int
    """eps: no plan's value has changed by more."""
    execution_loss_tokens: int
    """T: the plan's value less what was carried out of it."""
    solver_gap_tokens: int
    """G: the bound at s less the plan's value at s."""

    @property
    def loss_max_tokens(self) -> int:
        """Right-hand side: what was carried out is at most this far from the best at t."""
        return (
            self.feasibility_change_tokens
            + 2 * self.value_drift_tokens
            + self.execution_loss_tokens
            + self.solver_gap_tokens
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One plan: who competed, who was chosen, how good it is, what became of it."""

    plan_id: int
    decided_s: float
    """Time of the step that carried it out or dropped it, by the engine's clock."""
    path: PlanPath
    outcome: PlanOutcome
    candidates: Candidates
    quality: Quality | None = None
    """`None`: the plan failed."""
    asynchrony: Asynchrony | None = None
    """`None`: it was made within the step, or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTotals:
    """Sums over all plans since start."""

    made: Mapping[tuple[str, str], int]
    """By path and outcome."""
    value_tokens: int
    """Of the plans made aside, as the terms below: `Asynchrony`."""
    feasibility_change_tokens: int
    value_drift_tokens: int
    execution_loss_tokens: int
    solver_gap_tokens: int
    solve_s: float
    """Time that plans were worked on, where it was measured."""
    num_rated: int
    """Plans that were made, whatever became of them: the three below are about these."""
    num_certified: int
    """Of these, proved optimal in every coordinate."""
    gap_sum: float
    """Of the gaps of their first unproved coordinates: `Quality.gap`."""
    gap_max: float
    work: int
    """Work units."""


@dataclass(slots=True)
class PlanLog:
    """The newest records and the sums over all."""

    num_ids: int = 0
    _records: OrderedDict[int, PlanRecord] = field(default_factory=OrderedDict[int, PlanRecord])
    _weight: int = 0
    _made: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _tokens: Counter[str] = field(default_factory=Counter[str])
    _solve_s: float = 0.0
    _num_rated: int = 0
    _num_certified: int = 0
    _gap_sum: float = 0.0
    _gap_max: float = 0.0
    _work: int = 0

    def next_id(self) -> int:
        """Number of the next plan, from 1."""
        self.num_ids += 1
        return self.num_ids

    def add(self, record: PlanRecord) -> None:
        """Keep a record, forget the oldest beyond the bound, count it."""
        self._records[record.plan_id] = record
        self._weight += RECORD_WEIGHT + len(record.candidates)
        while self._weight > CANDIDATES_MAX and len(self._records) > 1:
            _, oldest = self._records.popitem(last=False)
            self._weight -= RECORD_WEIGHT + len(oldest.candidates)
        self._made[record.path.value, record.outcome.value] += 1
        if record.quality is not None:
            self._rate(record.quality)
        terms = record.asynchrony
        if terms is not None:
            self._tokens["value"] += terms.value_tokens
            self._tokens["feasibility"] += terms.feasibility_change_tokens
            self._tokens["drift"] += terms.value_drift_tokens
            self._tokens["loss"] += terms.execution_loss_tokens
            self._tokens["gap"] += terms.solver_gap_tokens

    def _rate(self, quality: Quality) -> None:
        self._num_rated += 1
        self._num_certified += len(quality.proved) == len(quality.objective)
        self._gap_sum += quality.gap
        self._gap_max = max(self._gap_max, quality.gap)
        self._work += quality.work
        self._solve_s += quality.solve_s or 0.0

    def get(self, plan_id: int) -> PlanRecord | None:
        """The record of this number, while it is kept."""
        return self._records.get(plan_id)

    def waiting_because(self) -> dict[str, str]:
        """Per request id: why the newest plan left it waiting; O(candidates)."""
        newest = self.newest(1)
        return newest[0].candidates.why_waiting() if newest else {}

    def newest(self, count: int) -> list[PlanRecord]:
        """The last records, newest first."""
        return [self._records[plan_id] for plan_id in list(self._records)[: -count - 1 : -1]]

    def totals(self) -> PlanTotals:
        """Sums since start."""
        return PlanTotals(
            made=dict(self._made),
            value_tokens=self._tokens["value"],
            feasibility_change_tokens=self._tokens["feasibility"],
            value_drift_tokens=self._tokens["drift"],
            execution_loss_tokens=self._tokens["loss"],
            solver_gap_tokens=self._tokens["gap"],
            solve_s=self._solve_s,
            num_rated=self._num_rated,
            num_certified=self._num_certified,
            gap_sum=self._gap_sum,
            gap_max=self._gap_max,
            work=self._work,
        )
