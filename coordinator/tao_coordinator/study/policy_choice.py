"""One arm of a comparison: a policy, with its capacity scale and settings, as text and as object.

Text form: `NAME[@SCALE][:key=value[,key=value...]]`, for example `tao-paper@0.9` or
`static-cap:sessions_max=12`. Keys are fields of the policy's own parameters, or of `Parameters`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.prediction.predictor import PREDICTORS
from tao_coordinator.scheduling import catalogue
from tao_coordinator.scheduling.policy import Policy
from tao_coordinator.scheduling.rivals import grid_decision
from tao_coordinator.scheduling.rivals.concur_aimd import ConcurAimd, ConcurAimdParameters
from tao_coordinator.scheduling.rivals.concur_pi import ConcurPi, ConcurPiParameters
from tao_coordinator.scheduling.rivals.static_cap import StaticCap, StaticCapParameters
from tao_coordinator.scheduling.rivals.tao_paper import (
    TaoPaper,
    TaoPaperParameters,
    published_readiness,
)
from tao_coordinator.scheduling.rivals.thunderagent import ThunderAgent, ThunderAgentParameters
from tao_coordinator.scheduling.tao import LOOP_PAIRS_MAX, Tao
from tao_coordinator.simulation.agent_script import SessionScript
from tao_coordinator.study.late_plans import LateTaoPaper, WatchedTao
from tao_coordinator.study.oracle import Oracle
from tao_coordinator.study.placement_arms import PLACEMENTS
from tao_coordinator.study.watches.watch import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a policy of a simulated run is given beside its settings."""

    sessions: Sequence[SessionScript] = ()
    """For oracles."""
    watch: Watch = field(default_factory=Watch)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaoSettings:
    """What a comparison may change about the default policy beside `Parameters`."""

    placement: str = "joint"
    """One of `placement_arms.PLACEMENTS`."""
    readiness: str = "history"
    """`history`, or `oracle`: knows the simulated sessions' future."""

    def __post_init__(self) -> None:
        """Refuse unknown ones."""
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement is one of {', '.join(PLACEMENTS)}")
        _check_readiness(self.readiness)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaoPaperSettings(TaoPaperParameters):
    """The published constants, and what a comparison may change beside them."""

    readiness: str = "history"
    """`history`, or `oracle`: knows the simulated sessions' future."""
    plan_s: float | None = None
    """Seconds from a snapshot until its plan is carried out; `None`: it meets the state that it was
    made for."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        TaoPaperParameters.__post_init__(self)
        _check_readiness(self.readiness)
        if self.plan_s is not None and not 0.0 <= self.plan_s <= 3600.0:
            raise ValueError("plan_s is between 0 and 3600")


def _check_readiness(name: str) -> None:
    if name not in ("history", "oracle"):
        raise ValueError("readiness is history or oracle")


def _tao(parameters: Parameters, own: TaoSettings, scene: Scene) -> Policy:
    is_oracle = own.readiness == "oracle"
    predictor = Oracle(scene.sessions) if is_oracle else PREDICTORS["hazard"]()
    predictor = scene.watch.readiness(predictor)
    if scene.watch.hears_late_plans:
        return WatchedTao(predictor, scene.watch.late)
    in_step = own.placement != "joint" or scene.watch.sees_plans
    place = scene.watch.place(PLACEMENTS[own.placement])
    return Tao(predictor, loop_pairs_max=None if in_step else LOOP_PAIRS_MAX, place=place)


def _tao_paper(parameters: Parameters, own: TaoPaperSettings, scene: Scene) -> Policy:
    is_oracle = own.readiness == "oracle"
    predictor = Oracle(scene.sessions) if is_oracle else published_readiness(parameters)
    predictor = scene.watch.readiness(predictor)
    decide = scene.watch.decide(grid_decision.decide)
    if own.plan_s is None:
        return TaoPaper(predictor, own, decide)
    return LateTaoPaper(predictor, own, decide, plan_s=own.plan_s, told=scene.watch.late)


_OWN: Final[dict[str, tuple[Any, Callable[[Parameters, Any, Scene], Policy]]]] = {
    "tao": (TaoSettings(), _tao),
    "static-cap": (StaticCapParameters(), lambda _, own, __: StaticCap(own)),
    "thunderagent": (ThunderAgentParameters(), lambda _, own, __: ThunderAgent(own)),
    "thunderagent-decay": (
        ThunderAgentParameters(uses_decay=True),
        lambda _, own, __: ThunderAgent(own),
    ),
    "concur-aimd": (ConcurAimdParameters(), lambda _, own, __: ConcurAimd(own)),
    "concur-pi": (ConcurPiParameters(), lambda _, own, __: ConcurPi(own)),
    "tao-paper": (TaoPaperSettings(), _tao_paper),
}
"""Policies with parameters of their own: the defaults, and how to make one."""


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy and how it is set."""

    name: str
    capacity_scale: float = 1.0
    options: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def parse(text: str) -> "PolicyChoice":
        """Read the text form.

        Raises:
            ConfigurationError: unknown policy or option, or a value that makes no sense.
        """
        head, _, tail = text.partition(":")
        name, _, scale = head.partition("@")
        if name not in catalogue.POLICIES:
            known = ", ".join(catalogue.POLICIES)
            raise ConfigurationError(f"unknown policy {name!r}; choose one of {known}")
        try:
            capacity_scale = float(scale) if scale else 1.0
        except ValueError:
            raise ConfigurationError(f"{text!r}: {scale!r} is no capacity scale") from None
        if not 0.05 <= capacity_scale <= 20.0:
            raise ConfigurationError(f"{text!r}: a capacity scale is between 0.05 and 20")
        pairs = [pair.partition("=") for pair in tail.split(",")] if tail else []
        if any(not middle for _, middle, _ in pairs):
            raise ConfigurationError(f"{text!r}: options are key=value, separated by commas")
        choice = PolicyChoice(
            name, capacity_scale, tuple((key.strip(), value.strip()) for key, _, value in pairs)
        )
        choice.build(Parameters())
        return choice

    @property
    def text(self) -> str:
        """What `parse` reads."""
        scale = "" if self.capacity_scale == 1.0 else f"@{self.capacity_scale:g}"
        options = ",".join(f"{key}={value}" for key, value in self.options)
        return f"{self.name}{scale}" + (f":{options}" if options else "")

    def build(
        self, parameters: Parameters, scene: Scene | None = None
    ) -> tuple[Parameters, Policy]:
        """The engine's parameters and the policy to give it.

        Args:
            parameters: to start from.
            scene: of a run; without one an oracle knows nobody.

        Raises:
            ConfigurationError: unknown option, or a value that makes no sense.
        """
        own, make = _OWN.get(self.name, (None, None))
        changes: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
        try:
            for key, value in self.options:
                is_own = own is not None and _has(own, key)
                target = own if is_own else parameters
                if not _has(target, key):
                    raise ConfigurationError(f"{self.name} has no option {key!r}")
                changes[is_own][key] = _typed(getattr(target, key), value)
            # All at once: one may only make sense beside another.
            parameters = replace(parameters, **changes[False])
            own = None if own is None else replace(own, **changes[True])
        except ConfigurationError:
            raise
        except ValueError as error:
            raise ConfigurationError(f"{self.text}: {error}") from error
        if make is None:
            return parameters, catalogue.make(self.name, parameters)
        return parameters, make(parameters, own, scene or Scene())


def _has(target: Any, key: str) -> bool:
    return any(item.name == key for item in fields(target))


def _typed(present: object, text: str) -> object:
    if isinstance(present, bool):
        return text.lower() in ("1", "true", "yes")
    if isinstance(present, int):
        return int(text)
    if isinstance(present, float) or present is None:
        return float(text)
    if isinstance(present, str):
        return text
    raise ValueError("this option cannot be set here")
