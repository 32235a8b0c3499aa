"""Hypothesis strategies for tiny placement problems, with every feature that there is."""

import numpy as np
from hypothesis import strategies as st

from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.scheduling.placement.problem import Int64


@st.composite
def problems(draw: st.DrawFn, sessions_max: int = 5, backends_max: int = 3) -> PlacementProblem:
    """Small integers, so that ties, full backends and weightless sessions are common."""
    n, m = draw(st.integers(0, sessions_max)), draw(st.integers(1, backends_max))

    def ints(low: int, high: int, *shape: int) -> Int64:
        size = int(np.prod(shape))
        flat = draw(st.lists(st.integers(low, high), min_size=size, max_size=size))
        return np.array(flat, np.int64).reshape(shape)

    tokens_max = draw(st.sampled_from([1, 30, 200_000]))
    return PlacementProblem(
        weights=ints(0, 30, n, m) if draw(st.booleans()) else ints(0, 30, n, 1).repeat(m, axis=1),
        budgets=ints(-3, 60, m),
        classes=ints(0, 2, n) if draw(st.booleans()) else np.zeros(n, np.int64),
        credits=ints(0, 20, n, m),
        ready=ints(0, 1, n) if draw(st.booleans()) else np.ones(n, np.int64),
        tokens=ints(0, tokens_max, n),
        eligible=ints(0, 1, n, m).astype(bool),
        session_limits=ints(0, 3, m) if draw(st.booleans()) else None,
    )
