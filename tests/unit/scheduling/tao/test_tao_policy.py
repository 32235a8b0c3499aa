"""The default policy: who goes at once, who competes, who is forced, who waits in line.

With the priors, a seat's growth reserve is 12 x 1,200 = 14,400 tokens and an expected output 300,
so a 10,000-token session weighs 24,700 of a budget of 0.95 x pool.
"""

from itertools import pairwise

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import (
    BackendAdded,
    BackendDrained,
    BackendSampled,
    BackendUnreachable,
    LeaseRenewed,
    SessionDeadlineSet,
    ToolEnded,
    ToolStarted,
    TurnOutcome,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.tao import arrivals

ONE = 40_000
"""Pool for one 10k session with its reserve."""


def num_granted(d: EngineDriver, input_tokens: int, of: int) -> int:
    return sum(d.ask(f"s{n}", input_tokens) in d.grants for n in range(of))


# --- budget -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", [50_000, 100_000, 200_000])
def test_budget_admits_as_many_new_sessions_as_fit_with_their_growth(pool: int) -> None:
    d = EngineDriver(pool)
    weight = 10_000 + 300 + 12 * 1_200
    assert num_granted(d, 10_000, of=20) == int(0.95 * pool) // weight


def test_priors_of_a_large_engine_do_not_lock_a_toy_engine() -> None:
    """0.3 x 9,600 = 2,880 tokens at most are reserved beside a seat of 500 + 300."""
    d = EngineDriver(9_600)
    assert num_granted(d, 500, of=5) == int(0.95 * 9_600) // (800 + 2_880) == 2
    d.resample(capacity_tokens=1_000_000)
    assert d.engine.state.growth_tokens() == 12 * 1_200
    d.step(BackendAdded(backend_id="b1", base_url="http://b1", capacity_tokens=20_000))
    assert d.engine.state.growth_tokens() == 6_000


def test_growth_reserve_can_be_switched_off() -> None:
    d = EngineDriver(100_000, parameters=Parameters(growth_turns=0.0))
    assert num_granted(d, 10_000, of=20) == 95_000 // 10_300


def test_sessions_that_never_continue_need_no_growth_reserve() -> None:
    d = EngineDriver(100_000)
    for n in range(300):
        d.done(d.ask(f"one-shot {n}", 1_000))
        d.end(f"one-shot {n}")
    assert d.engine.state.growth_tokens() < 3_000


def test_new_sessions_go_to_the_backend_with_the_most_room() -> None:
    d = EngineDriver(100_000, 150_000)
    # Room: 95,000 and 142,500; each session takes 24,700.
    assert [d.backend_of(d.ask(f"s{n}")) for n in range(4)] == ["b1", "b1", "b0", "b1"]


# --- bypass -------------------------------------------------------------------------------------


def test_backend_that_missed_a_poll_gets_nobody_new_while_others_answer() -> None:
    d = EngineDriver(400_000, 100_000)
    d.turn("home", 10_000)
    assert d.backend_of("r1") == "b0"
    d.step(BackendUnreachable(backend_id="b0", reason="timed out"))
    assert d.backend_of(d.ask("new", 10_000)) == "b1"
    assert d.backend_of(d.ask("home", 11_000)) == "b0", "its cache is there, if it lives"
    d.step(BackendUnreachable(backend_id="b1", reason="timed out"))
    assert d.backend_of(d.ask("other", 10_000)) == "b0", "all are in doubt: as ever"
    d.resample("b0", capacity_tokens=400_000)
    assert d.backend_of(d.ask("another", 10_000)) == "b0"


def test_overdue_session_is_not_forced_where_a_poll_was_missed() -> None:
    d = EngineDriver(40_000, 40_000)
    d.done(d.ask("waits", 20_000), input_tokens=20_000)
    d.evict("waits")
    dying_call, other = d.ask("x", 20_000), d.ask("y", 20_000)
    d.done(other, input_tokens=20_000)
    assert d.reason_of(d.ask("y", 36_000)) == "resident", "its backend is over its budget"
    held = d.ask("waits", 22_000)
    d.idle(65.0)
    assert held in d.held_ids()
    dying = d.backend_of(dying_call)
    d.step(BackendUnreachable(backend_id=dying, reason="timed out"))
    d.done(dying_call, outcome=TurnOutcome.ERROR)
    assert held in d.held_ids(), "forced in where a call has just failed"
    d.resample(dying, capacity_tokens=40_000)
    assert d.backend_of(held) == dying


def test_doubt_concerns_whom_another_could_take() -> None:
    d = EngineDriver(100_000, 400_000, models=("m",))
    d.step(BackendAdded(backend_id="other", base_url="http://other"))
    d.step(BackendSampled(backend_id="other", capacity_tokens=100_000, models=("n",)))
    for name in ("other", "b1"):
        d.step(BackendUnreachable(backend_id=name, reason="timed out"))
    assert d.backend_of(d.ask("only there", 10_000, model="n")) == "other"
    assert d.backend_of(d.ask("large", 200_000, model="m")) == "b1", "it fits nowhere else"
    assert d.backend_of(d.ask("small", 10_000, model="m")) == "b0"


def test_traffic_without_reuse_passes_a_doubtful_backend_by() -> None:
    d = EngineDriver(400_000, 400_000)
    d.engine.state.typical.passes_through = True
    assert d.reason_of(d.ask("last", 1_000)) == "pass-through"
    d.step(BackendUnreachable(backend_id="b1", reason="timed out"))
    assert {d.backend_of(d.ask(f"n{n}", 1_000)) for n in range(6)} == {"b0"}


def test_held_session_is_not_placed_where_a_poll_was_missed() -> None:
    d = EngineDriver(30_000, 30_000)
    first, second = d.ask("a", 14_000), d.ask("b", 14_000)
    homes = {d.backend_of(first), d.backend_of(second)}
    assert homes == {"b0", "b1"}
    waiting = d.ask("c", 14_000)
    assert waiting in d.held_ids()
    dying = d.backend_of(first)
    d.step(BackendUnreachable(backend_id=dying, reason="refused"))
    d.done(first, outcome=TurnOutcome.ERROR)
    d.end("a")
    assert waiting in d.held_ids(), "it was sent to where a call has just failed"
    d.resample(dying, capacity_tokens=30_000)
    assert d.backend_of(waiting) == dying


def test_resident_session_goes_at_once_whatever_the_budget_says() -> None:
    d = EngineDriver(ONE)
    d.turn("s1", 30_000)
    waiting = d.ask("s2")
    again = d.ask("s1", 31_000)
    assert d.reason_of(again) == "resident"
    assert d.grants[again].receipt.cache_credit_tokens == 30_100
    assert d.grants[again].strength == "hard"
    assert d.held_ids() == [waiting]


def test_bypass_needs_the_pool_beside_the_calls_in_flight() -> None:
    d = EngineDriver(60_000, parameters=Parameters(growth_turns=0.0))
    d.turn("s1", 25_000)
    d.turn("s2", 8_000)
    d.ask("s2", 30_000)
    crowded = d.ask("s1", 31_000)
    assert crowded not in d.grants


def test_session_that_was_evicted_competes_again() -> None:
    d = EngineDriver(60_000, parameters=Parameters(growth_turns=0.0))
    d.turn("s1", 20_000)
    d.turn("s2", 30_000)
    # s2 grows until the engine must have evicted most of s1.
    d.turn("s2", 55_000)
    resident = {x.session_id: x.resident_tokens for x in d.engine.observe(d.now_s).sessions}
    assert 0 < resident["s1"] <= 60_000 - 55_100
    assert d.ask("s1", 20_200) in d.held_ids()


def test_parallel_calls_of_one_session_share_its_seat() -> None:
    d = EngineDriver(100_000)
    d.turn("s", 10_000)
    first, second = d.ask("s", 10_200), d.ask("s", 10_400)
    assert d.reason_of(second) == "parallel"
    view = d.engine.observe(d.now_s).backends[0]
    assert (view.num_seats, view.num_in_flight) == (1, 2)
    assert view.in_flight_tokens == 10_400 + int(d.engine.state.typical.output_tokens)
    d.done(first, input_tokens=10_200)
    d.done(second, input_tokens=10_400)
    assert d.engine.observe(d.now_s).backends[0].in_flight_tokens == 0


def test_seat_of_parallel_calls_weighs_as_much_as_the_largest() -> None:
    d = EngineDriver(100_000)
    d.turn("s", 10_000)
    d.ask("s", 20_000)
    d.ask("s", 10_400)
    assert d.engine.state.backends["b0"].committed_tokens >= 20_000


def test_first_of_parallel_calls_to_end_changes_nothing_for_the_others() -> None:
    """Its session still runs, keeps the seat of the largest, and gives it up to nobody."""
    d = EngineDriver(100_000)
    d.turn("s", 10_000)
    long, short = d.ask("s", 50_000), d.ask("s", 12_000)
    d.done(short, input_tokens=12_000)
    d.tool("s", remaining_s=5_000.0)
    waiting = d.ask("new", 60_000)
    d.idle(100.0)
    (session, _) = d.engine.observe(d.now_s).sessions
    assert (session.phase, session.seat_released) == ("inference", False)
    view = d.engine.observe(d.now_s).backends[0]
    assert view.num_in_flight == 1
    assert min(view.in_flight_tokens, view.committed_tokens) >= 50_000
    assert waiting in d.held_ids()
    d.done(long, input_tokens=50_000, output_tokens=100)
    (session, _) = d.engine.observe(d.now_s).sessions
    assert (session.phase, session.context_tokens) == ("tool", 50_100)


def test_parallel_first_calls_of_a_new_session_share_a_seat_too() -> None:
    d = EngineDriver(100_000)
    first, second = d.ask("s"), d.ask("s")
    assert d.backend_of(first) == d.backend_of(second)
    assert d.engine.observe(d.now_s).backends[0].num_seats == 1


def test_session_has_credit_only_where_its_newest_prefix_is() -> None:
    """What an older home still holds is out of date: it was cut off before the last reply."""
    d = EngineDriver(100_000, 100_000)
    home = d.turn("s", 10_000)
    d.step(BackendDrained(backend_id=home))
    other = d.turn("s", 12_000)
    d.step(BackendAdded(backend_id=home, base_url=f"http://{home}"))
    d.step(BackendDrained(backend_id=other))
    again = d.ask("s", 14_000)
    assert d.backend_of(again) == home
    assert d.grants[again].receipt.cache_credit_tokens == 0


# --- shared prefix ------------------------------------------------------------------------------


def test_shared_prefix_is_learned_from_first_calls_and_counted_once() -> None:
    d = EngineDriver(200_000)
    # The first one finds an empty cache: that says nothing about what sessions share.
    for n, (cached, learned) in enumerate([(0, 0), (6_000, 0), (5_000, 5_000)]):
        d.done(d.ask(f"s{n}"), cached_tokens=cached)
        assert d.engine.observe(d.now_s).backends[0].shared_prefix_tokens == learned
    view = d.engine.observe(d.now_s).backends[0]
    assert view.shared_prefix_tokens == 5_000
    assert view.budget_tokens == int(0.95 * 195_000)
    request_id = d.ask("fresh", 10_000)
    need = d.engine.state.leases[d.grants[request_id].lease_id].need_tokens
    assert need == 5_000 + int(d.engine.state.typical.output_tokens)


def test_prefix_told_by_the_sdk_counts_only_as_far_as_the_backend_shares_it() -> None:
    d = EngineDriver(200_000)
    request_id = d.ask("s", 10_000, shared_prefix_tokens=8_000)
    assert d.engine.state.leases[d.grants[request_id].lease_id].need_tokens == 10_300


# --- stage 1 ------------------------------------------------------------------------------------


def fill(d: EngineDriver, *names: str, input_tokens: int = 10_000) -> None:
    for name in names:
        d.turn(name, input_tokens)


def test_started_session_goes_before_a_new_one_that_came_earlier() -> None:
    d = EngineDriver(ONE)
    d.turn("old")
    d.evict("old")
    running = d.ask("busy")
    new, started = d.ask("new"), d.ask("old", after_s=1.0)
    assert d.held_ids() == [started, new]
    d.done(running)
    d.end("busy")
    assert started in d.grants
    assert new not in d.grants


def test_evicted_session_may_move_to_where_there_is_room() -> None:
    d = EngineDriver(ONE, ONE)
    home = d.turn("s")
    d.evict("s")
    other = next(b for b in ("b0", "b1") if b != home)
    blocker = d.ask("blocker")
    while d.backend_of(blocker) != home:
        d.done(blocker, outcome=TurnOutcome.CANCELLED, after_s=0.0)
        blocker = d.ask("blocker")
    assert d.backend_of(d.ask("s")) == other


def test_held_sessions_are_placed_jointly_each_at_home_where_it_is_resident() -> None:
    d = EngineDriver(60_000, 60_000, parameters=Parameters(growth_turns=0.0))
    homes = {name: d.turn(name, 20_000) for name in ("a", "b")}
    assert set(homes.values()) == {"b0", "b1"}
    blockers = [d.ask(f"x{n}", 34_000) for n in range(2)]
    assert {d.backend_of(b) for b in blockers} == {"b0", "b1"}
    held = {name: d.ask(name, 40_000) for name in homes}
    assert len(d.held_ids()) == 2
    d.step(*[LeaseRenewed(lease_id=d.grants[b].lease_id) for b in blockers])
    for n, blocker in enumerate(blockers):
        d.engine.step(d.now_s, [])
        d.done(blocker, outcome=TurnOutcome.CANCELLED, after_s=0.0)
        d.end(f"x{n}")
    assert {name: d.backend_of(held[name]) for name in homes} == homes


def test_session_larger_than_any_budget_gets_an_empty_backend_to_itself() -> None:
    d = EngineDriver(ONE)
    alone = d.ask("big", 38_000)
    assert d.reason_of(alone) == "alone"
    d.done(alone, input_tokens=38_000)
    d.evict("big")
    small = d.ask("small", 1_000)
    big = d.ask("big", 39_000)
    assert big in d.held_ids()
    d.done(small)
    d.end("small")
    assert d.reason_of(big) == "alone"


# --- bounds -------------------------------------------------------------------------------------


def crowded(d: EngineDriver, *started: str) -> list[str]:
    """One backend full of a running session, `started` held for lack of room."""
    for name in started:
        d.turn(name)
        d.evict(name)
    d.ask("hog", 20_000)
    return [d.ask(name, 10_000) for name in started]


def test_overdue_session_is_forced_in_after_the_soft_bound() -> None:
    d = EngineDriver(ONE)
    (held,) = crowded(d, "s")
    d.idle(59.0)
    assert held not in d.grants
    d.idle(2.0)
    assert d.reason_of(held) == "forced"
    assert d.grants[held].receipt.hold_s == pytest.approx(60.0, abs=1.0)


def test_forced_grants_are_limited_to_a_share_of_the_backend() -> None:
    """A 10k refill takes 10k / (40k / 60 s) = 15 s; at phi = 0.2 the next comes 75 s later."""
    d = EngineDriver(ONE, parameters=Parameters(hold_hard_s=1000.0))
    first, second = crowded(d, "s1", "s2")
    d.idle(62.0)
    assert first in d.grants
    d.done(first)
    d.evict("s1")
    d.idle(60.0)
    assert second not in d.grants
    d.idle(20.0)
    assert d.reason_of(second) == "forced"


def test_soft_forced_grant_respects_the_pool() -> None:
    d = EngineDriver(ONE)
    fill(d, "s")
    d.evict("s")
    d.ask("hog", 38_000)
    held = d.ask("s", 10_000)
    d.idle(100.0)
    assert held not in d.grants
    d.idle(22.0)
    assert d.reason_of(held) == "forced"


@pytest.mark.parametrize("num_started", [1, 5, 12])
def test_no_started_session_is_held_beyond_the_hard_bound(num_started: int) -> None:
    d = EngineDriver(ONE)
    names = [f"s{n}" for n in range(num_started)]
    held = crowded(d, *names)
    d.idle(125.0)
    tick_s = Parameters().tick_s
    for request_id in held:
        assert d.grants[request_id].receipt.hold_s <= 120.0 + tick_s


def test_nobody_overtakes_an_overdue_session() -> None:
    d = EngineDriver(100_000)
    d.turn("big", 10_000)
    d.evict("big")
    hog = d.ask("hog", 60_000)
    big = d.ask("big", 50_000)
    d.idle(61.0)
    small = d.ask("small", 500)
    assert big in d.held_ids()
    assert small in d.held_ids()
    d.done(hog, input_tokens=60_000)
    d.end("hog")
    assert big in d.grants
    assert small in d.grants


def test_no_started_session_overtakes_an_overdue_one_either() -> None:
    d = EngineDriver(100_000, parameters=Parameters(growth_turns=0.0))
    fill(d, "big", "small")
    d.evict("big", "small")
    d.ask("hog", 60_000)
    big = d.ask("big", 50_000)
    d.step(*[LeaseRenewed(lease_id=x) for x in d.engine.state.leases], after_s=2.0)
    d.idle(59.0)
    small = d.ask("small", 10_000)
    assert d.held_ids() == [big, small]
    d.idle(30.0)  # the pool has no room beside the hog for the big one, but would for the small one
    assert d.held_ids() == [big, small]


def test_home_is_where_a_forced_session_is_still_resident() -> None:
    d = EngineDriver(60_000, 60_000, parameters=Parameters(growth_turns=0.0))
    home = d.turn("s", 20_000)
    hogs = [d.ask(f"hog{n}", 36_000) for n in range(2)]
    assert len({d.backend_of(h) for h in hogs}) == 2
    held = d.ask("s", 24_000)
    d.idle(125.0)
    assert d.backend_of(held) == home
    assert d.reason_of(held) == "forced"


# --- stage 2 ------------------------------------------------------------------------------------


def test_new_sessions_are_admitted_strictly_in_order() -> None:
    d = EngineDriver(ONE)
    hog = d.ask("hog")
    large = d.ask("large", 20_000)
    small = d.ask("small", 100, after_s=1.0)
    assert d.held_ids() == [large, small]
    d.done(hog)
    d.end("hog")
    assert large in d.grants
    assert small not in d.grants


def test_priority_goes_first_inside_a_tenant() -> None:
    d = EngineDriver(ONE)
    hog = d.ask("hog")
    low = d.ask("low")
    high = d.ask("high", priority=1, after_s=1.0)
    d.done(hog)
    d.end("hog")
    assert high in d.grants
    assert low not in d.grants


def test_tenants_take_turns_by_their_active_roots() -> None:
    d = EngineDriver(120_000)
    running = [d.ask(f"a{n}", tenant="a") for n in range(4)]
    queue = [d.ask(f"a{n}", tenant="a", after_s=0.1) for n in range(4, 8)]
    late = d.ask("b0", tenant="b", after_s=0.1)
    assert d.held_ids() == [*queue, late]
    d.done(running[0])
    d.end("a0")
    assert late in d.grants
    assert queue[0] not in d.grants


def test_tenants_share_by_weight() -> None:
    """Seats for six: weights 2 to 1 give four and two, whoever came first."""
    d = EngineDriver(
        6 * 26_000, parameters=Parameters(tenant_weights=(("a", 2.0),), new_wait_s_max=5000.0)
    )
    hog = d.ask("hog", 130_000)
    queue = [d.ask(f"b{n}", tenant="b", after_s=0.01) for n in range(6)]
    queue += [d.ask(f"a{n}", tenant="a", after_s=0.01) for n in range(6)]
    assert d.held_ids() == queue
    d.done(hog, input_tokens=130_000)
    d.end("hog")
    granted = [d.engine.state.leases[d.grants[r].lease_id] for r in queue if r in d.grants]
    tenants = sorted(lease.session.tenant for lease in granted)
    assert tenants == ["a"] * 4 + ["b"] * 2


def test_sub_agents_of_a_root_count_once_for_their_tenant() -> None:
    d = EngineDriver(160_000)
    for n in range(3):
        d.ask(f"a-child{n}", tenant="a", root_session_id="a-root")
    d.ask("b1", tenant="b", root_session_id="b1")
    d.ask("b2", tenant="b", root_session_id="b2")
    hog = d.ask("c", 13_000, tenant="c")
    late_b, late_a = d.ask("b3", tenant="b"), d.ask("a-next", tenant="a")
    assert d.held_ids() == [late_b, late_a]
    d.done(hog, outcome=TurnOutcome.CANCELLED)
    assert late_a in d.grants
    assert late_b not in d.grants


def test_first_call_of_a_sub_agent_goes_near_its_parent() -> None:
    d = EngineDriver(100_000, 300_000)
    d.turn("filler", 100_000)  # leaves b0 with less room, b1 with more
    parent = d.turn("parent", 20_000)
    roomier = max(
        d.engine.observe(d.now_s).backends,
        key=lambda b: (b.budget_tokens or 0) - b.committed_tokens,
    ).backend_id
    child = d.ask("child", 5_000, parent_session_id="parent", root_session_id="parent")
    stranger = d.ask("stranger", 5_000)
    assert d.backend_of(child) == parent
    assert d.backend_of(stranger) == roomier


def test_new_sessions_wait_while_several_started_ones_are_stuck() -> None:
    d = EngineDriver(100_000)
    names = ["s1", "s2", "s3"]
    fill(d, *names)
    d.evict(*names)
    d.ask("hog", 60_000)
    stuck = [d.ask(name, 50_000) for name in names]
    new = d.ask("new", 1_000)
    assert d.held_ids() == [*stuck, new]


def test_released_seats_still_weigh_on_new_sessions() -> None:
    """nu = 0.3: what may come back keeps a share of its room."""
    weights = {}
    for weight in (0.0, 1.0):
        d = EngineDriver(80_000, parameters=Parameters(released_weight=weight))
        fill(d, "s1", "s2")
        d.tool("s1", remaining_s=1000.0)
        d.tool("s2", remaining_s=1000.0)
        d.step(after_s=2.0)
        d.ask("busy", 12_000)
        new = d.ask("new", 12_000)
        d.idle(3.0)
        weights[weight] = new in d.grants
    assert weights == {0.0: True, 1.0: False}


# --- release by price ---------------------------------------------------------------------------


def teach(d: EngineDriver, key: str, duration_s: float, times: int = 100) -> None:
    """Past calls of a tool, of sessions that are no concern of the test."""
    for n in range(times):
        start = ToolStarted(session_id=f"past {key} {n}", call_id="c", name="bash", key=key)
        d.engine.readiness.observe(start, d.now_s)
    d.now_s += duration_s
    for n in range(times):
        end = ToolEnded(session_id=f"past {key} {n}", call_id="c", duration_s=duration_s)
        d.engine.readiness.observe(end, d.now_s)


def seat_released(d: EngineDriver, session_id: str) -> bool:
    views = {s.session_id: s for s in d.engine.observe(d.now_s).sessions}
    return views[session_id].seat_released


def test_no_seat_is_released_while_nobody_is_held() -> None:
    d = EngineDriver(ONE)
    d.turn("s")
    d.tool("s", remaining_s=5_000.0)
    d.idle(600.0)
    assert not seat_released(d, "s")


def test_long_announced_tool_releases_its_seat_and_the_next_session_gets_the_room() -> None:
    d = EngineDriver(ONE)
    d.turn("s")
    d.tool("s", remaining_s=500.0)
    waiting = d.ask("new", 10_000)
    d.idle(2.5)
    assert seat_released(d, "s")
    assert d.reason_of(waiting) == "planned"


def test_one_token_too_many_costs_one_session_its_turn_and_not_all_who_run() -> None:
    """Ten run when the pool turns out one token too small for them; `thunderagent` marks all."""
    d = EngineDriver(400_000)
    running = [d.ask(f"s{n}") for n in range(10)]
    assert all(request_id in d.grants for request_id in running)
    d.resample(capacity_tokens=10 * (10_000 + 300) - 1)
    waiting = d.ask("new")
    d.idle(60.0)
    assert waiting in d.held_ids()
    for request_id in running:
        d.done(request_id, after_s=0.0)
    d.resample(capacity_tokens=10 * (10_100 + int(d.engine.state.typical.output_tokens)) - 1)
    again = [d.ask(f"s{n}", 10_100) for n in range(10)]
    assert d.held_ids() == [again[-1], waiting]
    assert {d.reason_of(request_id) for request_id in again[:-1]} == {"resident"}
    assert d.engine.observe(d.now_s).counters.seats_released == 0


@pytest.mark.parametrize("actual_tokens", [100, 10_000, 45_000])
def test_room_comes_back_as_it_was_taken_whatever_the_call_became(actual_tokens: int) -> None:
    """Estimated at the grant, known at the end, released in between, and back for more."""
    d = EngineDriver(200_000, parameters=Parameters(growth_turns=0.0))

    def room() -> tuple[int, int]:
        view = d.engine.observe(d.now_s).backends[0]
        return view.committed_tokens, view.released_tokens

    for n in range(3):
        d.done(d.ask(f"s{n}", 10_000), input_tokens=actual_tokens, output_tokens=100)
        d.tool(f"s{n}", remaining_s=1_000.0)
    each = actual_tokens + 100
    assert room() == (3 * each, 0)
    large = d.ask("new", 199_000)
    d.idle(3.0)
    d.done(large, outcome=TurnOutcome.CANCELLED)
    assert room() == (0, 3 * each)
    d.tool_end("s0")
    d.turn("s0", actual_tokens + 5_000)
    assert room() == (each + 5_000, 2 * each)
    for n in range(3):
        d.end(f"s{n}")
    assert room() == (0, 0)


def test_interrupted_session_goes_home_though_another_backend_has_more_room() -> None:
    d = EngineDriver(ONE, 10 * ONE)
    d.step(BackendDrained(backend_id="b1"))
    assert d.turn("s") == "b0"
    d.tool("s", remaining_s=500.0)
    d.ask("new")
    d.idle(3.0)
    assert seat_released(d, "s")
    d.step(BackendAdded(backend_id="b1", base_url="http://b1"))
    d.end("new")
    d.tool_end("s")
    again = d.ask("s", 10_200)
    assert d.backend_of(again) == "b0"
    assert d.grants[again].receipt.cache_credit_tokens == 10_100


@pytest.mark.parametrize("is_someone_held", [False, True])
def test_released_seats_stay_released_until_their_session_asks(is_someone_held: bool) -> None:
    """The case in which `thunderagent-decay` goes 12, 9, 12, 9, ... for ever: twelve sessions with
    long tools on a pool that holds nine."""
    d = EngineDriver(400_000)
    for n in range(12):
        d.turn(f"s{n}")
        d.tool(f"s{n}", remaining_s=600.0)
    d.step(BackendSampled(backend_id="b0", capacity_tokens=95_000))
    if is_someone_held:
        d.ask("new")
    seated: list[set[int]] = []
    for _ in range(60):
        d.idle(1.0)
        seated.append({n for n in range(12) if not seat_released(d, f"s{n}")})
    assert all(later <= earlier for earlier, later in pairwise(seated))
    assert (len(seated[-1]) < 12) == is_someone_held


def test_seat_is_never_released_within_the_first_second_of_a_tool() -> None:
    d = EngineDriver(ONE)
    d.turn("s")
    d.tool("s", remaining_s=500.0)
    d.ask("new")
    assert not seat_released(d, "s")
    d.idle(0.9)
    assert not seat_released(d, "s")


def test_tool_that_ends_before_the_price_keeps_its_seat() -> None:
    d = EngineDriver(ONE)
    d.turn("s")
    d.tool("s", remaining_s=30.0)  # R starts at 60 s
    d.ask("new")
    d.idle(20.0)
    assert not seat_released(d, "s")


def test_time_out_below_the_price_keeps_the_seat_however_long_the_history() -> None:
    d = EngineDriver(ONE)
    teach(d, "bash", 250.0)
    d.turn("s")
    d.tool("s", timeout_s=30.0)
    d.ask("new")
    d.idle(10.0)
    assert not seat_released(d, "s")


def test_history_of_the_tool_decides_without_an_announcement() -> None:
    for duration_s, expected in ((250.0, True), (1.5, False)):
        d = EngineDriver(ONE)
        teach(d, "make", duration_s)
        d.turn("s")
        d.tool("s", key="make")
        d.ask("new")
        d.idle(3.0)
        assert seat_released(d, "s") is expected


def test_tools_of_live_sessions_teach_the_predictor() -> None:
    d = EngineDriver(2_000_000)
    for n in range(30):
        d.turn(f"s{n}")
        d.tool(f"s{n}", key="make")
    d.step(after_s=100.0)
    for n in range(30):
        d.tool_end(f"s{n}")
    d.tool("fresh", key="make")
    assert d.engine.readiness.remaining("fresh", d.now_s).median_s == pytest.approx(100.0, rel=0.3)


def test_released_session_that_comes_back_in_time_is_still_resident() -> None:
    d = EngineDriver(ONE)
    d.turn("s")
    d.tool("s", remaining_s=500.0)
    d.ask("new")
    d.idle(3.0)
    d.tool_end("s")
    again = d.ask("s", 10_200)
    assert d.reason_of(again) == "resident"
    assert not seat_released(d, "s")


def test_deadline_counts_like_an_announced_end() -> None:
    d = EngineDriver(ONE)
    d.turn("s")
    d.step(SessionDeadlineSet(session_id="s", remaining_s=400.0))
    d.ask("new")
    d.idle(3.0)
    assert seat_released(d, "s")


def test_session_that_no_budget_holds_is_alone_where_its_prompt_fits() -> None:
    d = EngineDriver(40_000, 102_000)
    request_id = d.ask("long", 98_000)
    assert (d.backend_of(request_id), d.reason_of(request_id)) == ("b1", "alone")


def test_session_is_forced_in_where_its_prompt_fits() -> None:
    """Not where most room is left: its engine would refuse it for good."""
    d = EngineDriver(40_000, 120_000)
    assert d.turn("long", 100_000) == "b1"
    d.evict("long")
    d.ask("other", 100_000)
    request_id = d.ask("long", 100_200)
    d.idle(130)
    assert (d.backend_of(request_id), d.reason_of(request_id)) == ("b1", "forced")


def test_session_that_has_outgrown_its_home_is_forced_in_elsewhere() -> None:
    d = EngineDriver(40_000, 120_000)
    assert d.turn("large", 90_000) == "b1"
    assert d.turn("long", 24_000) == "b0"
    d.evict("large")
    d.ask("other", 100_000)
    request_id = d.ask("long", 41_000)
    d.idle(130)
    assert d.backend_of(request_id) == "b1"


def test_every_tenant_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait: comparing each with each stalled the loop for seconds."""
    claims: list[str] = []

    def claim(state: State, tenant: str, active: object, first: object) -> tuple[float, float]:
        claims.append(tenant)
        return (0.0, 0.0)

    d = EngineDriver(40_000)
    d.ask("hog", 35_000)
    for n in range(50):
        d.ask(f"s{n}", 30_000, tenant=f"t{n}")
    monkeypatch.setattr(arrivals, "_claim", claim)
    d.idle(1.0)
    num_looks = claims.count("t0")
    assert num_looks >= 1
    assert len(claims) == 50 * num_looks
