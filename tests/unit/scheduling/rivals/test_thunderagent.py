"""thunderagent: by size, on a loop of 5 s, blind to homes; its documented faults included."""

import random

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendSampled
from tao_coordinator.core.model import SessionKey
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.thunderagent import (
    Standing,
    ThunderAgent,
    ThunderAgentParameters,
)

PATIENT = Parameters(new_wait_s_max=1e6)
"""The engine itself would refuse new sessions after 900 s."""


def fleet(*pools: int, decays: bool = False) -> EngineDriver:
    name = "thunderagent-decay" if decays else "thunderagent"
    return EngineDriver(*pools, policy=name, parameters=PATIENT)


def policy_of(d: EngineDriver) -> ThunderAgent:
    assert isinstance(d.engine.policy, ThunderAgent)
    return d.engine.policy


def paused(d: EngineDriver) -> list[str]:
    return sorted(session.key.session_id for session in policy_of(d).paused)


def resize(d: EngineDriver, capacity: int, backend_id: str = "b0") -> None:
    d.step(BackendSampled(backend_id=backend_id, capacity_tokens=capacity))


def quick_turn(d: EngineDriver, name: str, tokens: int, context: int | None = None) -> None:
    """A turn that leaves `context` tokens behind, within a tenth of a second."""
    request = d.ask(name, tokens)
    d.done(request, input_tokens=context or tokens, output_tokens=0, after_s=0.1)


def test_thunderagent_pauses_the_smallest_acting_first() -> None:
    d = fleet(100_000)
    for name, context in (("mid", 35_000), ("small", 25_000), ("big", 45_000)):
        quick_turn(d, name, context - 20_000, context)  # 105k of 100k in the end
    assert paused(d) == []
    d.idle(5.0)
    assert paused(d) == ["small"]
    assert d.engine.observe(d.now_s).counters.seats_released == 1
    assert d.ask("small", 26_000) not in d.grants
    assert d.reason_of(d.ask("big", 46_000)) == "sticky"


def test_thunderagent_never_pauses_the_running_before_the_idle() -> None:
    d = fleet(100_000)
    running = d.ask("tiny", 1_000)
    quick_turn(d, "big", 90_000, context=99_500)
    d.idle(5.0)
    assert paused(d) == ["big"]
    d.done(running, input_tokens=1_000)
    assert paused(d) == ["big"], "nobody was marked: pausing one was enough"


def test_thunderagent_one_token_too_many_marks_everybody_who_runs() -> None:
    """Marking does not change what the loop looks at, so it goes on to the last."""
    d = fleet(10 * 10_100)
    calls = [d.ask(f"s{n}", 10_000) for n in range(10)]
    assert all(r in d.grants for r in calls)
    resize(d, 10 * 10_100 - 1)
    d.idle(5.0)
    assert paused(d) == [], "calls in flight go on"
    for request in calls:
        d.done(request, input_tokens=10_000, after_s=0.0)
    d.idle(1.0)
    assert len(paused(d)) == 10


def test_thunderagent_marked_session_is_paused_when_its_next_call_comes() -> None:
    d = fleet(50_000)
    calls = {name: d.ask(name, 20_000) for name in ("a", "b")}
    resize(d, 40_000)
    d.idle(5.0)
    d.done(calls["a"], input_tokens=20_000, after_s=0.0)
    assert d.ask("a", 21_000) not in d.grants
    assert paused(d) == ["a"]


def test_thunderagent_resume_ignores_where_the_cache_is() -> None:
    d = fleet(100_000, 100_000)
    quick_turn(d, "a", 30_000, context=45_000)
    assert d.backend_of(d.ask("b", 40_000)) == "b1"
    resize(d, 40_000)
    d.idle(5.0)  # 45k on b0 no longer fit: paused
    assert paused(d) == ["a"]
    resize(d, 100_000)
    resize(d, 250_000, "b1")  # 150k of room against 100k at home
    d.idle(5.0)
    assert paused(d) == []
    request = d.ask("a", 46_000)
    assert d.backend_of(request) == "b1"
    assert d.grants[request].receipt.cache_credit_tokens == 0


