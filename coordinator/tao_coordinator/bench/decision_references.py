"""What other solvers make of a placement problem: HiGHS through scipy, if that is installed."""

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement import PlacementProblem, SparsePlacementProblem
from tao_coordinator.scheduling.placement.problem import Int64


class Reference(NamedTuple):
    """Sums, coordinate by coordinate, as far as they were reached."""

    sums: tuple[int, ...]
    is_proved: bool
    elapsed_s: float


def is_available() -> bool:
    """Whether scipy is installed."""
    return find_spec("scipy") is not None


def mixed_integer(problem: PlacementProblem, limit_s: float) -> Reference:
    """All five coordinates, one after the other, each fixed before the next."""
    fits = problem.eligible & (problem.weights <= problem.budgets[None, :])
    sessions, backends = fits.nonzero()
    pairs = _Pairs(
        sessions,
        backends,
        problem.weights[sessions, backends],
        problem.budgets,
        problem.session_limits,
        problem.num_sessions,
    )
    goals = [
        problem.classes[sessions],
        problem.credits[sessions, backends],
        problem.ready[sessions],
        problem.tokens[sessions],
        np.ones(len(sessions), np.int64),
    ]
    return _solve(pairs, goals, limit_s)


def credit(problem: SparsePlacementProblem, limit_s: float) -> Reference:
    """Class (assumed 0) and credit of a large problem, on its pairs with credit."""
    weights = problem.pair_weights(problem.credit_sessions, problem.credit_backends)
    fits = weights <= problem.budgets[problem.credit_backends]
    fits &= problem.pair_eligible(problem.credit_sessions, problem.credit_backends)
    pairs = _Pairs(
        problem.credit_sessions[fits],
        problem.credit_backends[fits],
        weights[fits],
        problem.budgets,
        problem.session_limits,
        problem.num_sessions,
    )
    nothing = np.zeros(int(fits.sum()), np.int64)
    return _solve(pairs, [nothing, problem.credits[fits]], limit_s)


@contextmanager
def _quiet() -> Generator[None]:
    """HiGHS prints debugging output of its own; ours may be JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


class _Pairs(NamedTuple):
    sessions: Int64
    backends: Int64
    weights: Int64
    budgets: Int64
    limits: Int64 | None
    num_sessions: int


def _solve(pairs: _Pairs, goals: list[Int64], limit_s: float) -> Reference:
    # Optional and without complete types: looked up, not imported.
    optimize: Any = import_module("scipy.optimize")
    csr_matrix: Any = import_module("scipy.sparse").csr_matrix
    start_s = time.perf_counter()
    num = len(pairs.sessions)
    if not num:
        return Reference((0,) * len(goals), True, 0.0)
    columns, ones = np.arange(num), np.ones(num)
    shape = len(pairs.budgets), num
    by_session = csr_matrix((ones, (pairs.sessions, columns)), shape=(pairs.num_sessions, num))
    by_weight = csr_matrix((pairs.weights * 1.0, (pairs.backends, columns)), shape=shape)
    constraints = [
        optimize.LinearConstraint(by_session, -np.inf, 1),
        optimize.LinearConstraint(by_weight, -np.inf, pairs.budgets),
    ]
    if pairs.limits is not None:
        by_count = csr_matrix((ones, (pairs.backends, columns)), shape=shape)
        constraints.append(optimize.LinearConstraint(by_count, -np.inf, pairs.limits))
    sums: list[int] = []
    for goal in goals:
        if not goal.any():
            sums.append(0)
            continue
        left_s = limit_s - (time.perf_counter() - start_s)
        if left_s < 0.05:
            return Reference(tuple(sums), False, time.perf_counter() - start_s)
        with _quiet():
            answer = optimize.milp(
                -goal.astype(np.float64),
                constraints=constraints,
                integrality=ones,
                bounds=optimize.Bounds(0, 1),
                options={"time_limit": left_s, "mip_rel_gap": 0},
            )
        if answer.x is None:
            return Reference(tuple(sums), False, time.perf_counter() - start_s)
        sums.append(int(goal[answer.x > 0.5].sum()))
        if answer.status != 0:
            return Reference(tuple(sums), False, time.perf_counter() - start_s)
        constraints.append(optimize.LinearConstraint(goal[None, :] * 1.0, sums[-1] - 0.5, np.inf))
    return Reference(tuple(sums), True, time.perf_counter() - start_s)
