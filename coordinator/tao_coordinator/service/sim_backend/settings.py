"""What one modelled backend is started with."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.sim_backend.scripts import ScriptLibrary
from tao_coordinator.simulation.engine_constants import EngineConstants

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
WAITING_MAX: Final = 10_000
"""Requests in the engine at most; more are answered 503."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimBackendSettings:
    """Checked settings of one modelled backend."""

    constants: EngineConstants
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    capacity_tokens: int
    block_size: int = 16
    chars_per_token: Fraction = Fraction(4)
    time_scale: float = 1.0
    """Engine seconds per real second."""
    model: str
    context_tokens_max: int
    scripts: ScriptLibrary = field(default_factory=ScriptLibrary)
    body_bytes_max: int = BODY_BYTES_MAX

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"--port {self.port}: must be 0 to 65535")
        if self.block_size < 1:
            raise ConfigurationError(f"--block-size {self.block_size}: must be at least 1")
        if self.capacity_tokens < self.block_size:
            raise ConfigurationError(
                f"--capacity-tokens {self.capacity_tokens}: must hold at least one block"
            )
        if self.chars_per_token <= 0:
            raise ConfigurationError("--chars-per-token: must be above 0")
        if not (self.time_scale > 0 and math.isfinite(self.time_scale)):
            raise ConfigurationError(f"--time-scale {self.time_scale}: must be above 0")
        if not 2 <= self.context_tokens_max <= self.capacity_tokens:
            raise ConfigurationError(
                f"--context-tokens-max {self.context_tokens_max}: must be 2 or more and fit into"
                f" the KV pool of {self.capacity_tokens} tokens"
            )
        if not self.model.strip():
            raise ConfigurationError("--model: must not be blank")
