"""dynamo-cost: argmin of prefill to do plus blocks in use."""

import random

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.model import Turn
from tao_coordinator.scheduling.rivals.dynamo_cost import DynamoCost, DynamoCostParameters


def brute_cost(d: EngineDriver, turn: Turn, backend_id: str, block: int, shared: int) -> float:
    """Cost with blocks as members of a set, while nothing that was granted has been prefilled."""
    state = d.engine.state
    backend = state.backends[backend_id]
    blocks: set[tuple[str, int]] = {("shared", n) for n in range(shared // block)}
    prefill = turn.input_tokens
    for lease in state.leases.values():
        if lease.backend_id != backend_id:
            continue
        name, tokens = lease.session.key.session_id, lease.input_tokens - shared
        blocks |= {(name, start) for start in range(0, max(0, tokens), block)}
        prefill += max(0, tokens - lease.predicted_tokens)
    own = turn.input_tokens - shared
    name = turn.session.key.session_id
    blocks |= {(name, start) for start in range(0, max(0, own), block)}
    cached = min(turn.input_tokens, shared + backend.cache.resident_tokens(turn.session.key))
    return max(0.0, prefill / block - cached // block) + len(blocks)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("block", [16, 64])
def test_dynamo_cost_takes_the_argmin_of_the_brute_force(seed: int, block: int) -> None:
    draw = random.Random(seed)
    d = EngineDriver(*[draw.choice([200_000, 400_000]) for _ in range(3)], policy="dynamo-cost")
    d.engine.policy = DynamoCost(DynamoCostParameters(block_tokens=block))
    shared = draw.choice([0, 3_000])
    for backend in d.engine.state.backends.values():
        for _ in range(2):
            backend.shared_prefix.found(shared)
    for _ in range(12):  # caches of several sizes and ages, some of them on two backends
        d.turn(f"s{draw.randrange(6)}", draw.randrange(4_000, 60_000))
    for _ in range(14):
        name, tokens = f"s{draw.randrange(8)}", draw.randrange(4_000, 80_000)
        before = d.engine.state.num_leases
        turn = _turn(d, name, tokens)
        costs = {b: brute_cost(d, turn, b, block, shared) for b in d.engine.state.backends}
        request = d.ask(name, tokens)  # the same instant: nothing is prefilled yet
        cheapest = [b for b, cost in costs.items() if cost == min(costs.values())]
        assert d.backend_of(request) == cheapest[before % len(cheapest)]


def _turn(d: EngineDriver, name: str, tokens: int) -> Turn:
    """The turn as the engine will see it, without asking for it."""
    from tao_coordinator.core.model import SessionKey

    session = d.engine.state.session(SessionKey(name, "", ""), d.now_s)
    return Turn(
        request_id="probe",
        session=session,
        arrived_s=d.now_s,
        queued_s=d.now_s,
        input_tokens=tokens,
        output_tokens=0,
        timeout_s=None,
    )


def test_dynamo_cost_leaves_the_cache_when_its_backend_is_busy() -> None:
    d = EngineDriver(400_000, 400_000, policy="dynamo-cost")
    home = d.turn("s", 20_000)
    assert d.turn("s", 20_000) == home
    other = "b1" if home == "b0" else "b0"
    while d.backend_of(d.ask(f"x{d.engine.state.num_leases}", 30_000)) == other:
        pass
    assert d.backend_of(d.ask("s", 20_000)) == other


def test_dynamo_cost_credits_what_an_older_home_still_holds() -> None:
    """KV events show every backend's blocks, not only those of the session's last backend."""
    d = EngineDriver(400_000, 400_000, 400_000, policy="dynamo-cost")
    first = d.turn("s", 30_000)
    d.engine.state.backends[first].draining = True
    d.engine.state.fleet_changed()
    second = d.turn("s", 31_000)
    d.engine.state.backends[first].draining = False
    d.engine.state.fleet_changed()
    d.engine.state.backends[second].draining = True
    d.engine.state.fleet_changed()
    assert d.turn("s", 32_000) == first


def test_dynamo_cost_breaks_ties_in_turn() -> None:
    d = EngineDriver(400_000, 400_000, 400_000, policy="dynamo-cost")
    used: list[str] = []
    for n in range(6):
        request = d.ask(f"s{n}", 1_000)
        used.append(d.backend_of(request))
        d.done(request)
        d.end(f"s{n}")
    assert used == ["b0", "b1", "b2"] * 2


def test_dynamo_cost_stops_charging_a_prefill_that_must_be_over() -> None:
    """Prior rate: the whole pool in 60 s, so 50k of 300k tokens take 10 s, two of them 20 s."""
    d = EngineDriver(300_000, 300_000, policy="dynamo-cost")
    policy, state = d.engine.policy, d.engine.state
    assert isinstance(policy, DynamoCost)
    state.backends["b1"].draining = True
    state.fleet_changed()
    d.ask("x", 50_000)
    d.ask("y", 50_000)
    state.backends["b1"].draining = False
    state.fleet_changed()
    turn = _turn(d, "s", 16_000)

    def cost() -> float:
        return _cost(d, policy, turn)

    waiting, active, own = 100_000 / 16, 100_000 / 16, 16_000 / 16
    assert cost() == pytest.approx(waiting + active + 2 * own)
    d.idle(9.9)
    assert cost() == pytest.approx(waiting + active + 2 * own)
    d.idle(0.2)
    assert cost() == pytest.approx(waiting / 2 + active + 2 * own)
    d.idle(10.0)
    assert cost() == pytest.approx(active + 2 * own)


def _cost(d: EngineDriver, policy: DynamoCost, turn: Turn) -> float:
    from tao_coordinator.scheduling.rivals.dynamo_cost import Active

    backend = d.engine.state.backends["b0"]
    leases = [x for x in d.engine.state.leases.values() if x.backend_id == "b0"]
    return policy.cost_blocks(d.engine.state, turn, backend, Active(leases), d.now_s)


def test_dynamo_cost_counts_whole_blocks_and_the_shared_ones_once() -> None:
    """64 tokens a block: 1,000 shared ones fill 15, 160 more that are cached 2, and a call runs."""
    d = EngineDriver(400_000, policy="dynamo-cost")
    policy = d.engine.policy = DynamoCost(DynamoCostParameters(block_tokens=64))
    for _ in range(2):
        d.engine.state.backends["b0"].shared_prefix.found(1_000)
    d.done(d.ask("s", 1_160), input_tokens=1_160, output_tokens=0)
    d.ask("x", 2_000)
    cold, prompt, cached_blocks = 1_000, 3_000, 1_160 // 64
    prefill = (cold + prompt) / 64 - cached_blocks
    blocks = -(-1_000 // 64) + -(-2_000 // 64) + 1_000 // 64
    assert _cost(d, policy, _turn(d, "s", prompt)) == pytest.approx(prefill + blocks)


def test_dynamo_cost_without_overlap_credit_ignores_the_cache() -> None:
    d = EngineDriver(400_000, 400_000, policy="dynamo-cost")
    d.engine.policy = DynamoCost(DynamoCostParameters(overlap_credit=0.0))
    home = d.turn("s", 20_000)  # one lease so far: ties go to the other backend
    assert d.turn("s", 20_000) != home
