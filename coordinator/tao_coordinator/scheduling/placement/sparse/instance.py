"""A problem with many backends, as its solvers want it.

Pairs with credit stand one by one, backend after backend; every other pair is described by the
session and the backend's *kind* (backends of one kind: equal weights and eligibility for every
session). With n = 10,000 sessions, m = 1,000 backends and one kind that is 20,000 pairs instead of
10,000,000. Overdue sessions are worth something everywhere; as long as they are few, all their
pairs are listed as well.

Values are packed as in `packing`, but with radices that hold the sums of ONE backend, which is all
that a step ever compares: placing a session that is elsewhere gains only credit, and a session that
waits gains all its coordinates, so what a knapsack chooses never has a negative one. Totals are
five separate sums. Where even that needs more than 61 bits, tokens enter in multiples of 2^shift.
"""

from dataclasses import dataclass

import numpy as np

from tao_coordinator.scheduling.placement.packing import BITS_MAX, Units
from tao_coordinator.scheduling.placement.problem import (
    AnyPlacementProblem,
    Bool,
    Int64,
    PlacementProblem,
    SparsePlacementProblem,
)
from tao_coordinator.scheduling.placement.sparse.batch_knapsack import NO_LIMIT

_OVERDUE_PAIRS_MAX = 40_000


@dataclass(frozen=True, slots=True)
class SparseInstance:
    """n sessions, m backends of K kinds, p pairs with credit."""

    source: AnyPlacementProblem
    kind_of: Int64  # [m]
    weights: Int64  # [n, K] tokens
    eligible: Bool  # [n, K]
    budgets: Int64  # [m] tokens
    limits: Int64  # [m] sessions; NO_LIMIT where there is none
    classes: Int64  # [n]
    ready: Int64  # [n]
    tokens: Int64  # [n]
    pair_backends: Int64  # [p] ascending
    pair_sessions: Int64  # [p]
    pair_credits: Int64  # [p]; 0 only for overdue sessions
    pair_weights: Int64  # [p] tokens
    units: Units
    """Value of 1 in each coordinate, inside one backend."""
    own: Int64  # [n] packed value without credit
    lightest: Int64  # [n] smallest weight where the session fits, tokens
    usable: Bool  # [n] fits somewhere
    overdue_in_pairs: bool
    """Whether the pairs of overdue sessions without credit stand among the pairs."""

    @property
    def num_sessions(self) -> int:
        """N."""
        return len(self.tokens)

    @property
    def num_backends(self) -> int:
        """M."""
        return len(self.budgets)

    def credits_at(self, sessions: Int64, backends: Int64) -> Int64:
        """[k] credit of any pairs, 0 where there is none."""
        if not len(self.pair_sessions):
            return np.zeros(len(sessions), np.int64)
        n = self.num_sessions
        keys = self.pair_backends * n + self.pair_sessions  # ascending
        wanted = backends * n + sessions
        place = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, self.pair_credits[place], 0)


def read(problem: AnyPlacementProblem) -> SparseInstance:
    """Bring a problem into this form.

    Raises:
        OverflowError: the values on one backend need more than 61 bits even without tokens.
    """
    if isinstance(problem, PlacementProblem):
        kind_of, weights, eligible = _kinds(problem)
        sessions, backends = ((problem.credits > 0) & problem.eligible).nonzero()
        credits = problem.credits[sessions, backends]
    else:
        kind_of, weights, eligible = problem.kind_of, problem.weights, problem.eligible
        sessions, backends = problem.credit_sessions, problem.credit_backends
        credits = problem.credits
    limits = problem.session_limits
    if limits is None:
        limits = np.full(problem.num_backends, NO_LIMIT, np.int64)
    some = (credits > 0).nonzero()[0]
    sessions, backends, credits = sessions[some], backends[some], credits[some]
    overdue = problem.classes.nonzero()[0]
    overdue_in_pairs = 0 < len(overdue) * problem.num_backends <= _OVERDUE_PAIRS_MAX
    if overdue_in_pairs:
        sessions, backends, credits = _with_overdue(problem, overdue, sessions, backends, credits)
    kinds = kind_of[backends]
    fits = eligible[sessions, kinds] & (weights[sessions, kinds] <= problem.budgets[backends])
    fits &= limits[backends] > 0
    kept = fits.nonzero()[0]
    kept = kept[np.lexsort((sessions[kept], backends[kept]))]
    usable, lightest = _lightest(kind_of, weights, eligible, problem.budgets, limits)
    counts = _count_max(kind_of, weights, eligible, problem.budgets, limits)
    units, shift = _units(problem, credits[kept], weights[sessions[kept], kinds[kept]], counts)
    own = problem.classes * units[0] + problem.ready * units[2]
    own += (-(-problem.tokens >> shift)) * units[3] + units[4]
    return SparseInstance(
        source=problem,
        kind_of=kind_of,
        weights=weights,
        eligible=eligible,
        budgets=problem.budgets,
        limits=limits,
        classes=problem.classes,
        ready=problem.ready,
        tokens=problem.tokens,
        pair_backends=backends[kept],
        pair_sessions=sessions[kept],
        pair_credits=credits[kept],
        pair_weights=weights[sessions[kept], kinds[kept]],
        units=units,
        own=own,
        lightest=lightest,
        usable=usable,
        overdue_in_pairs=overdue_in_pairs,
    )


