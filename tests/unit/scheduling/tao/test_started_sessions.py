"""Plans made beside the loop: asked for, carried out, dropped, made up for.

With no growth reserve a 10,000-token session weighs 10,300 of a budget of 0.95 x pool.
"""

import gc

from engine_driver import EngineDriver

from tao_coordinator.core.events import (
    BackendCacheSeen,
    BackendDrained,
    LeaseReleased,
    PlanSolved,
    SessionEnded,
    TurnOutcome,
)
from tao_coordinator.core.model import Session, Turn
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.plans import PlanOutcome, PlanPath, PlanRecord
from tao_coordinator.prediction.predictor import PREDICTORS
from tao_coordinator.scheduling.placement import FULL, PlacementProblem, Plan, solve
from tao_coordinator.scheduling.policy import KeepsPlans
from tao_coordinator.scheduling.tao import Tao
from tao_coordinator.scheduling.tao.started import PLAN_WAIT_S

POOL = 26_000
"""For two sessions of 10,000."""


class Planner(EngineDriver):
    """An engine that makes every plan beside the loop; the test answers."""

    def __init__(self, *pools: int | None, parameters: Parameters | None = None) -> None:
        super().__init__(
            *pools,
            policy=Tao(PREDICTORS["hazard"](), loop_pairs_max=0),
            parameters=parameters or Parameters(growth_turns=0.0, released_weight=0.0),
        )

    def solve(self) -> list[str]:
        """Answer the newest order; returns who was granted."""
        order = self.plans_wanted[-1]
        assert isinstance(order.problem, PlacementProblem)
        before = set(self.grants)
        self.step(PlanSolved(plan_id=order.plan_id, plan=solve(order.problem, FULL)))
        return sorted(set(self.grants) - before)

    def fail(self) -> list[str]:
        """Say that nobody made the newest plan."""
        before = set(self.grants)
        self.step(PlanSolved(plan_id=self.plans_wanted[-1].plan_id, plan=None))
        return sorted(set(self.grants) - before)

    def record(self) -> PlanRecord:
        """The newest plan's record."""
        policy = self.engine.policy
        assert isinstance(policy, KeepsPlans)
        return policy.plans.newest(1)[0]

    def because(self) -> dict[str, str]:
        return {held.request_id: held.because for held in self.engine.observe(self.now_s).held}


def crowd(
    *pools: int, started: int, busy: int, parameters: Parameters | None = None
) -> tuple[Planner, list[str], list[str]]:
    """`busy` running sessions fill the pools; `started` others, evicted, are held for their room.

    Returns:
        The driver, the running requests, the held ones.
    """
    d = Planner(*pools, parameters=parameters)
    for n in range(started):
        d.turn(f"s{n}")
        d.evict(f"s{n}")
    running = [d.ask(f"busy{n}") for n in range(busy)]
    assert all(request_id in d.grants for request_id in running)
    held = [d.ask(f"s{n}") for n in range(started)]
    assert d.solve() == []
    assert d.solve() == []
    return d, running, held


def leave(d: Planner, running: list[str], *numbers: int) -> None:
    """Running sessions end, in one step: there is room for others."""
    releases = [
        LeaseReleased(lease_id=d.grants[running[n]].lease_id, outcome=TurnOutcome.COMPLETED)
        for n in numbers
    ]
    d.step(*releases, *[SessionEnded(session_id=f"busy{n}") for n in numbers], after_s=0.1)


def newest(d: Planner) -> tuple[int, Plan]:
    """The newest order, solved but not yet answered."""
    order = d.plans_wanted[-1]
    assert isinstance(order.problem, PlacementProblem)
    return order.plan_id, solve(order.problem, FULL)


def test_plan_is_asked_for_and_carried_out() -> None:
    d, running, held = crowd(POOL, POOL, started=3, busy=4)
    assert d.held_ids() == held
    leave(d, running, 0)
    (granted,) = d.solve()
    receipt = d.grants[granted].receipt
    assert (receipt.reason, receipt.plan_id) == ("planned", d.plans_wanted[-1].plan_id)
    assert d.backend_of(granted) == d.backend_of(running[0])
    record = d.record()
    assert (record.path, record.outcome) == (PlanPath.ASIDE, PlanOutcome.APPLIED)
    assert {c.request_id: (c.why, c.backend_id) for c in record.candidates.rows()} == {
        request_id: ("chosen", d.backend_of(granted))
        if request_id == granted
        else ("outvalued", None)
        for request_id in held
    }
    assert record.quality is not None
    assert record.quality.objective["sessions"] == 1


