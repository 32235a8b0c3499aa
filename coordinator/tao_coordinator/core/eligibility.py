"""Which backends may get a turn of a model: looked up once, then known until the fleet changes.

Every turn asks. On a thousand backends looking through them all would cost each turn a millisecond.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tao_coordinator.core.model import Backend

MODELS_MAX: Final = 256
"""Models remembered; callers name them, and no caller may fill the memory."""


class Eligible(NamedTuple):
    """The answer for one model."""

    backends: list[Backend]
    """Usable ones that serve it, in the fleet's order. Not to be changed."""
    pool_tokens_max: int | None
    """The largest of their pools; `None`: one is unknown and may hold anything, or there are
    none."""
    pool_tokens_min: int | None
    """The smallest of their known pools; `None`: none is known."""
    any_in_doubt: bool
    """Whether one of them missed its last poll."""

    def preferred(self, input_tokens: int) -> list[Backend]:
        """Of those that fit, the ones that answered their last poll; all, if none has.

        Calls that fail leave a dying backend empty: to every rule it then looks best, and would
        swallow who waits until it is given up.
        """
        fitting = self.fitting(input_tokens)
        if not self.any_in_doubt:
            return fitting
        return [b for b in fitting if not b.failures] or fitting

    def fitting(self, input_tokens: int) -> list[Backend]:
        """Those whose whole pool could hold such a prompt and a token of output; all, if none."""
        if self.pool_tokens_min is None or input_tokens < self.pool_tokens_min:
            return self.backends
        fitting = [
            b
            for b in self.backends
            if b.capacity_tokens is None or input_tokens < b.capacity_tokens
        ]
        return fitting or self.backends


class Eligibility:
    """Answers by model."""

    __slots__ = ("_backends", "_known")

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        """Look through `backends`, which change later."""
        self._backends = backends
        self._known: dict[str, Eligible] = {}

    def of(self, model: str) -> Eligible:
        """Backends for a turn of this model; empty: any."""
        found = self._known.get(model)
        if found is None:
            if len(self._known) >= MODELS_MAX:
                self._known.clear()
            found = self._known[model] = self._look(model)
        return found

    def fleet_changed(self) -> None:
        """A backend came, went, changed its health, its models or its pool, missed a poll."""
        self._known.clear()

    def check(self) -> None:
        """Assert that what is remembered is still so."""
        for model, found in self._known.items():
            assert found == self._look(model), f"the fleet for {model!r} has changed unnoticed"

    def _look(self, model: str) -> Eligible:
        backends = [b for b in self._backends.values() if b.usable and b.serves(model)]
        pools = [b.capacity_tokens for b in backends]
        known = [pool for pool in pools if pool is not None]
        is_known = known and len(known) == len(pools)
        return Eligible(
            backends,
            max(known) if is_known else None,
            min(known, default=None),
            any(b.failures for b in backends),
        )
