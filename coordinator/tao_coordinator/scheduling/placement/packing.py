"""Value vectors as single integers: mixed radix, taken from the data.

Vectors (class, k, r, t, 1) under lexicographic order form a totally ordered group, so everything
that only adds, subtracts and compares values (dynamic programming, local ratio, Lagrangian duality)
holds for them as for numbers. For speed they are packed into one int64:

    P_ib = ((((class_i R_k + k_ib) R_r + r_i) R_t + t_i) R_n + 1),      R_c = 1 + UB_c

`UB_c` bounds the SUM that coordinate c can reach in a feasible plan, so sums of feasible plans
never carry from one coordinate into the next and integer order is lexicographic order. With `q_b`
the number of lightest sessions that backend b holds (at most its session limit), `Q = sum_b q_b`:

    UB_n = Q
    UB_r = min(number of ready sessions, Q)
    UB_class = sum of the Q largest classes
    UB_k = min(sum of the Q largest max_b k_ib,  sum_b (sum of the q_b largest k_ib),
               sum_b C_b max_i k_ib / w_ib)
    UB_t = min(sum of the Q largest t_i,  sum_b C_b max_i t_i / w_ib)

Where every session is ready, r counts sessions and the last coordinate is dropped.

*Bounds.* A Lagrangian sum is no feasible plan's and may carry. It is clipped to the largest
packable value and read from the top: the leading coordinates are valid bounds, as `plan` uses them.

*Too many bits.* Beyond 61 bits tokens enter rounded up to multiples of 2^`tokens_shift`. Objectives
stay exact (`plan.objective_of`); packed values and bounds round up, so bounds stay valid, and the
token coordinate is merely known less precisely. If even that does not suffice: OverflowError.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement.plan import objective_of
from tao_coordinator.scheduling.placement.problem import Bool, Int64, Objective, PlacementProblem

BITS_MAX = 61
"""Leaves room for prices and optimistic tables above the largest packed sum."""


Units = tuple[int, int, int, int, int]
"""Value of 1 in each coordinate."""


class Pairs(NamedTuple):
    """What the solvers need of a problem: one integer value per pair, and the constraints."""

    values: Int64  # [n, m]; below 0 = may not be chosen
    weights: Int64  # [n, m] tokens
    budgets: Int64  # [m] tokens
    limits: tuple[int | None, ...]
    """[m] sessions; None where the limit cannot bind."""

    def value_of(self, backend_of: Int64) -> int:
        """Summed value of a placement."""
        placed = (backend_of >= 0).nonzero()[0]
        return int(self.values[placed, backend_of[placed]].sum())


@dataclass(frozen=True, slots=True)
class PackedProblem:
    """The same problem with one integer value per pair."""

    source: PlacementProblem
    pairs: Pairs
    counts_max: Int64  # [m] q_b
    units: Units
    """Packed value of 1 in each coordinate; 0 for a dropped last one."""
    sums_max: Objective
    """UB_c."""
    tokens: Int64  # [n] as packed
    tokens_shift: int

    @property
    def value_max(self) -> int:
        """Largest packable sum."""
        return self.units[0] * (self.sums_max.classes + 1) - 1

    def objective_of(self, backend_of: Int64) -> Objective:
        """Exact sums of a placement."""
        return objective_of(self.source, backend_of)

    def digits(self, packed_value: int) -> list[int]:
        """The five sums of a packed value, tokens as packed."""
        left = min(packed_value, self.value_max)
        digits: list[int] = []
        for unit in self.units:
            digit, left = divmod(left, unit) if unit else (digits[2], left)
            digits.append(digit)
        return digits

    def bound_value(self, bound: Objective) -> int:
        """A bound on every coordinate as a packed one."""
        limits = list(bound)
        limits[3] = -(-limits[3] >> self.tokens_shift)
        return sum(
            min(limit, largest) * unit
            for limit, largest, unit in zip(limits, self.sums_max, self.units, strict=True)
        )

    def bound_vector(self, packed_bound: int) -> Objective:
        """Read a packed upper bound from the top."""
        digits = self.digits(packed_bound)
        digits[3] <<= self.tokens_shift
        return Objective(*digits)

    def values_with(self, units: Units) -> Int64:
        """[n, m] values with other units per coordinate; -1 stays -1."""
        problem = self.source
        own = problem.classes * units[0] + problem.ready * units[2]
        own += self.tokens * units[3] + units[4]
        values = own[:, None] + problem.credits * units[1]
        return np.where(self.pairs.values >= 0, values, -1)


def pack(problem: PlacementProblem) -> PackedProblem:
    """Pack value vectors into int64 so that integer order is lexicographic order.

    Raises:
        OverflowError: the values need more than 61 bits even without tokens.
    """
    m = problem.num_backends
    allowed = problem.eligible & (problem.weights <= problem.budgets[None, :])
    if problem.session_limits is not None:
        allowed &= problem.session_limits[None, :] > 0
    fitting = _counts_by_weight(problem, allowed)
    counts_max = fitting
    limits: tuple[int | None, ...] = (None,) * m
    if problem.session_limits is not None:
        counts_max = np.minimum(fitting, problem.session_limits)
        pairs = zip(problem.session_limits.tolist(), fitting.tolist(), strict=True)
        limits = tuple(limit if limit < fit else None for limit, fit in pairs)
    shift = 0
    while True:
        sums_max = _sums_max(problem, allowed, counts_max, -(-problem.tokens >> shift))
        units, total = _units(problem, allowed, sums_max)
        if total.bit_length() <= BITS_MAX:
            break
        if sums_max.tokens <= sums_max.sessions:
            raise OverflowError(f"value vectors need {total.bit_length()} bits")
        shift += 1
    tokens = -(-problem.tokens >> shift)
    own = problem.classes * units[0] + problem.ready * units[2] + tokens * units[3] + units[4]
    values = own[:, None] + problem.credits * units[1]
    return PackedProblem(
        source=problem,
        pairs=Pairs(np.where(allowed, values, -1), problem.weights, problem.budgets, limits),
        counts_max=counts_max,
        units=units,
        sums_max=sums_max,
        tokens=tokens,
        tokens_shift=shift,
    )


def in_units(pairs: Pairs, unit: int) -> Pairs:
    """Values rounded down to a unit; pairs worth less are out."""
    values = np.where(pairs.values >= unit, pairs.values // unit * unit, -1)
    return pairs._replace(values=values)


def exact_sum(values: Int64) -> int:
    """Sum that may exceed int64."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _counts_by_weight(problem: PlacementProblem, allowed: Bool) -> Int64:
    """[m] how many of the lightest allowed sessions fit a backend."""
    budgets = np.maximum(problem.budgets, 0)
    weights = np.sort(np.where(allowed, problem.weights, budgets + 1), axis=0).cumsum(axis=0)
    return (weights <= budgets).sum(axis=0)