def test_one_plan_at_a_time_takes_up_what_happened_meanwhile() -> None:
    d, running, held = crowd(POOL, POOL, started=3, busy=4)
    num_asked = len(d.plans_wanted)
    for n in range(4):
        leave(d, running, n)
    assert len(d.plans_wanted) == num_asked + 1, "asked again while a plan is being made"
    first = d.solve()
    assert len(first) == 1
    assert len(d.plans_wanted) == num_asked + 2
    assert sorted(first + d.solve()) == sorted(held)
    assert len(d.plans_wanted) == num_asked + 2, "asked although nobody waits"


def test_those_who_wait_know_why() -> None:
    d, _, held = crowd(POOL, started=1, busy=2)
    new = d.ask("new")
    assert d.because() == {held[0]: "no_room", new: "in_order"}


def test_new_sessions_get_what_the_plan_leaves_and_no_more() -> None:
    """Two started ones wait for a place each; what is freed beside the plan is for the second."""
    d, running, held = crowd(POOL, started=2, busy=2)
    leave(d, running, 0)
    small, large = d.ask("small", 2_000), d.ask("large", 6_000)
    leave(d, running, 1)
    assert d.held_ids() == [*held, small, large]
    first = d.solve()
    assert len(first) == 2
    assert small in first
    assert d.solve() == [request_id for request_id in held if request_id not in first]
    assert d.held_ids() == [large]


def test_room_freed_while_a_plan_was_made_is_for_anybody_when_no_started_session_waits() -> None:
    d, running, held = crowd(POOL, started=1, busy=2)
    leave(d, running, 0)
    large = d.ask("large", 6_000)
    leave(d, running, 1)
    assert d.solve() == [held[0], large]


def test_plan_is_dropped_when_a_chosen_turn_is_gone() -> None:
    d, running, held = crowd(POOL, started=2, busy=2)
    leave(d, running, 0)
    plan_id, plan = newest(d)
    (chosen,) = (plan.backend_of >= 0).nonzero()[0].tolist()
    d.abandon(held[chosen])
    d.step(PlanSolved(plan_id=plan_id, plan=plan))
    assert d.record().outcome is PlanOutcome.CHANGED
    assert [c.why for c in d.record().candidates.rows() if c.request_id == held[chosen]] == [
        "changed"
    ]
    assert d.solve() == [held[1 - chosen]]


def test_plan_is_dropped_when_a_chosen_backend_drains() -> None:
    d, running, held = crowd(POOL, POOL, started=1, busy=4)
    leave(d, running, 0, 1)
    plan_id, plan = newest(d)
    chosen = ["b0", "b1"][int(plan.backend_of.max())]
    d.step(BackendDrained(backend_id=chosen))
    d.step(PlanSolved(plan_id=plan_id, plan=plan))
    assert d.record().outcome is PlanOutcome.CHANGED
    assert d.solve() == held
    assert d.backend_of(held[0]) != chosen


def test_longest_prefix_is_carried_out_when_room_was_lost() -> None:
    """Two places in the plan; meanwhile the engine reports half of the pool."""
    d, running, held = crowd(POOL, started=2, busy=2)
    leave(d, running, 0, 1)
    plan_id, plan = newest(d)
    assert (plan.backend_of >= 0).all()
    d.resample(capacity_tokens=14_000)
    d.step(PlanSolved(plan_id=plan_id, plan=plan))
    granted = [request_id for request_id in held if request_id in d.grants]
    assert len(granted) == 1
    record = d.record()
    assert record.outcome is PlanOutcome.SHORTENED
    assert sorted(c.why for c in record.candidates.rows()) == ["chosen", "cut"]


