"""Every policy on the same fleet, with invariants on: they all finish, repeat, and leave nothing.

The engine's own limit on the wait of new sessions is lifted: the rivals have none.
"""

import pytest
from fleet_world import FleetWorld, coding_sessions

from tao_coordinator.core.events import Event
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import POLICIES
from tao_coordinator.scheduling.rivals.cache_aware import CacheAware
from tao_coordinator.scheduling.rivals.session_window import SessionWindows
from tao_coordinator.scheduling.rivals.static_cap import StaticCap
from tao_coordinator.scheduling.rivals.tao_paper import TaoPaper
from tao_coordinator.scheduling.rivals.thunderagent import ThunderAgent

POOLS = [307_000, 307_000]
PATIENT = Parameters(new_wait_s_max=1e6)
UNGATED = {"round-robin", "sticky-least-loaded", "cache-aware", "dynamo-cost"}


def world(policy: str, number: int, seed: int) -> FleetWorld:
    return FleetWorld(policy, coding_sessions(number, seed), POOLS, parameters=PATIENT)


@pytest.mark.slow
@pytest.mark.parametrize("number", [24, 40, 56])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_the_whole_fleet_and_leaves_nothing(policy: str, number: int) -> None:
    w = world(policy, number, seed=1)
    outcome = w.run()
    assert (len(outcome.task_s), outcome.rejected) == (number, [])
    w.now_s += 2.0
    w._step()
    seen = w.engine.observe(w.now_s)
    assert (seen.sessions, seen.held) == ((), ())
    for backend in seen.backends:
        assert (backend.num_seats, backend.committed_tokens, backend.in_flight_tokens) == (0, 0, 0)
    assert num_notes(w) == 0


def num_notes(w: FleetWorld) -> int:
    """Sessions that the policy still remembers."""
    policy = w.engine.policy
    if isinstance(policy, ThunderAgent | TaoPaper):
        return len(policy._standings)
    if isinstance(policy, CacheAware):
        return len(policy._sent)
    if isinstance(policy, SessionWindows):
        return len(policy._homes) + sum(len(gate.active) for gate in policy.gates.values())
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_repeats_its_decisions(policy: str) -> None:
    logs: list[list[tuple[float, str]]] = []
    for _ in range(2):
        w = world(policy, 40, seed=9)
        w.run()
        logs.append([(t, f"{e!r}") for t, e in w.log])
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_under_pressure_every_gate_keeps_caches_and_no_router_does() -> None:
    """56 sessions want twice the pools."""
    for policy in POLICIES:
        outcome = world(policy, 56, seed=2).run()
        assert (outcome.hit_rate < 0.2) == (policy in UNGATED), policy


@pytest.mark.slow
def test_only_our_own_policy_bounds_the_wait_of_started_sessions() -> None:
    held_s = {p: world(p, 56, seed=3).run().hold_started_s_max for p in POLICIES}
    assert held_s["tao"] <= PATIENT.hold_hard_s + PATIENT.tick_s
    unbounded = ("tao-paper", "thunderagent", "thunderagent-decay", "concur-aimd", "concur-pi")
    for policy in unbounded:
        assert held_s[policy] > PATIENT.hold_hard_s + PATIENT.tick_s, policy
    assert all(held_s[policy] == 0.0 for policy in UNGATED)


class SeatCounter(FleetWorld):
    """Notes the largest number of seats on one backend after any step."""

    most_seats = 0

    def _step(self, *events: Event) -> None:
        super()._step(*events)
        for backend in self.engine.state.backends.values():
            seats = backend.num_committed + backend.num_released
            self.most_seats = max(self.most_seats, seats)


@pytest.mark.slow
def test_static_cap_never_seats_more_than_k_in_a_whole_run() -> None:
    w = SeatCounter("static-cap", coding_sessions(40, 4), POOLS, parameters=PATIENT)
    policy = w.engine.policy
    assert isinstance(policy, StaticCap)
    w.run()
    assert w.most_seats == policy.parameters.sessions_max
