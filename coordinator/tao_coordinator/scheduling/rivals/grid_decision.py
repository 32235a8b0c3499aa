"""One joint decision of TAO as published: the programme on its grid, or best-fit-decreasing."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement import PlacementProblem, dense_grid
from tao_coordinator.scheduling.placement.problem import Int64


class Decision(NamedTuple):
    """Who goes where, and how that came about."""

    backend_of: Int64
    """[n] backend index per session; -1 = waits."""
    used_fallback: bool
    """Best-fit-decreasing, whatever the sessions are worth."""
    num_states: int
    """Of the programme that was solved; 0: none was."""


Decide = Callable[[PlacementProblem, int, int], Decision]
"""Takes the problem, the grid step in tokens and the state budget."""


def decide(problem: PlacementProblem, quantum_tokens: int, states_max: int) -> Decision:
    """Solve on the grid if the states suffice, else fall back.

    The number of states is known before the search begins, so a search that would fail costs
    nothing here but the looking.
    """
    rounded = np.where(problem.eligible, -(-problem.weights // quantum_tokens) * quantum_tokens, 0)
    useful = np.minimum(problem.budgets, rounded.sum(axis=0))
    try:
        answer = dense_grid.solve(replace(problem, budgets=useful), quantum_tokens, states_max)
    except OverflowError:  # values too large to be compared as integers of 64 bits
        answer = None
    if answer is None or answer.used_fallback:
        return Decision(dense_grid.best_fit_decreasing(problem), used_fallback=True, num_states=0)
    return Decision(answer.plan.backend_of, used_fallback=False, num_states=answer.num_states)
