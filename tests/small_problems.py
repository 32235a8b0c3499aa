"""Placement problems small enough to see the answer."""

import numpy as np

from tao_coordinator.scheduling.placement import PlacementProblem


def problem(
    weights: list[int],
    credits: list[list[int]],
    budgets: list[int],
    late: int = -1,
    ready: list[int] | None = None,
) -> PlacementProblem:
    """Each weight is the same on every backend, and counts as the session's tokens.

    Args:
        weights: n of them.
        credits: [n][m].
        budgets: m of them.
        late: number of the overdue session.
        ready: n of 0 and 1; all are by default.
    """
    n, m = len(weights), len(budgets)
    return PlacementProblem(
        weights=np.repeat(np.array(weights, np.int64)[:, None], m, axis=1),
        budgets=np.array(budgets, np.int64),
        classes=np.array([i == late for i in range(n)], np.int64),
        credits=np.array(credits, np.int64),
        ready=np.ones(n, np.int64) if ready is None else np.array(ready, np.int64),
        tokens=np.array(weights, np.int64),
        eligible=np.ones((n, m), bool),
    )


SMALL_BLOCKS_LARGE = problem([3, 8], [[3, 0], [8, 0]], [10, 2])
"""One backend holds either session; greedy by arrival takes the first, which is worth less."""
