"""concur-pi: tuning, law, and what it does to a plant that we know."""

import math

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.model import Backend, SessionKey
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.concur_pi import ConcurPi, ConcurPiParameters
from tao_coordinator.scheduling.rivals.session_window import Gate

CAPACITY = 1_000_000


class Plant:
    """Sessions of equal, constant size; as many wait as there is room for."""

    def __init__(self, footprint: int, parameters: ConcurPiParameters | None = None) -> None:
        self.policy = ConcurPi(parameters)
        self.state = State(Parameters())
        self.backend = Backend(
            backend_id="b0",
            base_url="http://b0",
            capacity_override_tokens=CAPACITY,
            capacity_scale=1.0,
        )
        self.footprint = footprint
        self.gate = Gate(self.policy.parameters.window_initial)
        self.now_s = 0.0

    def run(self, seconds: float, waiting: int = 10_000) -> list[float]:
        """Occupancy after each interval."""
        seen: list[float] = []
        for _ in range(int(seconds / 5.0)):
            self.now_s += 5.0
            self.fill(min(waiting, int(self.gate.window)))
            self.policy.adjust(self.state, self.backend, self.gate, self.now_s)
            seen.append(self.backend.committed_tokens / CAPACITY)
        return seen

    def fill(self, number: int) -> None:
        self.gate.active = {
            key: self.state.session(key, 0.0)
            for key in (SessionKey(f"s{n}", "", "") for n in range(number))
        }
        self.backend.committed_tokens = number * self.footprint


@pytest.mark.parametrize("usage_per_session", [0.001, 0.03, 0.1, 0.5])
def test_concur_pi_tuning_is_simc(usage_per_session: float) -> None:
    p = ConcurPiParameters()
    gain, integral_time_s = ConcurPi(p).tuning(usage_per_session)
    slope = usage_per_session / p.lag_s
    assert gain == pytest.approx(1.0 / (slope * (p.closed_loop_s + p.delay_s)))
    assert integral_time_s == min(p.lag_s, 4 * (p.closed_loop_s + p.delay_s))
    assert gain * slope * p.delay_s < math.pi / 2, "gain margin"


def test_concur_pi_first_steps_are_those_of_a_positional_controller() -> None:
    """W_n = W_0 + K_p (e_n - e_0) + K_p / T_i * sum(e dt), worked out from outside."""
    plant = Plant(footprint=20_000)
    p = plant.policy.parameters
    gain, integral_time_s = plant.policy.tuning(0.02)
    errors: list[float] = []
    for number in (8, 9, 10, 12):
        plant.fill(number)
        before = plant.gate.window
        plant.now_s += 5.0
        plant.policy.adjust(plant.state, plant.backend, plant.gate, plant.now_s)
        errors.append(p.usage_target - number * 0.02)
        moved = plant.gate.window - before
        if len(errors) > 1:
            step = gain * (errors[-1] - errors[-2]) + gain / integral_time_s * 5.0 * errors[-1]
            assert moved == pytest.approx(step)


@pytest.mark.parametrize("footprint", [10_000, 30_000, 100_000])
def test_concur_pi_settles_at_the_set_point_without_lasting_overshoot(footprint: int) -> None:
    plant = Plant(footprint)
    seen = plant.run(1_200.0)
    share = footprint / CAPACITY
    assert all(abs(usage - 0.8) <= share + 1e-9 for usage in seen[-60:]), "to one session"
    assert max(seen) <= 0.8 + 2 * share + 0.05


def test_concur_pi_does_not_wind_up_in_quiet_times() -> None:
    plant = Plant(footprint=30_000)
    plant.run(3_600.0, waiting=3)
    assert plant.gate.window <= 9.0
    seen = plant.run(600.0)
    assert max(seen) <= 0.8 + 2 * 0.03


def test_concur_pi_whole_places_bind_although_the_window_is_fractional() -> None:
    """4 of 4.6 places taken is full: the window must still be able to grow."""
    plant = Plant(footprint=20_000)
    plant.gate.window = 4.6
    plant.run(600.0)
    assert plant.gate.window > 30.0


def test_concur_pi_shrinks_no_further_while_sessions_have_to_leave() -> None:
    plant = Plant(footprint=100_000)
    plant.gate.window = 9.5
    plant.fill(12)
    windows: list[float] = []
    for n in range(5):
        plant.policy.adjust(plant.state, plant.backend, plant.gate, 5.0 * n)
        windows.append(plant.gate.window)
    assert windows == [9.5] * 5


def test_concur_pi_counts_the_growth_that_is_on_its_way() -> None:
    still, growing = Plant(20_000), Plant(20_000)
    for plant, growth in ((still, 0), (growing, 500)):
        plant.fill(8)
        for n in range(60):
            for session in plant.gate.active.values():
                session.context_tokens = 20_000 + n * growth
            plant.policy.adjust(plant.state, plant.backend, plant.gate, 5.0 * n)
    errors = [plant.policy._memories["b0"].error for plant in (still, growing)]
    assert errors[0] == pytest.approx(0.8 - 8 * 0.02)
    # 8 sessions x 100 tokens/s x 20 s = 16,000 tokens of 1M.
    assert errors[1] == pytest.approx(0.8 - 8 * 0.02 - 0.016, rel=0.02)


def test_concur_pi_unknown_capacity_holds_nobody() -> None:
    d = EngineDriver(None, policy="concur-pi")
    calls = [d.ask(f"s{n}") for n in range(40)]
    d.idle(6.0)
    assert all(r in d.grants for r in calls)


def test_concur_pi_holds_by_occupancy_in_the_engine() -> None:
    """Twelve sessions of 30k on a pool of 200k: about 160k may be committed."""
    d = EngineDriver(200_000, policy="concur-pi")
    calls = {n: d.ask(f"s{n}", 30_000) for n in range(12)}
    for _ in range(60):
        for n in range(12):
            if calls[n] in d.engine.state.lease_by_request:
                d.done(calls[n], input_tokens=30_000, output_tokens=100, after_s=0.0)
                calls[n] = d.ask(f"s{n}", 30_000)
        d.idle(5.0)
    backend = d.engine.observe(d.now_s).backends[0]
    active = backend.num_seats
    assert 4 <= active <= 6
    assert len(d.held_ids()) == 12 - active
