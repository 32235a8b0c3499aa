"""The log of plans: bounded, newest kept, sums over all."""

from dataclasses import replace

from tao_coordinator.core import plans
from tao_coordinator.core.plans import (
    Asynchrony,
    Candidate,
    PlanLog,
    PlanOutcome,
    PlanPath,
    PlanRecord,
    Quality,
)


def candidate(request_id: str, backend_id: str | None = None, why: str = "no_room") -> Candidate:
    return Candidate(
        request_id=request_id,
        session_id="s",
        agent="",
        hold_s=1.0,
        is_overdue=False,
        need_tokens=10,
        credit_tokens=0,
        backend_id=backend_id,
        why=why,
    )


class Rows(tuple[Candidate, ...]):
    """Candidates that are rows already."""

    def rows(self) -> tuple[Candidate, ...]:
        return self

    def why_waiting(self) -> dict[str, str]:
        return {c.request_id: c.why for c in self if c.backend_id is None}


def record(plan_id: int, *candidates: Candidate) -> PlanRecord:
    return PlanRecord(
        plan_id=plan_id,
        decided_s=0.0,
        path=PlanPath.LOOP,
        outcome=PlanOutcome.APPLIED,
        candidates=Rows(candidates),
    )


def test_oldest_records_go_when_candidates_are_too_many() -> None:
    log = PlanLog()
    share = plans.CANDIDATES_MAX // 4 - plans.RECORD_WEIGHT
    many = tuple(candidate(f"r{n}") for n in range(share))
    for _ in range(9):
        log.add(record(log.next_id(), *many))
    assert [log.get(n) is not None for n in range(1, 10)] == [False] * 5 + [True] * 4
    assert [r.plan_id for r in log.newest(2)] == [9, 8]
    assert sum(log.totals().made.values()) == 9


def test_small_records_are_bounded_too() -> None:
    log = PlanLog()
    for _ in range(plans.CANDIDATES_MAX):
        log.add(record(log.next_id(), candidate("r")))
    assert len(log.newest(plans.CANDIDATES_MAX)) == plans.CANDIDATES_MAX // (
        plans.RECORD_WEIGHT + 1
    )


def test_a_single_large_plan_is_kept_all_the_same() -> None:
    log = PlanLog()
    log.add(record(1, *[candidate(f"r{n}") for n in range(plans.CANDIDATES_MAX + 1)]))
    assert log.get(1) is not None


def test_newest_plan_says_why_somebody_waits() -> None:
    log = PlanLog()
    assert log.waiting_because() == {}
    log.add(record(1, candidate("a", why="no_room"), candidate("b", "b0", "chosen")))
    assert log.waiting_because() == {"a": "no_room"}
    log.add(record(2, candidate("a", why="outvalued")))
    assert log.waiting_because() == {"a": "outvalued"}


def test_sums_are_over_all_plans() -> None:
    terms = Asynchrony(
        age_s=0.1,
        value_tokens=100,
        feasibility_change_tokens=1,
        value_drift_tokens=2,
        execution_loss_tokens=3,
        solver_gap_tokens=4,
    )
    quality = Quality(objective={}, proved=(), gap=0.0, rung="labels", work=1, solve_s=0.25)
    aside = replace(record(0), path=PlanPath.ASIDE, outcome=PlanOutcome.SHORTENED, asynchrony=terms)
    log = PlanLog()
    for number in (1, 2):
        log.add(replace(aside, plan_id=number, quality=quality))
    log.add(record(3))
    totals = log.totals()
    assert totals.made == {("aside", "shortened"): 2, ("loop", "applied"): 1}
    assert (totals.value_tokens, totals.value_drift_tokens) == (200, 4)
    assert totals.feasibility_change_tokens == 2
    assert totals.execution_loss_tokens == 6
    assert totals.solver_gap_tokens == 8
    assert totals.solve_s == 0.5
    assert terms.loss_max_tokens == 1 + 2 * 2 + 3 + 4


def test_certificates_are_counted_over_all_plans_that_were_made() -> None:
    def rated(gap: float, proved: tuple[str, ...], work: int) -> Quality:
        objective = {"credit": 3, "ready": 1}
        return Quality(
            objective=objective, proved=proved, gap=gap, rung="labels", work=work, solve_s=None
        )

    log = PlanLog()
    log.add(replace(record(1), quality=rated(0.0, ("credit", "ready"), 5)))
    log.add(replace(record(2), quality=rated(0.25, ("credit",), 7)))
    log.add(replace(record(3), quality=rated(0.5, (), 9), outcome=PlanOutcome.CHANGED))
    log.add(replace(record(4), outcome=PlanOutcome.FAILED))  # nobody made it
    totals = log.totals()
    assert (totals.num_rated, totals.num_certified) == (3, 1)
    assert (totals.gap_sum, totals.gap_max, totals.work) == (0.75, 0.5, 21)
