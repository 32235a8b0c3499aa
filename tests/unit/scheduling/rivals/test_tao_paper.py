"""tao-paper: a joint plan each second by decayed credit, readiness and tokens; no bound on waiting.

A session weighs its tokens and a reserve of 512, on a grid of 1,024.
"""

import itertools
import random

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendAdded, BackendSampled
from tao_coordinator.core.model import SessionKey
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.prediction.hazard import HazardPredictor
from tao_coordinator.prediction.paper import PaperPredictor
from tao_coordinator.scheduling.rivals.tao_paper import Standing, TaoPaper, TaoPaperParameters

PATIENT = Parameters(new_wait_s_max=1e6)
"""The engine itself would refuse new sessions after 900 s."""
RESERVE = 512
QUANTUM = 1024


def fleet(*pools: int | None, states_max: int | None = None) -> EngineDriver:
    d = EngineDriver(policy="tao-paper", parameters=PATIENT)
    if states_max is not None:
        own = TaoPaperParameters(states_max=states_max)
        d.engine.policy = TaoPaper(d.engine.readiness, own)
    for index, pool in enumerate(pools):
        add(d, f"b{index}", pool)
    return d


def add(d: EngineDriver, name: str, pool: int | None) -> None:
    d.step(BackendAdded(backend_id=name, base_url=f"http://{name}"))
    d.step(BackendSampled(backend_id=name, capacity_tokens=pool))


def policy_of(d: EngineDriver) -> TaoPaper:
    assert isinstance(d.engine.policy, TaoPaper)
    return d.engine.policy


def paused(d: EngineDriver) -> list[str]:
    return sorted(session.key.session_id for session in policy_of(d).paused)


def resize(d: EngineDriver, capacity: int, backend_id: str = "b0") -> None:
    d.step(BackendSampled(backend_id=backend_id, capacity_tokens=capacity))


def quick_turn(d: EngineDriver, name: str, tokens: int) -> None:
    """A turn that leaves `tokens` behind, within a tenth of a second."""
    d.done(d.ask(name, tokens), input_tokens=tokens, output_tokens=0, after_s=0.1)


def value(d: EngineDriver, name: str, backend_id: str = "b0") -> tuple[int, int, int]:
    """(k, r, t) now."""
    policy, state = policy_of(d), d.engine.state
    session = state.sessions[SessionKey(name, "", "")]
    standing = policy._standings.get(session)
    assert standing is not None
    return policy.value(state, session, standing, state.backends[backend_id], d.now_s)


# --- value --------------------------------------------------------------------------------------


def test_tao_paper_credit_halves_every_10_s_and_is_counted_by_the_token() -> None:
    d = fleet(100_000)
    quick_turn(d, "s", 40_004)
    seen = [value(d, "s")[0]]
    for _ in range(3):
        d.idle(10.0)
        seen.append(value(d, "s")[0])
    assert seen == [40_004, 20_002, 10_001, 5_000]  # 5,000.5 rounds to even
    d.idle(200.0)
    assert value(d, "s")[0] == 0


def test_tao_paper_credit_is_where_the_last_reply_was_and_whole_while_a_call_runs() -> None:
    d = fleet(100_000, 90_000)
    quick_turn(d, "s", 40_000)
    assert (value(d, "s", "b0")[0], value(d, "s", "b1")[0]) == (40_000, 0)
    d.idle(30.0)
    assert d.ask("s", 41_000) in d.grants
    assert value(d, "s") == (40_000, 1, 41_000)


def two_paused_and_room_for_one(d: EngineDriver) -> None:
    """`old` and `fresh`, idle beside a running hog; resized so that neither fits."""
    quick_turn(d, "old", 30_000)
    quick_turn(d, "fresh", 30_100)
    assert d.ask("hog", 35_000) in d.grants
    resize(d, 60_000)
    d.idle(2.0)
    assert paused(d) == ["fresh", "old"]


def test_tao_paper_a_little_more_credit_outranks_readiness() -> None:
    d = fleet(100_000)
    two_paused_and_room_for_one(d)
    waiting = d.ask("old", 30_200)
    old, fresh = value(d, "old"), value(d, "fresh")
    assert 0 < fresh[0] - old[0] < 500, "nearly equal"
    assert (old[1], fresh[1]) == (1, 0)
    resize(d, 70_000)
    d.idle(1.5)
    assert paused(d) == ["old"]
    assert waiting not in d.grants, "an idle session has the room that a waiting one could use"


