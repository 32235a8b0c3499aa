import pytest

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.scheduling.rivals.static_cap import StaticCap
from tao_coordinator.scheduling.rivals.tao_paper import TaoPaper
from tao_coordinator.scheduling.rivals.thunderagent import ThunderAgent
from tao_coordinator.scheduling.tao import Tao
from tao_coordinator.study.late_plans import LateTaoPaper
from tao_coordinator.study.oracle import Oracle
from tao_coordinator.study.policy_choice import PolicyChoice


@pytest.mark.parametrize(
    "text", ["tao", "tao-paper@0.9", "static-cap:sessions_max=12", "tao@0.8:growth_turns=0"]
)
def test_text_comes_back_as_it_was(text: str) -> None:
    assert PolicyChoice.parse(text).text == text


def test_options_reach_the_policy_or_the_engine() -> None:
    parameters, policy = PolicyChoice.parse("static-cap:sessions_max=12").build(Parameters())
    assert isinstance(policy, StaticCap)
    assert (policy.parameters.sessions_max, parameters) == (12, Parameters())
    parameters, policy = PolicyChoice.parse("tao:growth_turns=0,hold_soft_s=30").build(Parameters())
    assert policy.name == "tao"
    assert (parameters.growth_turns, parameters.hold_soft_s) == (0.0, 30.0)
    parameters, _ = PolicyChoice.parse("tao:hold_soft_s=500,hold_hard_s=600").build(Parameters())
    assert parameters.hold_hard_s == 600.0
    _, policy = PolicyChoice.parse("tao-paper:states_max=1").build(Parameters())
    assert isinstance(policy, TaoPaper) and policy.parameters.states_max == 1
    _, policy = PolicyChoice.parse("tao-paper:plan_s=0.5,quantum_tokens=512").build(Parameters())
    assert isinstance(policy, LateTaoPaper) and policy.parameters.quantum_tokens == 512
    _, policy = PolicyChoice.parse("tao:readiness=oracle").build(Parameters())
    assert isinstance(policy, Tao) and isinstance(policy.readiness, Oracle)
    _, policy = PolicyChoice.parse("thunderagent-decay").build(Parameters())
    assert isinstance(policy, ThunderAgent) and policy.parameters.uses_decay


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("best", "unknown policy 'best'; choose one of tao,"),
        ("tao@half", "'half' is no capacity scale"),
        ("tao@0", "between 0.05 and 20"),
        ("tao@nan", "between 0.05 and 20"),
        ("tao:growth_turns", "key=value"),
        ("tao:speed=9", "tao has no option 'speed'"),
        ("tao:growth_turns=many", "could not convert"),
        ("static-cap:sessions_max=0", "at least 1"),
        ("tao:tenant_weights=1", "cannot be set here"),
        ("tao:placement=magic", "placement is one of joint,"),
        ("tao:readiness=tarot", "readiness is history or oracle"),
        ("tao-paper:readiness=none", "readiness is history or oracle"),
        ("tao-paper:plan_s=-1", "plan_s is between 0 and 3600"),
        ("tao-paper:quantum_tokens=0", "at least 1"),
    ],
)
def test_rubbish_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PolicyChoice.parse(text)
