"""How much the sessions still to come can add, at most: knapsack tables at session prices.

For sessions in a fixed order and prices u, with residual budgets c_b after the first j sessions:

    rest(j, c) = sum_{i >= j} u_i + sum_b F_j[b, c_b],
    F_j[b, c]  = best sum of (P_ib - u_i - mu_b) over subsets of {i >= j} of weight <= c on b

is the Lagrangian bound of `prices` on what follows. A session limit is priced: with n_b seats left
on b, `mu_b n_b` is added, valid for any mu_b >= 0. Tables are on a grid of `quantum` tokens,
weights rounded down and residuals up, so F never underestimates; plans do not use the grid.

Size: (sessions + 1) x m x levels of int64, `CELLS_MAX` at most. Time: the same number of additions.
"""

import numpy as np

from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import Pairs, exact_sum
from tao_coordinator.scheduling.placement.problem import Int64

CELLS_MAX = 2_000_000
"""16 MB."""
_LEVELS_MIN, _LEVELS_MAX = 64, 4096
_SAFE = 2.0**62


class Completion:
    """Tables for one order of sessions."""

    def __init__(self, pairs: Pairs, prices: Int64, seat_prices: Int64, meter: Meter) -> None:
        """Build F_j for all j.

        Args:
            pairs: sessions in the order in which they will be decided.
            prices: [n] u_i.
            seat_prices: [m] mu_b; 0 where there is no limit.
            meter: counts the work and may end it.
        """
        n, m = pairs.values.shape
        largest = max(1, int(pairs.budgets.max(initial=0)))
        levels = min(_LEVELS_MAX, max(_LEVELS_MIN, CELLS_MAX // ((n + 1) * m)))
        self.quantum = max(1, -(-largest // levels))
        self.seat_prices = seat_prices
        self.reduced: Int64 = pairs.values - prices[:, None] - seat_prices
        self.reduced[pairs.values < 0] = -1
        self._size = -(-largest // self.quantum) + 1
        self._steps: Int64 = pairs.weights // self.quantum
        self._columns: Int64 = np.arange(m, dtype=np.int64)
        self.prices_after = np.append(prices[::-1].cumsum()[::-1], 0)
        self.tables = np.zeros((n + 1, m, self._size), np.int64)
        for j in range(n - 1, -1, -1):
            self._prepend(j)
            meter.spend(40 + m * self._size // 350)
            if j % 16 == 0:
                meter.checkpoint()

    def _prepend(self, j: int) -> None:
        after, table = self.tables[j + 1], self.tables[j]
        table[...] = after
        reduced, steps = self.reduced[j], self._steps[j]
        useful = reduced > 0
        distinct = set(steps[useful].tolist())
        for step in distinct:
            if step >= self._size:
                continue
            # Where nothing is gained any step will do, so one step serves all backends.
            rows = slice(None) if len(distinct) == 1 else (useful & (steps == step)).nonzero()[0]
            shifted = after[rows, : self._size - step] + reduced[rows, None]
            table[rows, step:] = np.maximum(table[rows, step:], shifted)

    def parts(self, j: int, residuals: Int64, backends: Int64 | None = None) -> Int64:
        """[L, num] F_j[b, c_b] for residual budgets [L, num]; negative ones count as 0.

        Args:
            j: sessions already decided.
            residuals: tokens, a column per backend.
            backends: the columns' backends; None: all.
        """
        levels = -(-np.maximum(residuals, 0) // self.quantum)
        columns = self._columns if backends is None else backends
        return self.tables[j][columns, levels]


def is_safe(pairs: Pairs, prices: Int64, seat_prices: Int64) -> bool:
    """Whether sums of prices, tables and values stay inside int64, and tables inside memory."""
    if (len(pairs.values) + 1) * len(pairs.budgets) * _LEVELS_MIN > CELLS_MAX:
        return False
    highest = np.maximum(pairs.values, 0).astype(np.float64).max(axis=1, initial=0).sum()
    limits = np.array([limit or 0 for limit in pairs.limits], np.float64)
    seats = float((seat_prices * limits).sum())
    return 2 * float(highest) + seats + float(exact_sum(prices)) < _SAFE
