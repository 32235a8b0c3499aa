"""The answer: a feasible placement, and how far from the optimum it can be at most.

*Certificate.* `z` is the plan's objective, `U` an upper bound on every feasible plan's, both
vectors, compared lexicographically. With `c` the first coordinate in which they differ:

- coordinates before `c` are *proved* optimal: no plan has a larger leading part;
- coordinate `c` is *open*: no plan with the same leading part exceeds `U_c`; its relative gap is
  `(U_c - z_c) / max(1, U_c)`;
- nothing is claimed about coordinates after `c`.

If `U = z` the whole vector is optimal.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tao_coordinator.scheduling.placement.problem import AnyPlacementProblem, Int64, Objective


class Rung(IntEnum):
    """Steps of the ladder, in order; a later one never returns a worse plan."""

    TRIVIAL = 0
    """Every session on its best backend."""
    LOCAL_RATIO = 1
    """Cohen-Katz-Raz with improving passes."""
    STAGE_FILL = 2
    """Credit first, then the rest packed class by class."""
    PRICES = 3
    """Lagrangian prices on sessions: repaired plans, and the bound."""
    LABELS = 4
    """Search over reachable residual budgets under that bound."""
    NEIGHBOURHOOD = 5
    """The same search on a few backends at a time."""
    GRID = 6
    """Not of the ladder: the published dynamic programme (`dense_grid`)."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proved about a plan (module header)."""

    bound: tuple[int, ...]
    """Upper bounds of the proved coordinates and of the first open one."""
    num_proved: int
    """Leading coordinates proved optimal, 0-5."""
    gap: float
    """Relative gap of the first open coordinate; 0.0 where none is open."""

    @property
    def is_optimal(self) -> bool:
        """Whether the whole objective is proved."""
        return self.num_proved == len(Objective._fields)

    @staticmethod
    def of(objective: Objective, bound: Objective) -> "Certificate":
        """Compare a plan's objective with a bound on all plans."""
        for c, (reached, limit) in enumerate(zip(objective, bound, strict=True)):
            if reached != limit:
                assert reached < limit, f"bound {bound} below objective {objective}"
                return Certificate(bound[: c + 1], c, (limit - reached) / max(1, limit))
        return Certificate(tuple(bound), len(bound), 0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A feasible placement."""

    backend_of: Int64
    """[n] backend index per session; -1 = waits."""
    objective: Objective
    certificate: Certificate
    rung: Rung
    """Where this placement was found."""
    work: int
    """Work units spent (`effort`)."""
    elapsed_s: float | None = None
    """Seconds, if the effort carried a clock."""

    def check(self, problem: AnyPlacementProblem) -> None:
        """Assert feasibility, the objective, and that the bound is not below it."""
        check_feasible(problem, self.backend_of)
        assert objective_of(problem, self.backend_of) == self.objective
        assert self.certificate.bound >= self.objective[: len(self.certificate.bound)]


def objective_of(problem: AnyPlacementProblem, backend_of: Int64) -> Objective:
    """Exact sums over the placed sessions."""
    placed = (backend_of >= 0).nonzero()[0]
    return Objective(
        int(problem.classes[placed].sum()),
        int(problem.pair_credits(placed, backend_of[placed]).sum()),
        int(problem.ready[placed].sum()),
        int(problem.tokens[placed].sum()),
        len(placed),
    )


def check_feasible(problem: AnyPlacementProblem, backend_of: Int64) -> None:
    """Assert one eligible backend each, budgets and session limits kept."""
    m = problem.num_backends
    assert backend_of.shape == (problem.num_sessions,), "not one entry per session"
    assert ((backend_of >= -1) & (backend_of < m)).all(), "no such backend"
    placed = (backend_of >= 0).nonzero()[0]
    where = backend_of[placed]
    assert problem.pair_eligible(placed, where).all(), "a session on a backend it may not use"
    load = np.zeros(m, np.int64)
    np.add.at(load, where, problem.pair_weights(placed, where))
    used = np.bincount(where, minlength=m)
    over = (load > problem.budgets) & (used > 0)
    assert not over.any(), f"backends {over.nonzero()[0].tolist()} exceed their budgets"
    if problem.session_limits is not None:
        over = used > problem.session_limits
        assert not over.any(), f"backends {over.nonzero()[0].tolist()} exceed their session limits"