def test_thunderagent_resumes_the_waiting_before_the_new_before_the_idle() -> None:
    d = fleet(130_000)
    quick_turn(d, "idle", 9_000)
    quick_turn(d, "idle", 10_000)
    quick_turn(d, "waits", 24_000)
    hog = d.ask("hog", 70_000)
    resize(d, 90_000)
    d.idle(5.0)
    assert paused(d) == ["idle", "waits"]
    resize(d, 100_000)  # room for 29.9k: the largest alone, or both smaller ones
    waits, new = d.ask("waits", 25_000), d.ask("new", 18_000)
    assert (waits in d.grants, new in d.grants) == (False, False)
    d.idle(5.0)
    assert d.reason_of(waits) == "resumed"
    assert paused(d) == ["idle", "new"]
    d.done(hog, input_tokens=70_000)
    d.end("hog")
    d.idle(5.0)
    assert new in d.grants
    assert paused(d) == []


def test_thunderagent_waiting_sessions_are_taken_smallest_first() -> None:
    d = fleet(100_000)
    hog = d.ask("hog", 95_000)
    large, small = d.ask("large", 60_000), d.ask("small", 50_000)
    d.done(hog, input_tokens=95_000)
    d.end("hog")
    d.idle(5.0)
    assert (large in d.grants, small in d.grants) == (False, True)


def test_thunderagent_one_oversize_session_makes_all_new_ones_wait_for_the_loop() -> None:
    d = fleet(100_000)
    hog = d.ask("hog", 95_000)
    big = d.ask("big", 99_950)  # with its buffer it fits no empty backend
    d.done(hog, input_tokens=95_000)
    d.end("hog")
    small = d.ask("small", 1_000)
    assert small not in d.grants, "the backend is empty, yet the pool is not"
    d.idle(5.0)
    assert small in d.grants
    assert big not in d.grants


def test_thunderagent_new_session_goes_where_fewest_tokens_are_and_room_is() -> None:
    d = fleet(50_000, 100_000)
    homes = [d.backend_of(d.ask(f"s{n}", 30_000)) for n in range(3)]
    assert homes == ["b0", "b1", "b1"]


def test_thunderagent_forces_a_turn_through_after_1800_s_to_where_it_was_paused() -> None:
    d = fleet(100_000, 100_000)
    quick_turn(d, "s", 5_000)
    calls = [d.ask(name, tokens) for name, tokens in (("x", 95_000), ("y", 45_000), ("z", 45_000))]
    assert [d.backend_of(r) for r in calls] == ["b1", "b0", "b0"]
    quick_turn(d, "s", 6_000, context=30_000)
    d.idle(5.0)
    assert paused(d) == ["s"]
    held = d.ask("s", 31_000)
    d.idle(1_799.0)
    assert held not in d.grants
    d.idle(2.0)
    assert (d.backend_of(held), d.reason_of(held)) == ("b0", "forced-resume")


def test_thunderagent_forces_a_new_session_onto_the_fewest_sessions() -> None:
    d = fleet(100_000, 100_000)
    for name, tokens in (("x", 90_000), ("y", 45_000), ("z", 45_000)):
        assert d.ask(name, tokens) in d.grants
    held = d.ask("new", 80_000)
    d.idle(1_801.0)
    assert (d.backend_of(held), d.reason_of(held)) == ("b0", "forced-resume")


class Recorder(ThunderAgent):
    """Counts the sessions on backends after each half of the loop."""

    def __init__(self, parameters: ThunderAgentParameters) -> None:
        super().__init__(parameters)
        self.sizes: list[int] = []

    def resume_paused(self, state: State, now_s: float) -> None:
        super().resume_paused(state, now_s)
        self.sizes.append(len(self._standings) - len(self.paused))

    def pause_until_safe(self, state: State, now_s: float) -> None:
        super().pause_until_safe(state, now_s)
        self.sizes.append(len(self._standings) - len(self.paused))


@pytest.mark.parametrize(
    ("decays", "expected"), [(True, [12, 9, 12, 9, 12, 9, 12, 9]), (False, [12] + 7 * [9])]
)
def test_thunderagent_decay_ping_pongs_between_9_and_12(decays: bool, expected: list[int]) -> None:
    d = fleet(130_000)
    policy = d.engine.policy = Recorder(ThunderAgentParameters(uses_decay=decays))
    for n in range(12):
        quick_turn(d, f"s{n}", 10_000)
    resize(d, 95_000)  # nine of 10,100 fit
    d.idle(25.0)
    assert policy.sizes[:8] == expected


