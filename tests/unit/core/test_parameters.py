"""The constants are checked at the door and scaled together."""

from dataclasses import replace

import pytest

from tao_coordinator.core.parameters import Parameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget_ratio": 1.6}, "budget_ratio"),
        ({"budget_ratio": 0.0}, "budget_ratio"),
        ({"forced_share": 1.1}, "forced_share"),
        ({"released_weight": -0.1}, "released_weight"),
        ({"queue_limit": 0}, "queue_limit"),
        ({"hold_hard_s": 10.0}, "hold_hard_s"),
        ({"refill_s_max": 1.0}, "refill_s_max"),
        ({"tick_s": float("nan")}, "tick_s"),
        ({"capacity_factor_max": 0.9}, "capacity_factor"),
        ({"tenant_weights": (("a", 0.0),)}, "tenant 'a'"),
    ],
)
def test_parameters_refuse_nonsense(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Parameters(), **change)  # pyright: ignore[reportArgumentType]


def test_parameters_allow_switching_parts_off() -> None:
    off = replace(Parameters(), released_weight=0.0, growth_turns=0.0, overtake_limit=0)
    assert off.growth_turns == 0.0


def test_scaling_divides_engine_times_and_leaves_the_protocol_alone() -> None:
    fast = Parameters().scaled(10.0)
    assert (fast.hold_soft_s, fast.hold_hard_s, fast.refill_s_prior) == (6.0, 12.0, 6.0)
    assert fast.release_grace_s == pytest.approx(0.1)
    assert (fast.start_within_s, fast.poll_grace_s, fast.lease_silence_s) == (5.0, 20.0, 60.0)


def test_scaling_refuses_zero() -> None:
    with pytest.raises(ValueError, match="time_scale"):
        Parameters().scaled(0.0)
