"""Every policy by the name under which it is chosen."""

from collections.abc import Callable

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.prediction.predictor import PREDICTORS
from tao_coordinator.scheduling.policy import Policy
from tao_coordinator.scheduling.rivals.cache_aware import CacheAware
from tao_coordinator.scheduling.rivals.concur_aimd import ConcurAimd
from tao_coordinator.scheduling.rivals.concur_pi import ConcurPi
from tao_coordinator.scheduling.rivals.dynamo_cost import DynamoCost
from tao_coordinator.scheduling.rivals.round_robin import RoundRobin
from tao_coordinator.scheduling.rivals.static_cap import StaticCap
from tao_coordinator.scheduling.rivals.sticky_least_loaded import StickyLeastLoaded
from tao_coordinator.scheduling.rivals.tao_paper import TaoPaper, published_readiness
from tao_coordinator.scheduling.rivals.thunderagent import ThunderAgent, ThunderAgentParameters
from tao_coordinator.scheduling.tao import LOOP_PAIRS_MAX, Tao

_MAKERS: dict[str, Callable[[Parameters], Policy]] = {
    "tao-paper": lambda parameters: TaoPaper(published_readiness(parameters)),
    "round-robin": lambda _: RoundRobin(),
    "sticky-least-loaded": lambda _: StickyLeastLoaded(),
    "cache-aware": lambda _: CacheAware(),
    "dynamo-cost": lambda _: DynamoCost(),
    "static-cap": lambda _: StaticCap(),
    "thunderagent": lambda _: ThunderAgent(),
    "thunderagent-decay": lambda _: ThunderAgent(ThunderAgentParameters(uses_decay=True)),
    "concur-aimd": lambda _: ConcurAimd(),
    "concur-pi": lambda _: ConcurPi(),
}
POLICIES: tuple[str, ...] = ("tao", *_MAKERS)
"""The default policy first."""


def make(name: str, parameters: Parameters, *, makes_plans_aside: bool = False) -> Policy:
    """The policy of this name with its published parameters, and its predictor if it has one.

    Args:
        name: one of `POLICIES`.
        parameters: constants of the decision.
        makes_plans_aside: large plans may be asked for, and answered later.

    Raises:
        ValueError: unknown name.
    """
    if name == "tao":
        limit = LOOP_PAIRS_MAX if makes_plans_aside else None
        return Tao(PREDICTORS["hazard"](), loop_pairs_max=limit)
    if name not in _MAKERS:
        raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(POLICIES)}")
    return _MAKERS[name](parameters)
