"""The vectorised problem says of each pair what the state says of it."""

import random

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendDrained
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.tao import competition
from tao_coordinator.scheduling.tao.room import Room


def driver(seed: int) -> EngineDriver:
    """Sessions with and without a told prefix, at home on two of three backends, one held twice."""
    chance = random.Random(seed)
    d = EngineDriver(60_000, 90_000, 40_000, parameters=Parameters(growth_turns=1.0))
    for n in range(12):
        told = chance.choice([None, 500, 4_000])
        request_id = d.ask(f"s{n}", 9_000, shared_prefix_tokens=told)
        if request_id in d.grants:
            d.done(request_id, input_tokens=9_000, cached_tokens=chance.choice([3_000, 5_000]))
            if chance.random() < 0.5:
                d.evict(f"s{n}")
    for n in range(12):
        d.ask(f"s{n}", chance.randint(9_000, 30_000))
    if seed % 2:
        d.step(BackendDrained(backend_id="b1"))
    return d


@pytest.mark.parametrize("seed", range(8))
def test_each_pair_is_what_the_state_says(seed: int) -> None:
    state: State = driver(seed).engine.state
    turns = [turn for turn in state.held.values() if turn.session.is_started]
    backends = list(state.backends.values())
    late = {turn.request_id for turn in turns[::2]}
    room = Room(state)
    problem = competition.build(state, turns, backends, room, late)
    bucket = state.parameters.credit_bucket_tokens
    for i, turn in enumerate(turns):
        allowed = state.eligible_beside_running(turn.session)
        for b, backend in enumerate(backends):
            need = state.need_tokens(turn, backend) + state.growth_tokens()
            assert problem.weights[i, b] == need
            assert problem.credits[i, b] == state.credit_tokens(turn.session, backend) // bucket
            assert problem.eligible[i, b] == (backend in allowed)
        assert problem.classes[i] == (turn.request_id in late)
        assert problem.tokens[i] == turn.input_tokens
    for b, backend in enumerate(backends):
        assert problem.budgets[b] == max(0, room.left[backend.backend_id])


def test_worlds_are_not_all_empty() -> None:
    held = [turn for seed in range(8) for turn in driver(seed).engine.state.held.values()]
    assert sum(turn.session.is_started for turn in held) > 10


def test_parallel_call_may_run_beside_its_sibling_only() -> None:
    d = EngineDriver(60_000, 60_000, parameters=Parameters(growth_turns=0.0))
    d.turn("s", 10_000)
    first = d.ask("s", 30_000)
    home = d.backend_of(first)
    for n in range(3):
        d.ask(f"hog{n}", 20_000)
    second = d.ask("s", 58_000)
    state = d.engine.state
    backends = list(state.backends.values())
    problem = competition.build(state, [state.held[second]], backends, Room(state), ())
    assert [b.backend_id for b, ok in zip(backends, problem.eligible[0], strict=True) if ok] == [
        home
    ]