def test_tao_paper_readiness_breaks_ties_before_tokens_do() -> None:
    d = fleet(100_000)
    two_paused_and_room_for_one(d)
    d.idle(400.0)  # both credits are gone
    waiting = d.ask("old", 30_050)
    assert value(d, "old") == (0, 1, 30_050)
    assert value(d, "fresh") == (0, 0, 30_100)
    resize(d, 70_000)
    d.idle(1.5)
    assert d.reason_of(waiting) == "planned"
    assert paused(d) == ["fresh"]


def test_tao_paper_tokens_break_ties_of_credit_and_readiness() -> None:
    d = fleet(100_000)
    two_paused_and_room_for_one(d)
    d.idle(400.0)
    resize(d, 70_000)
    d.idle(1.5)
    assert paused(d) == ["old"]


def test_tao_paper_readiness_is_a_second_ahead_and_a_probe_when_overdue() -> None:
    d = fleet(100_000)
    for _ in range(3):  # three calls of exactly 2 s: no margin
        quick_turn(d, "s", 10_000)
        d.tool("s")
        d.now_s += 2.0
        d.tool_end("s")
    quick_turn(d, "s", 10_000)
    d.tool("s")
    expected = {0.5: 0, 1.25: 1, 2.5: 1, 4.5: 0, 5.5: 1, 7.0: 0}
    seen: dict[float, int] = {}
    start_s = d.now_s
    for elapsed_s in expected:
        d.idle(start_s + elapsed_s - d.now_s)
        seen[elapsed_s] = value(d, "s")[1]
    assert seen == expected
    d.tool_end("s")
    assert value(d, "s")[1] == 1, "an end that was seen wins"


def test_tao_paper_is_fed_the_published_predictor_and_tao_its_own() -> None:
    engine = Engine(Parameters().scaled(10.0), "tao-paper")
    assert isinstance(engine.readiness, PaperPredictor)
    assert isinstance(engine.policy, TaoPaper)
    assert engine.policy.readiness is engine.readiness
    settings = engine.readiness.settings
    assert (settings.horizon_s, settings.stale_s) == pytest.approx((0.1, 3.0))
    for name in ("tao", "round-robin"):
        assert isinstance(Engine(Parameters(), name).readiness, HazardPredictor)


def test_tao_paper_follows_the_engines_time() -> None:
    d = EngineDriver(100_000, policy="tao-paper", parameters=PATIENT.scaled(10.0))
    quick_turn(d, "s", 40_000)
    d.idle(1.0)
    assert value(d, "s")[0] == 20_000


# --- who waits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("missing", "num_granted"), [(0, 4), (1, 3)])
def test_tao_paper_budget_is_the_capacity_to_the_last_token(missing: int, num_granted: int) -> None:
    d = fleet(4 * (20_000 + RESERVE) - missing)
    calls = [d.ask(f"s{n}", 20_000) for n in range(4)]
    assert sum(r in d.grants for r in calls) == num_granted


def test_tao_paper_chooses_on_ticks_alone() -> None:
    d = fleet(100_000)
    hog = d.ask("hog", 95_000)
    held = d.ask("new", 50_000)
    d.idle(2.0)
    d.done(hog, input_tokens=95_000, after_s=0.3)
    d.end("hog")
    assert held not in d.grants, "the backend is empty, but no tick was"
    small = d.ask("small", 1_000)
    assert small not in d.grants, "nobody overtakes the pool between ticks"
    d.idle(0.5)
    assert held not in d.grants
    d.idle(0.3)
    assert d.reason_of(held) == d.reason_of(small) == "planned"
    assert d.grants[held].receipt.plan_id is not None


def test_tao_paper_pauses_on_ticks_alone() -> None:
    d = fleet(100_000)
    quick_turn(d, "s", 30_000)
    quick_turn(d, "t", 30_000)
    d.idle(2.0)
    resize(d, 50_000)
    d.ask("new", 20_000)  # the first to be held: policies are asked whom to interrupt
    assert paused(d) == ["new"]
    d.idle(1.1)
    assert paused(d) == ["new", "s"]


def test_tao_paper_calls_of_active_sessions_go_at_once() -> None:
    d = fleet(100_000)
    quick_turn(d, "s", 40_000)
    quick_turn(d, "t", 50_000)
    d.ask("new", 60_000)
    assert d.reason_of(d.ask("s", 45_000)) == "sticky"
    assert d.reason_of(d.ask("t", 80_000)) == "sticky", "over the capacity until the next tick"


def test_tao_paper_has_no_bypass_for_paused_sessions_whose_cache_is_there() -> None:
    d = fleet(100_000)
    two_paused_and_room_for_one(d)
    session = d.engine.state.sessions[SessionKey("fresh", "", "")]
    assert d.engine.state.is_resident(session, d.engine.state.backends["b0"])
    assert d.ask("fresh", 30_200) not in d.grants


