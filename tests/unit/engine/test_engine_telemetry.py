"""Tool and session events: what they tell the engine, in whatever order they come."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.events import (
    LeaseReleased,
    SessionDeadlineSet,
    SessionHeartbeat,
    SessionStarted,
    SessionWaiting,
    ToolProgressed,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.prediction.remaining import Remaining, Source


def phase(d: EngineDriver) -> str:
    return d.engine.observe(d.now_s).sessions[0].phase


def test_phase_is_derived_from_calls_and_tools() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s")
    assert phase(d) == "inference"
    d.done(request_id)
    assert phase(d) == "idle"
    d.tool("s")
    assert phase(d) == "tool"
    d.tool_end("s")
    assert phase(d) == "idle"
    d.step(SessionWaiting(session_id="s", reason="approval"))
    assert phase(d) == "wait"


def test_held_session_says_so() -> None:
    d = EngineDriver(40_000)
    d.ask("s1")
    d.ask("s2")
    assert [s.phase for s in d.engine.observe(d.now_s).sessions] == ["inference", "held"]


def test_second_start_of_an_open_call_is_ignored() -> None:
    d = EngineDriver(100_000)
    d.tool("s", timeout_s=10.0)
    d.step(after_s=8.0)
    d.tool("s", timeout_s=10.0)
    d.step(after_s=3.0)
    assert d.engine.observe(d.now_s).sessions[0].open_tool_calls == ()
    assert d.engine.observe(d.now_s).counters.tool_starts == 1


def test_end_without_start_is_only_history() -> None:
    d = EngineDriver(100_000)
    d.tool_end("s", "never started")
    assert d.engine.observe(d.now_s).counters.tool_ends == 0


def test_call_ids_repeat_across_sessions() -> None:
    d = EngineDriver(100_000)
    d.tool("s1", "call_0")
    d.tool("s2", "call_0")
    d.tool_end("s1", "call_0")
    open_calls = {s.session_id: s.open_tool_calls for s in d.engine.observe(d.now_s).sessions}
    assert open_calls == {"s1": (), "s2": ("call_0",)}


def test_lost_end_expires_at_the_time_out() -> None:
    d = EngineDriver(100_000)
    d.tool("s", timeout_s=30.0)
    d.step(after_s=29.0)
    assert phase(d) == "tool"
    d.step(after_s=2.0)
    assert phase(d) == "idle"
    assert d.engine.observe(d.now_s).counters.tools_expired == 1


def test_heartbeat_closes_calls_whose_end_was_lost() -> None:
    d = EngineDriver(100_000)
    d.tool("s", "a")
    d.tool("s", "b")
    d.step(SessionHeartbeat(session_id="s", open_call_ids=("b", "unknown")))
    assert d.engine.observe(d.now_s).sessions[0].open_tool_calls == ("b",)


def test_open_calls_per_session_are_bounded() -> None:
    d = EngineDriver(100_000)
    for n in range(300):
        d.tool("s", f"c{n}")
    assert len(d.engine.observe(d.now_s).sessions[0].open_tool_calls) == 256


# What the engine passes on to the predictor; what that makes of it is tested with the predictors.


def remaining(d: EngineDriver, session_id: str = "s") -> Remaining:
    return d.engine.readiness.remaining(session_id, d.now_s)


def test_announced_end_reaches_the_predictor() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.tool("s", remaining_s=12.0)
    d.step(after_s=5.0)
    assert remaining(d).median_s == pytest.approx(7.0, rel=0.2)


def test_progress_reaches_the_predictor() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.tool("s")
    d.step(ToolProgressed(session_id="s", call_id="c", ratio=0.25), after_s=10.0)
    assert remaining(d).source is Source.PROGRESS
    assert remaining(d).median_s == pytest.approx(30.0, rel=0.4)


def test_deadline_and_wait_reach_the_predictor() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.step(SessionDeadlineSet(session_id="s", remaining_s=40.0))
    assert remaining(d).median_s == pytest.approx(40.0, rel=0.2)
    d.turn("t")
    d.step(SessionWaiting(session_id="t", reason="user_input", expected_duration_s=90.0))
    assert remaining(d, "t").median_s == pytest.approx(90.0, rel=0.4)


def test_background_call_is_not_waited_for() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.tool("s", background=True, remaining_s=500.0)
    assert remaining(d).median_s < 100.0
    assert phase(d) == "idle"


def test_running_turn_is_known_to_the_predictor_and_so_is_its_end() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s")
    assert remaining(d).source is Source.TURN
    d.done(request_id)
    assert remaining(d).source is not Source.TURN


def test_lost_lease_ends_the_turn_for_the_predictor_too() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.ask("s")
    d.step(after_s=6.0)
    assert remaining(d).source is not Source.TURN


def test_release_and_next_request_in_one_step_are_taken_in_order() -> None:
    d = EngineDriver(100_000)
    first = d.ask("s")
    released = LeaseReleased(lease_id=d.grants[first].lease_id, input_tokens=10_000)
    d.step(released, TurnRequested(request_id="r2", session_id="s", input_tokens=10_100))
    assert d.reason_of("r2") == "resident"
    assert remaining(d).source is Source.TURN


def test_session_start_carries_the_priority() -> None:
    d = EngineDriver(100_000)
    d.step(SessionStarted(session_id="s", priority=3))
    d.step(SessionStarted(session_id="s", priority=5))
    assert [s.priority for s in d.engine.state.sessions.values()] == [5]


def test_first_turn_completes_what_the_start_event_left_open() -> None:
    """The SDK announces a session before it knows its model; there must be one session, not two."""
    d = EngineDriver(100_000)
    d.step(SessionStarted(session_id="s", agent="coder"))
    d.ask("s", agent="coder", model="m", tenant="acme", root_session_id="r", parent_session_id="p")
    (session,) = d.engine.state.sessions.values()
    assert (session.key.model, session.tenant) == ("m", "acme")
    assert (session.root_id, session.parent_id) == ("r", "p")


@pytest.mark.parametrize("agent", ["coder", ""])
def test_start_event_that_its_first_turn_overtook_makes_no_second_session(agent: str) -> None:
    """Events travel beside the turns; nobody promises their order."""
    d = EngineDriver(100_000)
    d.ask("s", agent="coder", model="m")
    d.step(SessionStarted(session_id="s", agent=agent, root_session_id="r", priority=3))
    (session,) = d.engine.state.sessions.values()
    assert (session.key.model, session.root_id, session.priority) == ("m", "r", 3)
    d.step(SessionStarted(session_id="s", agent="title", priority=1))
    assert [s.priority for s in d.engine.state.sessions.values()] == [3, 1]


def test_late_start_event_does_not_bring_a_session_back_that_is_over() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s", model="m")
    d.end("s")
    d.step(SessionStarted(session_id="s"))
    d.done(request_id)
    assert d.engine.observe(d.now_s).sessions == ()


def test_end_of_a_tool_of_nobody_makes_no_session() -> None:
    d = EngineDriver(100_000)
    d.tool_end("gone")
    assert d.engine.observe(d.now_s).sessions == ()


def test_turn_ends_a_wait() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.step(SessionWaiting(session_id="s", reason="approval"))
    d.turn("s")
    assert phase(d) == "idle"


def test_session_in_a_long_tool_is_not_forgotten() -> None:
    d = EngineDriver(100_000, parameters=Parameters(seat_idle_s_max=100.0))
    d.turn("s")
    d.tool("s", timeout_s=500.0)
    d.idle(400.0)
    assert len(d.engine.observe(d.now_s).sessions) == 1
    d.idle(300.0)
    assert d.engine.observe(d.now_s).sessions == ()
