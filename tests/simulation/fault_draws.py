"""What one seed of the faulty world draws: its clients and its rates of faults."""

import random
from dataclasses import dataclass


@dataclass(slots=True)
class Client:
    """One agent: asks, runs, uses a tool, asks again, until it is done or gone."""

    name: str
    session_id: str
    """Usually its own; the same as another's where an agent calls in parallel."""
    tenant: str
    turns_left: int
    context_tokens: int
    turn: int = 0
    request_id: str = ""
    lease_id: str | None = None
    backend_id: str = ""
    gone: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Faults:
    """Rates of one seed."""

    p_lost: float
    p_duplicate: float
    p_late: float
    p_vanish: float
    p_error: float
    p_parallel: float
    backend_life_s: float
    p_clock_step: float
    p_restart: float

    @staticmethod
    def draw(chance: random.Random) -> "Faults":
        """Each fault is absent, rare or frequent."""

        def rate(highest: float) -> float:
            return chance.choice([0.0, highest / 4, highest])

        return Faults(
            p_lost=rate(0.2),
            p_duplicate=rate(0.3),
            p_late=rate(0.3),
            p_vanish=rate(0.05),
            p_error=rate(0.2),
            p_parallel=rate(0.4),
            backend_life_s=chance.choice([50.0, 500.0, 1e9]),
            p_clock_step=rate(0.02),
            p_restart=rate(0.01),
        )