def test_tao_paper_new_session_goes_where_most_room_is() -> None:
    d = fleet(60_000, 100_000)
    assert [d.backend_of(d.ask(f"s{n}", 30_000)) for n in range(3)] == ["b1", "b1", "b0"]


def test_tao_paper_starves_a_started_session_under_overload() -> None:
    d = fleet(100_000)
    quick_turn(d, "starved", 30_000)
    hogs = [d.ask(f"hog{n}", 30_000) for n in range(2)]
    resize(d, 75_000)
    d.idle(2.0)
    held = d.ask("starved", 31_000)
    for second in range(4_000):
        if second % 500 == 499:  # the others go on, turn after turn
            d.done(hogs[0], input_tokens=30_000, output_tokens=0, after_s=0.1)
            hogs[0] = d.ask("hog0", 30_000)
            assert hogs[0] in d.grants
        d.idle(1.0)
    assert (held in d.grants, held in d.rejects) == (False, False)
    for request in hogs:
        d.done(request, input_tokens=30_000)
    d.end("hog0")
    d.idle(1.5)
    assert held in d.grants


# --- pause --------------------------------------------------------------------------------------


def test_tao_paper_pauses_the_lowest_value_first_whatever_its_size() -> None:
    d = fleet(100_000)
    quick_turn(d, "big", 45_000)
    d.idle(30.0)  # 45,000 tokens are worth 5,600
    quick_turn(d, "small", 10_000)
    quick_turn(d, "mid", 25_000)
    resize(d, 80_000)
    d.idle(1.5)
    assert paused(d) == ["big"]
    assert d.engine.observe(d.now_s).counters.seats_released == 1


def test_tao_paper_pauses_the_idle_before_the_running() -> None:
    d = fleet(100_000)
    running = d.ask("new", 1_000)  # no credit at all
    quick_turn(d, "idle", 97_000)
    resize(d, 98_000)
    d.idle(1.5)
    d.done(running, input_tokens=1_000)
    d.idle(0.1)
    assert paused(d) == ["idle"]


def test_tao_paper_marks_no_more_running_sessions_than_needed() -> None:
    d = fleet(10 * (10_000 + RESERVE))
    calls = [d.ask(f"s{n}", 10_000) for n in range(10)]
    assert all(r in d.grants for r in calls)
    resize(d, 10 * (10_000 + RESERVE) - 1)
    d.idle(5.0)
    assert paused(d) == [], "calls in flight go on"
    for request in calls:
        d.done(request, input_tokens=10_000, output_tokens=0, after_s=0.0)
    d.idle(1.0)
    assert paused(d) == ["s0"]


def test_tao_paper_marked_session_is_paused_when_its_next_call_comes() -> None:
    d = fleet(45_000)
    calls = {name: d.ask(name, 20_000) for name in ("a", "b")}
    resize(d, 40_000)
    d.idle(2.0)
    d.done(calls["a"], input_tokens=20_000, after_s=0.0)
    assert d.ask("a", 20_500) not in d.grants
    assert paused(d) == ["a"]


# --- plan ---------------------------------------------------------------------------------------


def one_paused_with_room_on_both(d: EngineDriver) -> str:
    """A held session at home on b0 with room on both backends, less of it on b1."""
    quick_turn(d, "s", 30_000)
    assert d.backend_of(d.ask("hog1", 60_000)) == "b1"
    assert d.backend_of(d.ask("hog0", 40_000)) == "b0"
    resize(d, 45_000)
    resize(d, 61_000, "b1")
    d.idle(1.5)
    assert paused(d) == ["s"]
    held = d.ask("s", 30_000)
    resize(d, 120_000)  # room for 79k
    resize(d, 95_000, "b1")  # room for 34k
    d.idle(1.5)
    return held


def test_tao_paper_plan_leads_home() -> None:
    d = fleet(100_000, 90_000)
    held = one_paused_with_room_on_both(d)
    assert (d.backend_of(held), d.reason_of(held)) == ("b0", "planned")
    assert (policy_of(d).num_plans, policy_of(d).num_fallbacks) == (1, 0)


def test_tao_paper_with_too_many_states_fits_by_size_and_counts_it() -> None:
    d = fleet(100_000, 90_000, states_max=900)  # 31 levels on each of two backends
    held = one_paused_with_room_on_both(d)
    assert (d.backend_of(held), d.reason_of(held)) == ("b1", "fallback")
    assert (policy_of(d).num_plans, policy_of(d).num_fallbacks) == (1, 1)
    assert d.engine.observe(d.now_s).counters.granted["fallback"] == 1


