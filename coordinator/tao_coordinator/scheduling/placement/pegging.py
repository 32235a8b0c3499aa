"""Pairs that no better plan can contain.

At prices u (`prices`) the bound of all plans that put session i on backend b is

    L(u) - K_b + (P_ib - u_i) + K_b(C_b - w_ib)

where K_b is b's knapsack in L(u) and K_b(c) the one with budget c; a grid table that never
underestimates it will do. Where that does not exceed the best plan's value, the pair is out. Good
prices leave a few pairs per backend, and so a search that decides only on those.
"""

from dataclasses import dataclass

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import Pairs
from tao_coordinator.scheduling.placement.prices import Relaxation
from tao_coordinator.scheduling.placement.problem import Bool, Int64

_CELLS = 16_384
_LEVELS_MIN, _LEVELS_MAX = 256, 4096


@dataclass(frozen=True, slots=True)
class Pegged:
    """What is left to decide."""

    open_pairs: Bool  # [n, m]
    seat_prices: Int64  # [m] mu_b
    bound: int
    """L(u)."""


def peg(pairs: Pairs, prices: Int64, floor: int, meter: Meter) -> Pegged:
    """Find the pairs that a plan worth more than `floor` may contain."""
    relaxation = Relaxation(pairs, meter)
    bound = relaxation.evaluate(prices)
    reduced = pairs.values - prices[:, None]
    num_backends = len(pairs.budgets)
    seat_prices = np.zeros(num_backends, np.int64)
    for b, limit in enumerate(pairs.limits):
        if limit is not None:
            budget = int(pairs.budgets[b])
            seat_prices[b] = limited_knapsack.seat_price(
                pairs.weights[:, b], reduced[:, b], budget, limit
            )
            meter.spend(100)
    allowed = pairs.values >= 0
    if bound <= floor:
        return Pegged(np.zeros_like(allowed), seat_prices, bound)
    reduced -= seat_prices
    table, quantum = _table(pairs, np.where(allowed, reduced, -1), meter)
    left = -(-np.maximum(pairs.budgets - pairs.weights, 0) // quantum)
    with_pair = reduced + table[np.arange(num_backends), left]
    seats = np.array([limit or 0 for limit in pairs.limits], np.int64)
    without = bound - np.array(relaxation.bounds, np.int64) + seat_prices * seats
    return Pegged(allowed & (without + with_pair > floor), seat_prices, bound)


def _table(pairs: Pairs, reduced: Int64, meter: Meter) -> tuple[Int64, int]:
    """[m, levels] K_b(c) from above, and the grid's quantum."""
    num_backends = len(pairs.budgets)
    largest = max(1, int(pairs.budgets.max(initial=0)))
    levels = min(_LEVELS_MAX, max(_LEVELS_MIN, _CELLS // max(1, num_backends)))
    quantum = max(1, -(-largest // levels))
    size = -(-largest // quantum) + 1
    table = np.zeros((num_backends, size), np.int64)
    steps = pairs.weights // quantum
    useful = np.flatnonzero((reduced > 0).any(axis=1)).tolist()
    for i in useful:
        gains = reduced[i] > 0
        distinct = set(steps[i][gains].tolist())
        for step in distinct:
            if step < size:
                rows = (
                    slice(None) if len(distinct) == 1 else (gains & (steps[i] == step)).nonzero()[0]
                )
                shifted = table[rows, : size - step] + reduced[i][rows, None]
                table[rows, step:] = np.maximum(table[rows, step:], shifted)
        meter.spend(8 + num_backends * size // 350)
    meter.checkpoint()
    return table, quantum
