"""Who goes first, for adversarial arrivals: order inside a tenant, shares between tenants, overdue
sessions before everybody, and what is too large for the fleet.
"""

import random
from collections import Counter

import pytest
from adversary import Adversary, Granted
from engine_driver import EngineDriver
from waiting_order import overtaken

from tao_coordinator.core.effects import Effect, RejectReason
from tao_coordinator.core.events import Event
from tao_coordinator.core.model import Turn
from tao_coordinator.core.parameters import Parameters

POOL = 40_000
PARAMETERS = Parameters(
    growth_turns=0.2, hold_soft_s=4.0, hold_hard_s=20.0, refill_s_prior=30.0, new_wait_s_max=1e6
)
NUM_MOVES = 250


class Referee(Adversary):
    """Judges every step by who waited before it."""

    num_new = 0
    num_overdue = 0

    def step(self, *events: Event, after_s: float = 0.0) -> list[Effect]:
        self.before = list(self.engine.state.held.values())
        return super().step(*events, after_s=after_s)

    def look(self, fresh: list[Granted]) -> None:
        state = self.engine.state
        for turn in self.before:
            if turn.request_id in state.held and self.is_overdue(turn):
                self.nobody_overtook(turn, fresh)

    def is_overdue(self, turn: Turn) -> bool:
        return turn.session.is_started and self.now_s - turn.arrived_s >= PARAMETERS.hold_soft_s

    def nobody_overtook(self, turn: Turn, fresh: list[Granted]) -> None:
        """It waits for room anywhere: room went only to other overdue sessions."""
        self.num_overdue += 1
        for granted in fresh:
            takes_room = granted.reason in ("planned", "alone")
            assert not takes_room or granted.hold_s >= PARAMETERS.hold_soft_s, granted


@pytest.mark.parametrize("num_pools", [1, 2])
def test_nobody_takes_room_from_an_overdue_session(num_pools: int) -> None:
    num_seen = 0
    for seed in range(10):
        world = Referee(seed, *[POOL] * num_pools, parameters=PARAMETERS)
        world.play(NUM_MOVES)
        num_seen += world.num_overdue
    assert num_seen > 100


class Tenants(EngineDriver):
    """Sessions of one size and many tenants on one backend; every grant is judged."""

    def __init__(self, seed: int, weights: tuple[tuple[str, float], ...]) -> None:
        self.chance = random.Random(seed)
        self.num_judged = 0
        self.running: list[tuple[str, str]] = []
        super().__init__(
            12 * 2_000,
            parameters=Parameters(
                tenant_weights=weights, growth_turns=0.0, budget_ratio=1.0, new_wait_s_max=1e6
            ),
        )

    def step(self, *events: Event, after_s: float = 0.0) -> list[Effect]:
        before = list(self.engine.state.held.values())
        effects = super().step(*events, after_s=after_s)
        assert overtaken(before, self.engine.state, effects) is None
        self.judge(before)
        return effects

    def judge(self, before: list[Turn]) -> None:
        """Undo the step's grants one by one: each went to the tenant with the least claim."""
        state = self.engine.state
        went = [turn for turn in before if turn.request_id in state.lease_by_request]
        order = [r for r in self.grants if r in {turn.request_id for turn in went}]
        tenant_of = {turn.request_id: turn.session.tenant for turn in before}
        waiting = {turn.session.tenant for turn in state.held.values()}
        seated = Counter(s.tenant for s in state.sessions.values() if s.seat is not None)
        for request_id in reversed(order):
            tenant = tenant_of[request_id]
            seated[tenant] -= 1
            waiting.add(tenant)
            claim = seated[tenant] / state.tenant_weight(tenant)
            for other in waiting:
                assert claim <= seated[other] / state.tenant_weight(other) + 1e-9
                self.num_judged += other != tenant

    def play(self, num_moves: int) -> None:
        for number in range(num_moves):
            if self.chance.random() < 0.6:
                name, tenant = f"s{number}", self.chance.choice("aaabbc")
                priority = self.chance.choice([0, 0, 1])
                request_id = self.ask(name, 1_700, tenant=tenant, priority=priority)
                self.running.append((request_id, name))
            live = [pair for pair in self.running if pair[0] in self.engine.state.lease_by_request]
            if live and self.chance.random() < 0.5:
                pair = self.chance.choice(live)
                self.running.remove(pair)
                self.done(pair[0], input_tokens=1_700, output_tokens=0, after_s=0.05)
                self.end(pair[1])
            if self.chance.random() < 0.1:
                self.idle(1.0)


@pytest.mark.parametrize("weights", [(), (("a", 3.0), ("b", 0.5))])
def test_tenants_share_by_weight_and_keep_their_own_order(
    weights: tuple[tuple[str, float], ...],
) -> None:
    num_judged = 0
    for seed in range(12):
        world = Tenants(seed, weights)
        world.play(120)
        num_judged += world.num_judged
    assert num_judged > 100


def test_children_of_one_root_admitted_together_count_once() -> None:
    d = EngineDriver(100_000, parameters=Parameters(growth_turns=0.0))
    hog = d.ask("hog", 90_000)
    children = [d.ask(f"a{n}", 20_000, tenant="a", root_session_id="root") for n in range(3)]
    roots = [d.ask(f"b{n}", 20_000, tenant="b") for n in range(2)]
    d.done(hog, input_tokens=90_000, after_s=0.0)
    d.end("hog")
    granted = [r for r in (*children, *roots) if r in d.grants]
    assert granted == [*children, roots[0]]


@pytest.mark.parametrize("seed", range(5))
def test_giants_are_refused_at_once_and_hold_up_nobody(seed: int) -> None:
    """The same arrivals with and without giants: everybody else is granted at the same time."""

    def play(giants: bool) -> list[tuple[str, float]]:
        d, chance = EngineDriver(POOL, POOL), random.Random(seed)
        times: list[tuple[str, float]] = []
        asked: list[str] = []
        for number in range(40):
            seconds = chance.uniform(0.0, 2.0)
            if giants:
                giant = d.ask(f"giant {number}", POOL + chance.randint(0, 10**6), after_s=0.0)
                assert d.rejects[giant].reason is RejectReason.TOO_LARGE
            else:
                chance.randint(0, 10**6)
            name = f"s{number}"
            asked.append(d.ask(name, chance.choice([1_000, 12_000]), request_id=name))
            d.idle(seconds)
            running = [r for r in asked if r in d.engine.state.lease_by_request]
            if running and chance.random() < 0.6:
                done = chance.choice(running)
                d.done(done, after_s=0.0)
                d.end(done)
            times += [(r, d.now_s) for r in asked if r in d.grants and r not in dict(times)]
        return times

    assert play(giants=True) == play(giants=False)