def test_thunderagent_decay_counts_half_of_an_acting_session_after_a_second() -> None:
    d = fleet(100_000, decays=True)
    quick_turn(d, "s", 40_000)
    policy, state = policy_of(d), d.engine.state
    for idle_s, counted in ((0.0, 40_000), (1.0, 20_000), (3.0, 5_000)):
        load = policy._loads(state, d.now_s + idle_s)["b0"]
        room = policy._remaining(state.backends["b0"], load, for_resume=True)
        assert room == 100_000 - counted - 100
        assert policy._remaining(state.backends["b0"], load) == 59_900


def test_thunderagent_running_and_waiting_sessions_count_their_prompt() -> None:
    d = fleet(100_000)
    quick_turn(d, "s", 40_000)
    d.ask("s", 55_000)
    policy, state = policy_of(d), d.engine.state
    load = policy._loads(state, d.now_s)["b0"]
    assert (load.reasoning, load.acting, load.num_sessions) == (55_000, 0, 1)


@pytest.mark.parametrize("seed", range(40))
def test_thunderagent_resume_is_worst_fit_of_the_largest_first(seed: int) -> None:
    """Against the same rule written down with plain lists."""
    draw = random.Random(seed)
    pools = [draw.randrange(60_000, 200_000) for _ in range(3)]
    d = fleet(*pools)
    policy, state = policy_of(d), d.engine.state
    plain: list[tuple[int, int, int, str]] = []
    rooms = dict(zip(state.backends, pools, strict=True))
    for n in range(draw.randrange(2, 14)):
        name, tokens = f"s{n}", draw.randrange(1_000, 70_000)
        session = state.session(SessionKey(name, "", ""), 0.0)
        session.context_tokens, session.turns = tokens, 1
        if draw.random() < 0.3:  # active: takes room
            where = draw.choice(sorted(rooms))
            policy._standings.put(session, Standing(backend_id=where, num_calls=2))
            rooms[where] -= tokens + 100
            continue
        calls, before = draw.randrange(1, 3), draw.randrange(1_000, 70_000)
        policy._standings.put(
            session, Standing(is_paused=True, num_calls=calls, paused_tokens=before)
        )
        plain.append((1 if calls == 1 else 2, before, tokens, name))
    rooms = {name: room for name, room in rooms.items() if room > 100}
    expected: dict[str, str] = {}
    left, chosen = sum(rooms.values()), list[tuple[int, str]]()
    for _, _, tokens, name in sorted(plain, key=lambda entry: entry[:2]):
        if tokens + 100 <= left:
            left -= tokens + 100
            chosen.append((tokens, name))
    for tokens, name in sorted(chosen, key=lambda entry: -entry[0]):
        where = max(rooms, key=lambda b: rooms[b], default=None)
        if where is not None and tokens + 100 <= rooms[where]:
            expected[name] = where
            rooms[where] -= tokens + 100
            if rooms[where] <= 100:
                del rooms[where]
    before = {s.key.session_id for s in policy.paused}
    policy.resume_paused(state, 0.0)
    got = {
        s.key.session_id: note.backend_id
        for s, note in policy._standings
        if s.key.session_id in before and not note.is_paused
    }
    assert got == expected


def test_thunderagent_session_of_a_lost_backend_starts_anew() -> None:
    """The original keeps sending it there; the engine may not."""
    d = fleet(100_000, 100_000)
    quick_turn(d, "s", 30_000)
    d.engine.state.backends["b0"].draining = True
    d.engine.state.fleet_changed()
    assert d.backend_of(d.ask("s", 31_000)) == "b1"


def test_thunderagent_forgets_sessions_that_are_gone() -> None:
    d = fleet(100_000)
    for n in range(4):
        quick_turn(d, f"s{n}", 20_000, context=26_000)
    d.idle(5.0)
    assert len(paused(d)) == 1
    for n in range(4):
        d.end(f"s{n}")
    d.turn("last")
    d.idle(1.0)
    assert [s.key.session_id for s, _ in policy_of(d)._standings] == ["last"]
