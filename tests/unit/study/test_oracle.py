from tao_coordinator.core.events import TurnRequested
from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript
from tao_coordinator.study.oracle import Oracle

TOOLS = (
    ToolScript(name="bash", duration_s=4.0),
    ToolScript(name="grep", offset_s=1.0, duration_s=0.5),
    ToolScript(name="server", duration_s=99.0, background=True),
)
SCRIPT = SessionScript(
    session_id="s",
    turns=(
        TurnScript(input_tokens=9, output_tokens=1, tools=TOOLS, gap_s=2.0),
        TurnScript(input_tokens=9, output_tokens=1, gap_s=7.0),
    ),
)


def asked(turn: int, attempt: int = 0) -> TurnRequested:
    return TurnRequested(request_id=f"s/{turn}.{attempt}", session_id="s", input_tokens=9)


def test_it_knows_when_each_session_comes_back_and_each_call_ends() -> None:
    oracle = Oracle([SCRIPT])
    oracle.observe(asked(0), 0.0)
    assert oracle.remaining("s", 1.0).median_s == 0.0  # it is here
    oracle.turn_ended("s", 10.0)
    assert oracle.remaining("s", 10.0).median_s == 6.0
    assert oracle.remaining("s", 13.0, call_id="1.0").median_s == 1.0
    assert oracle.remaining("s", 11.0, call_id="1.1").median_s == 0.5
    answer = oracle.remaining("s", 15.5)
    assert (answer.p_ready_by(0.4), answer.p_ready_by(0.6)) == (0.0, 1.0)
    oracle.observe(asked(1, attempt=2), 16.0)
    oracle.turn_ended("s", 20.0)
    assert oracle.remaining("s", 21.0).median_s == 6.0


def test_of_strangers_and_the_gone_it_knows_nothing() -> None:
    oracle = Oracle([SCRIPT])
    oracle.turn_ended("x", 1.0)
    assert oracle.remaining("x", 2.0).median_s == 0.0
    oracle.observe(asked(0), 0.0)
    oracle.turn_ended("s", 1.0)
    oracle.forget("s")
    assert oracle.remaining("s", 2.0).median_s == 0.0