def test_somebody_goes_on_when_plans_are_never_made() -> None:
    d, running, held = crowd(POOL, started=2, busy=2)
    leave(d, running, 0)
    assert d.fail() == []
    assert d.fail(), "after two failures the plan is made within the step"
    assert d.record().path is PlanPath.LOOP
    assert len([r for r in held if r in d.grants]) == 1


def test_answer_that_never_comes_is_given_up() -> None:
    d, running, held = crowd(POOL, started=1, busy=2)
    leave(d, running, 0)
    d.idle(2 * PLAN_WAIT_S + 2.0)
    assert held[0] in d.grants
    assert d.record().path is PlanPath.LOOP


def test_answer_that_comes_too_late_changes_nothing() -> None:
    d, running, held = crowd(POOL, started=2, busy=2)
    leave(d, running, 0)
    plan_id, plan = newest(d)
    d.abandon(held[0])
    d.idle(2 * PLAN_WAIT_S + 2.0)
    before = d.record()
    d.step(PlanSolved(plan_id=plan_id, plan=plan))
    assert d.record() is before
    assert held[1] in d.grants


def test_hard_bound_holds_while_plans_are_never_made() -> None:
    d, _, held = crowd(POOL, started=3, busy=2)
    d.idle(125.0)
    tick_s = Parameters().tick_s
    assert all(d.grants[r].receipt.hold_s <= 120.0 + tick_s for r in held)


def test_overdue_sessions_are_forced_in_although_a_plan_is_always_under_way() -> None:
    d, _, held = crowd(42_000, started=1, busy=3)
    for _ in range(70):
        d.idle(1.0)
        d.solve()
    assert d.reason_of(held[0]) == "forced"


def test_small_problems_are_placed_within_the_step() -> None:
    d = EngineDriver(
        POOL,
        policy=Tao(PREDICTORS["hazard"](), loop_pairs_max=1),
        parameters=Parameters(growth_turns=0.0),
    )
    for name in ("a", "b"):
        d.turn(name)
        d.evict(name)
    running = [d.ask("x"), d.ask("y")]
    d.ask("a")
    assert d.plans_wanted == []
    d.ask("b")
    assert len(d.plans_wanted) == 1
    assert all(r in d.grants for r in running)


def test_something_that_is_no_plan_counts_as_none() -> None:
    d, _, held = crowd(POOL, started=1, busy=2)
    d.step(after_s=2.0)  # a tick: another plan is asked for
    d.step(PlanSolved(plan_id=d.plans_wanted[-1].plan_id, plan="rubbish"))
    assert d.record().outcome is PlanOutcome.FAILED
    assert [c.why for c in d.record().candidates.rows()] == ["failed"]
    assert d.held_ids() == held


def test_session_that_is_over_when_its_plan_comes_harms_nothing() -> None:
    """Its cache is still seen in the engine's own events."""
    d, running, _ = crowd(POOL, POOL, started=3, busy=4)
    seen = tuple((f"s{n}", 10_000) for n in range(3))
    for name in ("b0", "b1"):
        d.step(BackendCacheSeen(backend_id=name, was_cleared=False, is_lost=False, sessions=seen))
    leave(d, running, 0)
    d.end("s0")
    d.end("s1")
    assert len(d.solve()) <= 1
    assert d.record().path is PlanPath.ASIDE


def test_record_of_a_plan_keeps_no_session_alive() -> None:
    d, running, _ = crowd(POOL, POOL, started=3, busy=4)
    leave(d, running, 0)
    d.solve()
    found: dict[int, object] = {id(d.record()): d.record()}
    fresh = list(found.values())
    while fresh:
        beneath = gc.get_referents(*fresh)
        fresh = [one for one in beneath if id(one) not in found and not isinstance(one, type)]
        fresh = [one for one in fresh if type(one).__module__ != "builtins" or gc.is_tracked(one)]
        fresh = [one for one in fresh if type(one).__name__ not in ("module", "function")]
        found.update((id(one), one) for one in fresh)
    assert not [one for one in found.values() if isinstance(one, Turn | Session)]
    assert {c.session_id for c in d.record().candidates.rows()} == {"s0", "s1", "s2"}
