"""The lexicographic placement problem as plain arrays, and a plan for it.

Maximise, in lexicographic order, the sums of (class, k, r, t, 1) over placed sessions, subject to
one backend per session and a token budget per backend (TAO, Eq. 1-4; DESIGN section 7.1). `class`
marks overdue turns, k is cache credit in buckets, r readiness, t tokens.

The value vector is packed into ONE int64 by a mixed radix taken from the data, so that integer
order is lexicographic order and sums of feasible plans never carry from one coordinate into the
next. Where 62 bits do not suffice the token coordinate is coarsened, last and least as it is;
`tokens_shift` says by how many bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
_BITS_MAX = 61


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """n sessions, m backends. All entries are integers >= 0."""

    weights: Int64  # [n, m] tokens that session i would take of backend b's budget
    budgets: Int64  # [m] tokens left
    classes: Int64  # [n] 1 = overdue
    credits: Int64  # [n, m] cache credit in buckets
    ready: Int64  # [n] 1 = wants to run now
    tokens: Int64  # [n] tokens t
    eligible: NDArray[np.bool_]  # [n, m]

    @property
    def fits(self) -> NDArray[np.bool_]:
        """[n, m]: eligible, and alone within the budget."""
        return self.eligible & (self.weights <= self.budgets[None, :])


@dataclass(frozen=True, slots=True)
class PackedValues:
    """Values of all pairs as single integers; -1 marks pairs that may not be chosen."""

    values: Int64  # [n, m]
    tokens_shift: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A feasible answer: backend index per session, -1 = waits."""

    backend_of: Int64  # [n]

    def objective(self, problem: PlacementProblem) -> tuple[int, int, int, int, int]:
        """Sums of (class, k, r, t, count)."""
        placed = np.flatnonzero(self.backend_of >= 0)
        where = self.backend_of[placed]
        return (
            int(problem.classes[placed].sum()),
            int(problem.credits[placed, where].sum()),
            int(problem.ready[placed].sum()),
            int(problem.tokens[placed].sum()),
            len(placed),
        )

    def check(self, problem: PlacementProblem) -> None:
        """Assert feasibility: one backend each, eligible, budgets kept."""
        num_backends = len(problem.budgets)
        assert self.backend_of.shape == (len(problem.tokens),)
        for b in range(num_backends):
            chosen = np.flatnonzero(self.backend_of == b)
            assert problem.eligible[chosen, b].all()
            assert int(problem.weights[chosen, b].sum()) <= int(problem.budgets[b]) or not len(
                chosen
            )
        assert ((self.backend_of >= -1) & (self.backend_of < num_backends)).all()


def pack(problem: PlacementProblem) -> PackedValues:
    """Pack value vectors into int64 so that integer order is lexicographic order."""
    n = len(problem.tokens)
    fits = problem.fits
    best_credit = np.where(fits, problem.credits, 0).max(axis=1, initial=0)
    shift = 0
    while True:
        tokens = problem.tokens >> shift
        # Largest value each coordinate's SUM can take; a sum below its radix never carries.
        radices = [
            1 + int(best_credit.sum()),
            1 + int(problem.ready.sum()),
            1 + int(tokens.sum()),
            1 + n,
        ]
        total = 1 + int(problem.classes.sum())
        for radix in radices:
            total *= radix
        if total.bit_length() <= _BITS_MAX:
            break
        if not tokens.any():
            raise OverflowError(f"value vectors of {n} sessions need {total.bit_length()} bits")
        shift += 1
    credit_radix, ready_radix, tokens_radix, count_radix = radices
    low = (problem.ready * tokens_radix + tokens) * count_radix + 1
    unit_credit = ready_radix * tokens_radix * count_radix
    high = problem.classes * credit_radix
    values = (high[:, None] + problem.credits) * unit_credit + low[:, None]
    return PackedValues(np.where(fits, values, -1).astype(np.int64), shift)
