"""What a search knows so far: the best plan, and a bound on every plan."""

import numpy as np

from tao_coordinator.scheduling.placement.packing import PackedProblem
from tao_coordinator.scheduling.placement.plan import Certificate, Rung
from tao_coordinator.scheduling.placement.problem import Int64, Objective


class Incumbent:
    """Best plan and bound; the plan only gets better, the bound only falls."""

    __slots__ = ("backend_of", "bound", "objective", "packed", "rung", "value")

    def __init__(self, packed: PackedProblem) -> None:
        self.packed = packed
        self.backend_of: Int64 = np.full(packed.source.num_sessions, -1, np.int64)
        self.objective = Objective(0, 0, 0, 0, 0)
        self.value = 0
        """Packed value of the best plan."""
        self.rung = Rung.TRIVIAL
        self.bound = packed.value_max
        """Packed upper bound on every plan."""

    def offer(self, backend_of: Int64, rung: Rung) -> None:
        """Take the plan if it is better."""
        value = self.packed.pairs.value_of(backend_of)
        if self.packed.tokens_shift == 0 and value <= self.value:
            return
        objective = self.packed.objective_of(backend_of)
        if objective > self.objective:
            self.backend_of, self.objective = backend_of, objective
            self.value, self.rung = value, rung

    def limit(self, bound: int) -> None:
        """Take the bound if it is lower."""
        self.bound = min(self.bound, bound)

    @property
    def closed(self) -> bool:
        """Whether the plan is proved optimal, as far as packed values tell plans apart."""
        return self.bound <= self.value

    def proved(self, unit: int) -> bool:
        """Whether the coordinates down to the one with this packed unit are proved."""
        return self.bound // unit <= self.value // unit

    def certificate(self) -> Certificate:
        """What is proved."""
        bound = self.packed.bound_vector(max(self.bound, self.value))
        return Certificate.of(self.objective, bound)
