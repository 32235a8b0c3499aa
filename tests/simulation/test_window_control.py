"""The two controllers on a window of sessions, `concur-pi` and `concur-aimd`, under disturbances.

What they do with a true report, a false one, a surge and lost sensors; the bands are measured ones,
wide, and stated in docs/scheduling.md.
"""

from functools import cache
from itertools import pairwise
from statistics import mean

import pytest
from control_world import POOL, Action, ControlWorld, coding_agents
from fleet_world import many_small_steps

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.scheduling.rivals.session_window import SessionWindows

PARAMETERS = Parameters(new_wait_s_max=1e6)
NUM_WORKERS = 17


def committed_ratio(w: ControlWorld) -> float:
    """Seats, idle ones included, over the true pool."""
    return w.engine.state.backends["b0"].committed_tokens / POOL


def window(w: ControlWorld) -> float:
    policy = w.engine.policy
    assert isinstance(policy, SessionWindows)
    gate = policy.gates.get("b0")
    return 8.0 if gate is None else gate.window


def pi_world(told: float = 1.0, script: dict[float, Action] | None = None) -> ControlWorld:
    w = ControlWorld(
        "concur-pi",
        coding_agents(50, seed=1),
        [POOL],
        num_workers=NUM_WORKERS,
        told_pools=[int(told * POOL)],
        script=script,
        watch=committed_ratio,
        parameters=PARAMETERS,
    )
    w.run()
    return w


@cache
def true_report() -> ControlWorld:
    return pi_world()


def test_concur_pi_keeps_occupancy_in_its_band() -> None:
    """0.8 is the set-point; sessions come and go whole, a dozen of them make a pool."""
    seen = true_report().watched_between(300.0, 0.8 * true_report().now_s)
    assert mean(seen) == pytest.approx(0.8, abs=0.1)
    assert max(seen) <= 1.15
    assert true_report().outcome.hit_rate > 0.9


def test_concur_pi_believes_what_the_engine_reports() -> None:
    """Its set-point is a share of the reported pool: it holds what it was told, true or not."""
    for told in (0.7, 1.3):
        w = pi_world(told)
        seen = w.watched_between(300.0, 0.8 * w.now_s)
        assert mean(seen) == pytest.approx(0.8 * told, abs=0.13)
        if told > 1.0:
            assert w.outcome.mean_task_s > 1.3 * true_report().outcome.mean_task_s


def test_concur_pi_does_not_need_cached_tokens() -> None:
    def mute(w: ControlWorld) -> None:
        w.reports_cached = False

    w = pi_world(script={500.0: mute})
    assert [repr(item) for item in w.log] == [repr(item) for item in true_report().log]


def test_concur_pi_recovers_from_a_cancelled_surge() -> None:
    def surge(w: ControlWorld) -> None:
        sessions = coding_agents(20, seed=9)
        for session in sessions:
            session.name, session.starts_s = f"x{session.name}", 0.0
        w.arrive(sessions)

    w = ControlWorld(
        "concur-pi",
        coding_agents(40, seed=1),
        [POOL],
        num_workers=9,
        script={400.0: surge, 700.0: lambda w: w.cancel("x")},
        watch=committed_ratio,
        parameters=PARAMETERS,
    )
    w.run()
    seen = w.watched_between(1_200.0, 0.85 * w.now_s)
    assert max(seen) <= 1.15
    assert mean(seen) == pytest.approx(0.8, abs=0.15)


class WithoutSharedPrompt(ControlWorld):
    """All prompts are private: the hit rate falls where caches are lost."""

    shared_prefix_tokens = 0


@cache
def sawtooth(mute_s: float | None) -> ControlWorld:
    def mute(w: ControlWorld) -> None:
        w.reports_cached = False

    w = WithoutSharedPrompt(
        "concur-aimd",
        many_small_steps(40, 1, shared_tokens=12_000),
        [POOL],
        num_workers=NUM_WORKERS,
        script={} if mute_s is None else {mute_s: mute},
        watch=window,
        parameters=PARAMETERS,
    )
    w.run()
    return w


def test_concur_aimd_is_a_sawtooth() -> None:
    """It cuts after the collapse, not before, and climbs again."""
    seen = [value for _, value in sawtooth(None).watched]
    cuts = [n for n in range(1, len(seen)) if seen[n] < seen[n - 1]]
    assert len(cuts) >= 3
    assert all(seen[n] <= max(1.0, seen[n - 1] / 2) for n in cuts)
    assert any(seen[n] > seen[n - 1] for n in range(cuts[0], len(seen)))


def test_concur_aimd_unknown_hits_are_no_cut() -> None:
    """Sensor lost before its first cut: its hit rate is unknown, not zero."""
    seen = sawtooth(None).watched
    first_cut_s = next(t for (_, before), (t, after) in pairwise(seen) if after < before)
    w = sawtooth(first_cut_s - 120.0)
    later = w.watched_between(first_cut_s, w.now_s)
    assert later == sorted(later)
