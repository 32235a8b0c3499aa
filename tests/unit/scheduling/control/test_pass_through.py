"""The gate for traffic without reuse, alone and in the engine."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.scheduling.control.pass_through import is_open


@pytest.mark.parametrize(
    ("was_open", "p_continues", "quality", "expected"),
    [
        (False, 0.97, 1.0, False),
        (False, 0.49, 1.0, True),
        (False, 0.97, 0.19, True),
        (False, 0.55, 0.3, False),
        (True, 0.55, 1.0, True),
        (True, 0.97, 0.3, True),
        (True, 0.65, 0.4, False),
        (True, 0.85, 0.9, False),
    ],
)
def test_gate_has_two_thresholds_per_reason(
    was_open: bool, p_continues: float, quality: float, expected: bool
) -> None:
    assert is_open(was_open, p_continues, quality) is expected


def single_calls(d: EngineDriver, number: int) -> None:
    for n in range(number):
        request_id = d.ask(f"single {d.now_s} {n}", 1_000)
        d.done(request_id, input_tokens=1_000, after_s=1.0)
        d.end(d.engine.observe(d.now_s).sessions[-1].session_id)


def test_single_calls_open_the_gate_and_then_nobody_is_held() -> None:
    d = EngineDriver(40_000, 40_000)
    single_calls(d, 400)
    assert d.engine.observe(d.now_s).passes_through
    granted = [d.ask(f"s{n}", 15_000) for n in range(20)]
    assert {d.reason_of(r) for r in granted} == {"pass-through"}
    assert {d.backend_of(r) for r in granted} == {"b0", "b1"}


def test_gate_closes_when_sessions_continue_again() -> None:
    d = EngineDriver(400_000)
    single_calls(d, 400)
    for _ in range(200):
        d.turn("long", 5_000)
    d.idle(1.5)
    assert not d.engine.observe(d.now_s).passes_through


def test_held_turns_go_when_the_gate_opens() -> None:
    d = EngineDriver(40_000)
    d.ask("hog", 20_000)
    held = d.ask("waiting", 20_000)
    d.engine.state.typical.p_continues = 0.1
    d.idle(1.5)
    assert d.reason_of(held) == "pass-through"


def test_session_that_is_resident_passes_through_to_its_home() -> None:
    d = EngineDriver(400_000, 400_000)
    home = d.turn("s", 5_000)
    d.engine.state.typical.p_continues = 0.1
    d.idle(1.5)
    d.ask("other", 300_000)
    assert d.backend_of(d.ask("s", 5_200)) == home


def test_held_turns_that_go_when_the_gate_opens_spread_over_the_backends() -> None:
    d = EngineDriver(40_000, 40_000)
    d.ask("hog 0", 20_000)
    d.ask("hog 1", 20_000)
    held = [d.ask(f"waiting {n}", 20_000) for n in range(6)]
    d.engine.state.typical.p_continues = 0.1
    d.idle(1.5)
    assert sorted(d.backend_of(r) for r in held) == ["b0"] * 3 + ["b1"] * 3


def test_prompt_passes_through_to_a_backend_that_can_hold_it() -> None:
    """Least is in flight where it would be refused for good."""
    d = EngineDriver(40_000, 400_000)
    d.ask("hog", 200_000)
    d.engine.state.typical.passes_through = True
    request_id = d.ask("long", 100_000)
    assert (d.backend_of(request_id), d.reason_of(request_id)) == ("b1", "pass-through")
