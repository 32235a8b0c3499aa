r"""Survival curves on a fixed grid: what the distribution of a duration says while it runs.

A curve is given by one number per bucket: the probability that something which has reached the
bucket ends inside it. Within a bucket the hazard is constant, so that survival is

    S(t) = exp(-Lambda(t)),   Lambda piecewise linear over the grid's edges,

and everything asked of a running call conditions on its age e by subtraction:
P(D <= e + h | D > e) = 1 - exp(Lambda(e) - Lambda(e + h)). Past the last edge nothing is known but
the scale: there S falls like 1 / t.

Keep or release is ski rental against that distribution: keeping an idle session's seat costs its
idle time, losing its cache costs the refill price R in the same seconds, and

    tau* = argmin_tau  E[min(X, tau)] + R * P(X > tau)                    X: remaining idle time

Its derivative is S(tau) (1 - R * hazard), so with a constant hazard per bucket the best tau is an
edge: the search over edges is exact.

Symbols: e age, h horizon, X remaining time, R refill price; all seconds.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_NOBODY: Final = 1e-9
"""Share of survivors that no longer matters."""


class Grid:
    """Edges of buckets: bucket i is [edges[i], edges[i + 1]), the last one is open."""

    __slots__ = ("edges", "num_closed", "widths")

    def __init__(self, edges: Sequence[float]) -> None:
        """Keep the edges.

        Args:
            edges: ascending, the first 0, at least two.
        """
        self.edges = tuple(edges)
        self.widths = tuple(b - a for a, b in zip(self.edges, self.edges[1:], strict=False))
        self.num_closed = len(self.widths)
        if not self.widths or self.edges[0] != 0.0 or min(self.widths) <= 0.0:
            raise ValueError("the edges of a grid start at 0 and ascend")

    def index(self, value: float) -> int:
        """Bucket of a value >= 0; the open bucket is `num_closed`."""
        return bisect_right(self.edges, value) - 1


LOWEST_S: Final = 0.05
RATIO: Final = 1.25
DURATIONS: Final = Grid([0.0, *(LOWEST_S * RATIO**i for i in range(60))])
"""Buckets for durations: 50 ms, then 25 % wide, up to 7 hours."""


class Curve:
    """One survival curve; immutable."""

    __slots__ = ("_cumulative", "ends", "grid")

    def __init__(self, grid: Grid, ends: Floats) -> None:
        """Build from conditional end probabilities.

        Args:
            grid: the buckets.
            ends: per closed bucket, P(ends in it | reached it), in [0, 1); not written to.
        """
        self.grid = grid
        self.ends = ends
        # Single look-ups follow: they are much faster on a list than on an array.
        self._cumulative: list[float] = [0.0, *(-np.log1p(-ends).cumsum()).tolist()]

    def hazard_to(self, value: float) -> float:
        """Lambda: the integral of the hazard from 0 to `value`."""
        edges = self.grid.edges
        index = bisect_right(edges, value) - 1
        cumulative = self._cumulative
        if index >= self.grid.num_closed:
            return cumulative[-1] + math.log(value / edges[-1])
        start = cumulative[index]
        share = (value - edges[index]) / self.grid.widths[index]
        return start + (cumulative[index + 1] - start) * share

    def value_at(self, hazard: float) -> float:
        """The inverse of `hazard_to`: the value at which Lambda reaches `hazard`."""
        cumulative = self._cumulative
        edges = self.grid.edges
        if hazard >= cumulative[-1]:
            # Beyond e^600 the answer is of no use, and soon after a float is infinite.
            return edges[-1] * math.exp(min(600.0, hazard - cumulative[-1]))
        index = bisect_right(cumulative, hazard) - 1
        start = cumulative[index]
        share = (hazard - start) / (cumulative[index + 1] - start)
        return edges[index] + self.grid.widths[index] * share

    def keep(self, age: float, refill: float, limit: float = math.inf) -> tuple[float, float]:
        """Ski rental from `age` on.

        Args:
            age: how long it runs already.
            refill: the price R of giving up, > 0.
            limit: age at which it certainly ends.

        Returns:
            The age at which to give up (`age`: now; `inf`: never), and the expected cost of it.
        """
        edges, cumulative, widths = self.grid.edges, self._cumulative, self.grid.widths
        best_age, best_cost = age, refill
        alive, spent, at = 1.0, 0.0, age
        exp = math.exp
        for index in range(bisect_right(edges, age) - 1, self.grid.num_closed):
            upper = edges[index + 1]
            rate = (cumulative[index + 1] - cumulative[index]) / widths[index]
            ends_all = upper >= limit
            width = (limit if ends_all else upper) - at
            left = alive * exp(-rate * width)
            spent += (alive - left) / rate if rate > 1e-12 else alive * width
            if ends_all:
                return (math.inf, spent) if spent < best_cost else (best_age, best_cost)
            if spent >= best_cost:
                break
            alive, at = left, upper
            cost = spent + refill * alive
            if cost < best_cost:
                best_age, best_cost = upper, cost
            if alive < _NOBODY:
                break
        if best_age >= edges[-1] or (best_age == at and alive < _NOBODY):
            return math.inf, best_cost
        return best_age, best_cost


def scale_free(grid: Grid, exponent: float) -> Curve:
    """The curve that knows nothing: S(t) = (t / first edge)^-exponent beyond the first edge.

    In the first bucket, which has no scale, half of everything ends.
    """
    ends = [0.5, *(1.0 - (a / b) ** exponent for a, b in pairwise(grid.edges[1:]))]
    return Curve(grid, np.array(ends))
