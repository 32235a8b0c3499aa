"""The published joint dynamic programme on a capacity grid, with its fallback (TAO, Eq. 3 and 7).

    w'_ib = ceil(w_ib / Q),  C'_b = floor(C_b / Q)                     Q = `quantum_tokens`
    F_0(c) = 0,   c = residual budgets in quanta, one dimension per backend
    F_j(c) = lexmax { F_{j-1}(c),
                      max over eligible b with c_b >= w'_jb of  F_{j-1}(c - w'_jb e_b) + v_jb }
    v_jb   = (class_j, k_jb, r_j, t_j, 1)

The answer is F_n(C'). Lexicographic sums are totally ordered and adding the same vector keeps the
order, so Bellman's principle holds; vectors are packed into int64 (`packing`). A backend with a
session limit has a second dimension, the seats left.

States: product of (C'_b + 1), times (L_b + 1) where there is a limit. Time O(n m states), memory
O(n states) for the choices. With more than `states_max` states, or if the choices need more than
256 MB, the plan is best-fit-decreasing instead: sessions by falling weight, each where the least
room remains, whatever its value.

With Q = 1, or weights that are all multiples of Q, the plan is optimal (a test oracle). Otherwise
rounding weights up loses room: about Q/2 per session.

What the source leaves open and is chosen here: the last coordinate (count) and class, which is 0
in the published policy; the order of the fallback; the memory bound. Grouping backends with equal
cache columns into one dimension of summed budget, as the source mentions, is not done: two backends
with 5 left do not hold one session of 8.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement import bounds
from tao_coordinator.scheduling.placement.packing import PackedProblem, pack
from tao_coordinator.scheduling.placement.plan import Certificate, Plan, Rung
from tao_coordinator.scheduling.placement.problem import Int64, PlacementProblem

CHOICES_BYTES_MAX = 256 << 20
_BACKENDS_MAX = 126
"""Choices are int8."""


class GridAnswer(NamedTuple):
    """A plan, and how it came about."""

    plan: Plan
    used_fallback: bool
    """Best-fit-decreasing instead of the dynamic programme."""
    num_states: int
    """States of the dynamic programme, also where it was too large."""


def solve(problem: PlacementProblem, quantum_tokens: int, states_max: int) -> GridAnswer:
    """Solve on the grid, or fall back.

    Args:
        problem: sessions and backends.
        quantum_tokens: grid step, tokens >= 1.
        states_max: states beyond which the fallback decides.

    Raises:
        OverflowError: see `packing.pack`.
    """
    if quantum_tokens < 1:
        raise ValueError("quantum_tokens must be at least 1")
    packed = pack(problem)
    levels = np.maximum(problem.budgets, 0) // quantum_tokens + 1
    seats = [1 if limit is None else limit + 1 for limit in packed.pairs.limits]
    shape = [int(level) for level in levels] + seats
    num_states = prod(shape)
    too_large = num_states > states_max or problem.num_sessions * num_states > CHOICES_BYTES_MAX
    if too_large or problem.num_backends > _BACKENDS_MAX:
        return _answer(packed, best_fit_decreasing(problem), num_states, exact=False, fallback=True)
    steps = -(-problem.weights // quantum_tokens)
    exact = not (problem.weights % quantum_tokens).any()
    backend_of = _run(packed, steps, shape)
    return _answer(packed, backend_of, num_states, exact=exact, fallback=False)


def _answer(
    packed: PackedProblem, backend_of: Int64, num_states: int, *, exact: bool, fallback: bool
) -> GridAnswer:
    objective = packed.objective_of(backend_of)
    limit = objective
    if not exact or packed.tokens_shift:
        limit = max(objective, packed.bound_vector(bounds.best_pairs(packed.pairs)))
    plan = Plan(
        backend_of=backend_of,
        objective=objective,
        certificate=Certificate.of(objective, limit),
        rung=Rung.GRID,
        work=len(backend_of) * (1 if fallback else num_states // 100 + 1),
    )
    return GridAnswer(plan, fallback, num_states)


def _run(packed: PackedProblem, steps: Int64, shape: list[int]) -> Int64:
    """[n] optimal backend per session on the grid; `shape` is levels per backend, then seats."""
    values = packed.pairs.values
    n, m = values.shape
    best = np.zeros(shape, np.int64)
    choices = np.full((n, *shape), -1, np.int8)
    for j in range(n):
        after = best.copy()
        for b in range(m):
            if values[j, b] < 0 or steps[j, b] >= shape[b]:
                continue
            target, source = _shift(shape, b, int(steps[j, b]), packed.pairs.limits[b] is not None)
            candidate = best[source] + values[j, b]
            better = candidate > after[target]
            after[target][better] = candidate[better]
            choices[j][target][better] = b
        best = after
    return _backtrack(choices, steps, shape, packed)


def _shift(
    shape: list[int], b: int, step: int, is_limited: bool
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """States with room for a session, and the states without that room."""
    target, source = [slice(None)] * len(shape), [slice(None)] * len(shape)
    target[b], source[b] = slice(step, None), slice(None, shape[b] - step)
    if is_limited:
        seat = len(shape) // 2 + b
        target[seat], source[seat] = slice(1, None), slice(None, -1)
    return tuple(target), tuple(source)


def _backtrack(
    choices: np.ndarray[tuple[int, ...], np.dtype[np.int8]],
    steps: Int64,
    shape: list[int],
    packed: PackedProblem,
) -> Int64:
    n, m = steps.shape
    state = [size - 1 for size in shape]
    backend_of = np.full(n, -1, np.int64)
    for j in range(n - 1, -1, -1):
        b = int(choices[(j, *state)])
        if b < 0:
            continue
        backend_of[j] = b
        state[b] -= int(steps[j, b])
        if packed.pairs.limits[b] is not None:
            state[m + b] -= 1
    return backend_of


def best_fit_decreasing(problem: PlacementProblem) -> Int64:
    """[n] sessions by falling weight, each where the least room remains."""
    n, m = problem.weights.shape
    room = problem.budgets.copy()
    limits = problem.session_limits
    seats = np.full(m, n) if limits is None else limits.copy()
    backend_of = np.full(n, -1, np.int64)
    heaviest = np.where(problem.eligible, problem.weights, 0).max(axis=1, initial=0)
    for i in (-heaviest).argsort(kind="stable").tolist():
        left = room - problem.weights[i]
        fits = (problem.eligible[i] & (left >= 0) & (seats > 0)).nonzero()[0]
        if len(fits):
            b = int(fits[left[fits].argmin()])
            backend_of[i] = b
            room[b] -= problem.weights[i, b]
            seats[b] -= 1
    return backend_of