def _top_sum(values: Int64, count: int) -> int:
    return int(np.sort(values)[::-1][:count].sum())


def _by_density(values: Int64, problem: PlacementProblem, allowed: Bool) -> float:
    """sum_b C_b max_i value / weight, rounded up; infinite if something weightless has value."""
    if not allowed.size:
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.where(allowed & (values > 0), values / problem.weights, 0.0)
        densest = density.max(axis=0)
        reach = float((densest * np.where(densest > 0, problem.budgets, 0)).sum())
    # 1e-9 covers the rounding of the quotients, 1 that of the sum.
    return reach * (1 + 1e-9) + 1 if np.isfinite(reach) else np.inf


def _sums_max(
    problem: PlacementProblem, allowed: Bool, counts_max: Int64, tokens: Int64
) -> Objective:
    """Largest sum of each coordinate in any feasible plan."""
    usable = allowed.any(axis=1)
    total = min(int(usable.sum()), int(counts_max.sum()))
    credits = np.where(allowed, problem.credits, 0)
    per_backend = -np.sort(-credits, axis=0).cumsum(axis=0)
    held = [int(per_backend[q - 1, b]) if q else 0 for b, q in enumerate(counts_max.tolist())]
    credit = min(
        _top_sum(credits.max(axis=1, initial=0), total),
        sum(held),
        _by_density(credits, problem, allowed),
    )
    token = min(
        _top_sum(tokens[usable], total),
        _by_density(np.broadcast_to(tokens[:, None], allowed.shape), problem, allowed),
    )
    return Objective(
        _top_sum(problem.classes[usable], total),
        int(credit),
        min(int(problem.ready[usable].sum()), total),
        int(token),
        total,
    )


def _units(problem: PlacementProblem, allowed: Bool, sums_max: Objective) -> tuple[Units, int]:
    """Packed value of 1 in each coordinate, and one more than the largest packable sum."""
    usable = allowed.any(axis=1)
    drop_count = bool((problem.ready[usable] == 1).all())
    units = [0] * 5
    unit = 1
    for c in range(4, -1, -1):
        if c == 4 and drop_count:
            continue
        units[c] = unit
        unit *= sums_max[c] + 1
    return (units[0], units[1], units[2], units[3], units[4]), unit