def _with_overdue(
    problem: AnyPlacementProblem, overdue: Int64, sessions: Int64, backends: Int64, credits: Int64
) -> tuple[Int64, Int64, Int64]:
    """Pairs with credit, and all other pairs of overdue sessions."""
    m = problem.num_backends
    keys = np.concatenate((sessions * m + backends, (overdue[:, None] * m + np.arange(m)).ravel()))
    keys, first = np.unique(keys, return_index=True)
    known = first < len(credits)
    credits = (
        np.where(known, credits[np.minimum(first, max(0, len(credits) - 1))], 0)
        if len(credits)
        else np.zeros(len(keys), np.int64)
    )
    return keys // m, keys % m, credits


def densify(problem: SparsePlacementProblem) -> PlacementProblem:
    """The same problem in full arrays; for few pairs."""
    n, m = problem.num_sessions, problem.num_backends
    credits = np.zeros((n, m), np.int64)
    credits[problem.credit_sessions, problem.credit_backends] = problem.credits
    return PlacementProblem(
        weights=problem.weights[:, problem.kind_of],
        budgets=problem.budgets,
        classes=problem.classes,
        credits=credits,
        ready=problem.ready,
        tokens=problem.tokens,
        eligible=problem.eligible[:, problem.kind_of],
        session_limits=problem.session_limits,
    )


def _kinds(problem: PlacementProblem) -> tuple[Int64, Int64, Bool]:
    """Group equal columns: by a random linear form, then compared in full."""
    n, m = problem.weights.shape
    forms = np.random.default_rng(11).integers(1, 1 << 62, (2, n), dtype=np.int64)
    keys = forms[0] @ problem.weights + forms[1] @ problem.eligible.astype(np.int64)
    _, first_index, inverse = np.unique(keys, return_index=True, return_inverse=True)
    first: Int64 = np.asarray(first_index, np.int64)
    kind_of: Int64 = np.asarray(inverse, np.int64)
    same = (problem.weights == problem.weights[:, first[kind_of]]).all()
    same &= (problem.eligible == problem.eligible[:, first[kind_of]]).all()
    if not same:
        first = kind_of = np.arange(m, dtype=np.int64)
    return kind_of, problem.weights[:, first], problem.eligible[:, first]


def _lightest(
    kind_of: Int64, weights: Int64, eligible: Bool, budgets: Int64, limits: Int64
) -> tuple[Bool, Int64]:
    largest = np.full(weights.shape[1], -1, np.int64)
    open_backends = limits > 0
    np.maximum.at(largest, kind_of[open_backends], budgets[open_backends])
    fits = eligible & (weights <= largest)
    smallest = np.where(fits, weights, np.iinfo(np.int64).max).min(axis=1, initial=NO_LIMIT)
    return np.asarray(fits.any(axis=1), bool), smallest


def _count_max(
    kind_of: Int64, weights: Int64, eligible: Bool, budgets: Int64, limits: Int64
) -> int:
    """Most sessions that any backend can hold."""
    most = 1
    for kind in range(weights.shape[1]):
        mine = kind_of == kind
        filled = np.sort(weights[eligible[:, kind], kind]).cumsum()
        counts = filled.searchsorted(budgets[mine], side="right")
        most = max(most, int(np.minimum(counts, limits[mine]).max(initial=1)))
    return most


def _units(
    problem: AnyPlacementProblem, credits: Int64, credit_weights: Int64, count_max: int
) -> tuple[Units, int]:
    largest = max(0, int(problem.budgets.max(initial=0)))

    def reach(values: Int64, weights: Int64) -> int:
        """Largest sum on one backend."""
        top = int(np.sort(values)[::-1][:count_max].sum())
        weighed = weights > 0
        if not weighed.all() and (values[~weighed] > 0).any():
            return top
        density = float((values[weighed] / weights[weighed]).max(initial=0.0))
        return min(top, int(density * largest * (1 + 1e-9)) + 1)

    lightest = problem.weights.min(axis=1, initial=NO_LIMIT)
    class_max = int(np.sort(problem.classes)[::-1][:count_max].sum())
    credit_max = reach(credits, credit_weights)
    shift = 0
    while True:
        tokens_max = reach(-(-problem.tokens >> shift), lightest)
        unit_ready = (tokens_max + 1) * (count_max + 1)
        unit_credit = unit_ready * (count_max + 1)
        unit_class = unit_credit * (credit_max + 1)
        if (unit_class * (class_max + 1)).bit_length() <= BITS_MAX:
            return (unit_class, unit_credit, unit_ready, count_max + 1, 1), shift
        if tokens_max <= count_max:
            raise OverflowError("value vectors on one backend need more than 61 bits")
        shift += 1