def test_tao_paper_falls_back_on_values_beyond_64_bits() -> None:
    d = fleet(2**61)
    quick_turn(d, "s", 2**58)
    assert d.ask("hog", 2**59) in d.grants
    resize(d, 2**59 + 2**10)
    d.idle(1.5)
    held = d.ask("s", 2**58)
    assert held not in d.grants
    resize(d, 2**61)
    d.idle(1.5)
    assert d.reason_of(held) == "fallback"


def test_tao_paper_rounding_shuts_no_large_session_out_for_ever() -> None:
    d = fleet(100_000)
    assert 100_000 // QUANTUM * QUANTUM < 99_500
    hog = d.ask("hog", 90_000)
    held = d.ask("large", 99_500)
    d.done(hog, input_tokens=90_000)
    d.end("hog")
    d.idle(1.5)
    assert held in d.grants


@pytest.mark.parametrize("seed", range(40))
def test_tao_paper_resumes_the_best_set_on_the_grid(seed: int) -> None:
    """Against every assignment of at most five sessions, sums compared as tuples."""
    draw = random.Random(seed)
    pools = [draw.randrange(30_000, 90_000) for _ in range(2)]
    d = fleet(*pools)
    d.now_s += 10.0
    policy, state = policy_of(d), d.engine.state
    found = [state.session(SessionKey(f"s{n}", "", ""), 0.0) for n in range(draw.randrange(1, 6))]
    for session in found:
        session.context_tokens, session.turns = draw.randrange(1_000, 60_000), 1
        session.last_backend_id = draw.choice(["b0", "b1"])
        session.idle_since_s = d.now_s - draw.choice([0.0, 5.0, 300.0])
        policy._standings.put(session, Standing())
    levels = [pool // QUANTUM for pool in pools]
    best: tuple[int, ...] = (0, 0, 0, 0)
    for homes in itertools.product((None, 0, 1), repeat=len(found)):
        taken, total = [0, 0], (0, 0, 0, 0)
        for session, home in zip(found, homes, strict=True):
            if home is None:
                continue
            weight = min(session.context_tokens + RESERVE, levels[home] * QUANTUM)
            taken[home] += -(-weight // QUANTUM)
            v = value(d, session.key.session_id, f"b{home}")
            total = (total[0] + v[0], total[1] + v[1], total[2] + v[2], total[3] + 1)
        if taken[0] <= levels[0] and taken[1] <= levels[1]:
            best = max(best, total)
    policy.resume_jointly(state, d.now_s)
    got = [0, 0, 0, 0]
    for session, note in policy._standings:
        if note.backend_id is not None:
            v = value(d, session.key.session_id, note.backend_id)
            got = [a + b for a, b in zip(got, (*v, 1), strict=True)]
    assert tuple(got) == best


# --- fleet --------------------------------------------------------------------------------------


def test_tao_paper_holds_nobody_for_a_capacity_that_is_unknown() -> None:
    d = fleet(None, 30_000)
    homes = [d.backend_of(d.ask(f"s{n}", 20_000)) for n in range(4)]
    assert homes == ["b1", "b0", "b0", "b0"]


def test_tao_paper_resumes_to_a_backend_of_unknown_capacity() -> None:
    d = fleet(30_000)
    d.ask("hog", 25_000)
    held = [d.ask(f"s{n}", 20_000) for n in range(3)]
    add(d, "b1", None)
    d.idle(1.5)
    assert [d.backend_of(r) for r in held] == ["b1"] * 3


def test_tao_paper_session_of_a_draining_backend_is_placed_anew() -> None:
    d = fleet(100_000, 90_000)
    quick_turn(d, "now", 30_000)
    quick_turn(d, "later", 30_000)
    assert d.backend_of(d.ask("call", 60_000)) == "b0"
    d.engine.state.backends["b0"].draining = True
    d.engine.state.fleet_changed()
    assert d.backend_of(d.ask("now", 31_000)) == "b1"
    d.idle(1.5)
    assert paused(d) == ["call"], "its call runs to its end"


def test_tao_paper_forgets_sessions_that_are_gone() -> None:
    d = fleet(100_000)
    for n in range(4):
        quick_turn(d, f"s{n}", 20_000)
    resize(d, 70_000)
    d.idle(1.5)
    assert len(paused(d)) == 1
    for n in range(4):
        d.end(f"s{n}")
    d.turn("last")
    d.idle(1.0)
    assert [s.key.session_id for s, _ in policy_of(d)._standings] == ["last"]


@pytest.mark.parametrize("name", ["quantum_tokens", "states_max", "half_life_s", "interval_s"])
def test_tao_paper_refuses_parameters_without_meaning(name: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        TaoPaperParameters(**{name: 0})  # pyright: ignore[reportArgumentType]
