"""concur-aimd: the published law, and when it cannot fire."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.model import Backend, SessionKey
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.concur_aimd import ConcurAimd, ConcurAimdParameters
from tao_coordinator.scheduling.rivals.session_window import Gate


def backend(usage: float) -> Backend:
    return Backend(
        backend_id="b0",
        base_url="http://b0",
        capacity_override_tokens=100_000,
        capacity_scale=1.0,
        kv_usage_ratio=usage,
        sampled_s=0.0,
    )


def gate(state: State, window: float, num_active: int) -> Gate:
    found = Gate(window)
    for n in range(num_active):
        key = SessionKey(f"s{n}", "", "")
        found.active[key] = state.session(key, 0.0)
    return found


@pytest.mark.parametrize(
    ("usage", "hit_rate", "window", "expected"),
    [
        (0.19, 0.0, 8, 10),  # under-used: grow, whatever the hit rate
        (0.19, 0.9, 8, 10),
        (0.20, 0.0, 8, 8),  # between the marks: stay
        (0.50, 0.0, 8, 8),
        (0.51, 0.19, 8, 4),  # full and thrashing: halve
        (0.51, 0.19, 9, 4),  # floor
        (0.51, 0.20, 8, 8),  # full and reusing: stay
        (0.99, 0.9, 8, 8),
        (0.99, 0.0, 1, 1),  # never below one
    ],
)
def test_concur_aimd_law(usage: float, hit_rate: float, window: int, expected: int) -> None:
    state, b, policy = State(Parameters()), backend(usage), ConcurAimd()
    g = gate(state, window, window)
    b.prompt_tokens, b.cached_tokens = 10_000, int(10_000 * hit_rate)
    policy.adjust(state, b, g, 5.0)
    assert g.window == expected


def test_concur_aimd_constants_are_the_published_ones() -> None:
    p = ConcurAimdParameters()
    assert (p.alpha, p.beta, p.usage_low, p.usage_high, p.hit_rate_low) == (2, 0.5, 0.2, 0.5, 0.2)


def test_concur_aimd_grows_only_while_the_window_binds() -> None:
    state, b, policy = State(Parameters()), backend(0.05), ConcurAimd()
    sizes: list[float] = []
    for num_active in (5, 6, 7, 8, 9, 10):
        g = gate(state, 8.0, num_active)
        policy.adjust(state, b, g, 5.0)
        sizes.append(g.window)
    assert sizes == [8, 10, 10, 10, 10, 10]


def test_concur_aimd_without_replies_or_gauge_changes_nothing() -> None:
    state, b, policy = State(Parameters()), backend(0.9), ConcurAimd()
    g = gate(state, 8.0, 8)
    policy.adjust(state, b, g, 5.0)
    assert g.window == 8, "no reply in the window is no thrashing"
    b.kv_usage_ratio, b.capacity_override_tokens = None, None
    policy.adjust(state, b, g, 10.0)
    assert g.window == 8


def thrash(shared_tokens: int) -> tuple[EngineDriver, ConcurAimd]:
    """Eight sessions that keep the pool referenced and never find their own prefix."""
    d = EngineDriver(400_000, policy="concur-aimd")
    policy = d.engine.policy
    assert isinstance(policy, ConcurAimd)
    calls = {n: d.ask(f"s{n}", 40_000) for n in range(8)}
    for _ in range(15):
        for n in range(8):
            if calls[n] in d.grants:
                d.done(calls[n], input_tokens=40_000, cached_tokens=shared_tokens, after_s=0.0)
                calls[n] = d.ask(f"s{n}", 40_000)
        d.idle(5.0)
    return d, policy


def test_concur_aimd_cut_rule_cannot_fire_with_a_high_shared_prefix() -> None:
    """12k shared tokens of 40k are a hit rate of 0.3 although every private prefix is lost."""
    _, policy = thrash(shared_tokens=12_000)
    assert policy.gates["b0"].window >= 8
    d, policy = thrash(shared_tokens=0)
    assert policy.gates["b0"].window <= 4
    assert len(d.held_ids()) >= 4
    assert {r for r in d.grants if r in d.engine.state.lease_by_request}, "but somebody runs"


def test_concur_aimd_forgets_replies_after_a_minute() -> None:
    state, b, policy = State(Parameters()), backend(0.9), ConcurAimd()
    g = gate(state, 8.0, 8)
    b.prompt_tokens, b.cached_tokens = 10_000, 9_000
    policy.adjust(state, b, g, 5.0)
    for n in range(2, 13):
        b.sampled_s = 5.0 * n
        b.prompt_tokens += 100  # nothing of this is cached
        policy.adjust(state, b, g, 5.0 * n)
    assert g.window == 8, "the good replies are within the last minute"
    b.sampled_s = 65.0
    b.prompt_tokens += 100
    policy.adjust(state, b, g, 65.0)
    assert g.window == 4


def test_concur_aimd_law_runs_on_the_engines_clock() -> None:
    d = EngineDriver(400_000, policy="concur-aimd", parameters=Parameters().scaled(10.0))
    policy = d.engine.policy
    assert isinstance(policy, ConcurAimd)
    windows: list[float] = []
    for n in range(8):
        d.ask(f"s{n}", 1_000)
    for seconds in (0.4, 0.2, 0.5):  # an interval of 5 s takes half a second
        d.idle(seconds)
        windows.append(policy.gates["b0"].window)
    assert windows == [8, 10, 12]
