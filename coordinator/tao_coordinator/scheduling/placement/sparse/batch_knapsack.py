"""Many small knapsacks at once, exactly.

For every backend b (a row), over its own items, as `knapsack` and `limited_knapsack`:

    maximise  sum_j v_j y_j   subject to  sum_j w_j y_j <= C_b,  sum_j y_j <= L_b

A thousand backends with ten candidates each are too small for vectorised lists one by one, but
together they fill arrays [rows, items]:

1. rows whose items all fit are done;
2. prices: `lam` of the break item (items by falling density), and where the limit binds `mu` per
   item by bisection, all rows together; any prices are valid;
3. bound `z = lam C + mu L + sum max(0, r_j)`, `r_j = v_j - lam w_j - mu`; greedy incumbent by
   falling r_j; items with `|r_j| >= z - incumbent` stay as they are (taken where r_j > 0);
4. rows with at most `_CORE_MAX` items left: all subsets of them, a matrix product;
5. the few others, and rows with many items, one by one.

Complexity: O(rows x items) array work plus 2^core per row with a core.
"""

from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement import limited_knapsack
from tao_coordinator.scheduling.placement.problem import Bool, Float64, Int64

NO_LIMIT = 1 << 40
_ROW_ITEMS_MAX = 64
_CORE_MAX = 12
_CELLS_MAX = 1 << 19
_BISECTIONS = 12
_LABELS_MAX = 512


class Items(NamedTuple):
    """Candidates of all rows; those of one row stand together."""

    rows: Int64  # [p] ascending
    weights: Int64  # [p] tokens >= 0
    values: Int64  # [p]; <= 0 is never taken


class Answer(NamedTuple):
    """One optimum per row."""

    taken: Bool  # [p]
    values: Int64  # [num_rows]
    bounds: Int64  # [num_rows] never below the optimum
    work: int


def solve(items: Items, capacities: Int64, limits: Int64) -> Answer:
    """Solve all rows.

    Args:
        items: candidates.
        capacities: [num_rows] tokens; below 0 nothing fits.
        limits: [num_rows] items; `NO_LIMIT` and more: none.
    """
    num_rows = len(capacities)
    rows, weights, values = items
    useful = (values > 0) & (weights <= capacities[rows]) & (limits[rows] > 0)
    chosen = useful.nonzero()[0]
    taken = np.zeros(len(values), bool)
    counts = np.bincount(rows[chosen], minlength=num_rows)
    loads = np.bincount(rows[chosen], weights=weights[chosen], minlength=num_rows)
    easy = (loads <= capacities) & (counts <= limits)
    taken[chosen[easy[rows[chosen]]]] = True
    bounds = np.zeros(num_rows, np.int64)
    hard = chosen[~easy[rows[chosen]]]
    work = 60 + len(values) // 25
    if len(hard):
        big = counts[rows[hard]] > _ROW_ITEMS_MAX
        work += _solve_padded(items, hard[~big], capacities, limits, taken, bounds)
        work += _solve_singly(items, hard[big], capacities, limits, taken, bounds)
    reached = np.zeros(num_rows, np.int64)
    np.add.at(reached, rows[taken], values[taken])
    return Answer(taken, reached, np.maximum(bounds, reached), work)


def _solve_singly(
    items: Items, chosen: Int64, capacities: Int64, limits: Int64, taken: Bool, bounds: Int64
) -> int:
    work = 0
    starts = np.flatnonzero(np.append(True, np.diff(items.rows[chosen]) != 0))
    for group in np.split(chosen, starts[1:]) if len(chosen) else []:
        row = int(items.rows[group[0]])
        limit = int(limits[row])
        answer = limited_knapsack.solve(
            items.weights[group],
            items.values[group],
            int(capacities[row]),
            None if limit >= NO_LIMIT else limit,
            _LABELS_MAX,
        )
        taken[group[answer.chosen]] = True
        bounds[row] = answer.bound
        work += answer.work
    return work


class _Padded(NamedTuple):
    """Rows side by side, items by falling density."""

    source: Int64  # [R, J] index into the items; -1 = none
    weights: Int64  # [R, J]
    values: Int64  # [R, J]; 0 where there is none
    capacities: Int64  # [R]
    limits: Int64  # [R]


def _pad(items: Items, chosen: Int64, capacities: Int64, limits: Int64) -> _Padded:
    rows, weights, values = (part[chosen] for part in items)
    order = np.lexsort((-(values / np.maximum(weights, 1e-9)), rows))
    rows = rows[order]
    distinct, first, row_of = np.unique(rows, return_index=True, return_inverse=True)
    slot = np.arange(len(rows)) - first[row_of]
    shape = len(distinct), int(slot.max()) + 1
    source = np.full(shape, -1, np.int64)
    source[row_of, slot] = chosen[order]
    padded_weights = np.full(shape, NO_LIMIT, np.int64)
    padded_weights[row_of, slot] = weights[order]
    padded_values = np.zeros(shape, np.int64)
    padded_values[row_of, slot] = values[order]
    return _Padded(source, padded_weights, padded_values, capacities[distinct], limits[distinct])


def _solve_padded(
    items: Items, chosen: Int64, capacities: Int64, limits: Int64, taken: Bool, bounds: Int64
) -> int:
    if not len(chosen):
        return 0
    padded = _pad(items, chosen, capacities, limits)
    exists = padded.source >= 0
    rows = np.arange(len(padded.capacities))
    lam, mu = _prices(padded)
    weights = np.where(exists, padded.weights, 0)
    reduced = np.where(exists, padded.values - lam[:, None] * weights - mu[:, None], 0.0)
    relaxed = lam * padded.capacities + np.maximum(reduced, 0).sum(axis=1)
    relaxed += np.where(mu > 0, mu * padded.limits, 0.0)
    scale = lam * weights.sum(axis=1) + np.abs(reduced).sum(axis=1)
    slack = np.maximum(1.0, 2.0**-48 * (relaxed + scale))
    greedy, incumbent = _greedy(padded, reduced)
    core = exists & (np.abs(reduced) < (relaxed - incumbent + slack)[:, None])
    sizes = core.sum(axis=1)
    picked = greedy.copy()
    for low, high in ((0, 3), (3, 6), (6, 9), (9, _CORE_MAX)):
        some = rows[(sizes > low) & (sizes <= high)]
        step = max(1, _CELLS_MAX >> high)
        for part in (some[i : i + step] for i in range(0, len(some), step)):
            _try_subsets(padded, part, core, reduced, picked, incumbent, high)
    done = sizes <= _CORE_MAX
    chosen_here = padded.source[done][picked[done] & exists[done]]
    taken[chosen_here] = True
    left = padded.source[~done]
    num_subsets = int((1 << np.minimum(sizes, _CORE_MAX)).sum())
    work = 250 + padded.source.size // 8 + num_subsets // 60
    return work + _solve_singly(items, np.sort(left[left >= 0]), capacities, limits, taken, bounds)


def _prices(padded: _Padded) -> tuple[Float64, Float64]:
    """[R] break density and price per item."""
    rows = np.arange(len(padded.capacities))
    filled = np.cumsum(np.minimum(padded.weights, NO_LIMIT), axis=1)
    fits = (filled <= padded.capacities[:, None]).sum(axis=1)
    density = padded.values / np.maximum(padded.weights, 1e-9)
    breaker = np.minimum(fits, density.shape[1] - 1)
    lam = np.where(fits < density.shape[1], density[rows, breaker], 0.0)
    mu = np.zeros(len(rows))
    bound_by_limit = (fits > padded.limits).nonzero()[0]
    if len(bound_by_limit):
        some = _Padded(*(part[bound_by_limit] for part in padded))
        lam[bound_by_limit], mu[bound_by_limit] = _limited_prices(some)
    return lam, mu


def _limited_prices(padded: _Padded) -> tuple[Float64, Float64]:
    """The same where the limit binds: the price per item by bisection on the number taken."""
    rows = np.arange(len(padded.capacities))[:, None]
    low: Float64 = np.zeros(len(rows))
    high: Float64 = np.asarray(padded.values.max(axis=1), np.float64)
    best_lam: Float64 = np.zeros(len(rows))
    best_mu = high
    for _ in range(_BISECTIONS):
        mu: Float64 = (low + high) / 2
        worth = np.maximum(padded.values - mu[:, None], 0.0)
        density = worth / np.maximum(padded.weights, 1e-9)
        order = (-density).argsort(axis=1, kind="stable")
        weights = np.where(worth > 0, padded.weights, 0)[rows, order]
        positive = (worth > 0).sum(axis=1)
        fits = (weights.cumsum(axis=1) <= padded.capacities[:, None]).sum(axis=1)
        breaker = np.minimum(fits, density.shape[1] - 1)
        lam = np.where(fits < positive, density[rows, order][rows[:, 0], breaker], 0.0)
        too_many = np.minimum(fits, positive) > padded.limits
        low, high = _choose(too_many, mu, low), _choose(too_many, high, mu)
        best_lam = _choose(too_many, best_lam, lam)
        best_mu = _choose(too_many, best_mu, mu)
    return best_lam, best_mu


def _choose(where: Bool, one: Float64, other: Float64) -> Float64:
    return np.where(where, one, other)


def _greedy(padded: _Padded, reduced: Float64) -> tuple[Bool, Int64]:
    """By falling reduced value, whatever still fits; its items and its value."""
    rows = np.arange(len(reduced))
    order = (-np.where(padded.source >= 0, reduced, -np.inf)).argsort(axis=1, kind="stable")
    room, seats = padded.capacities.copy(), padded.limits.copy()
    picked = np.zeros(reduced.shape, bool)
    value = np.zeros(len(rows), np.int64)
    for column in order.T:
        weight = padded.weights[rows, column]
        fits = (weight <= room) & (seats > 0)
        picked[rows, column] = fits
        room -= np.where(fits, weight, 0)
        seats -= fits
        value += np.where(fits, padded.values[rows, column], 0)
    return picked, value


def _try_subsets(
    padded: _Padded,
    part: Int64,
    core: Bool,
    reduced: Float64,
    picked: Bool,
    incumbent: Int64,
    size: int,
) -> None:
    """Try all changes of up to `size` core items against {reduced > 0}; updates picked rows."""
    size = min(size, core.shape[1])
    columns = (~core[part]).argsort(axis=1, kind="stable")[:, :size]
    here = part[:, None]
    is_core = core[here, columns]
    start = reduced[part] > 0
    sign = np.where(is_core, np.where(start[np.arange(len(part))[:, None], columns], -1, 1), 0)
    weights, values = padded.weights[part], padded.values[part]
    load = np.where(start, weights, 0).sum(axis=1)
    worth = np.where(start, values, 0).sum(axis=1)
    changes = sign * np.where(is_core, padded.weights[here, columns], 0)
    loads = _subset_sums(load, changes)
    totals = _subset_sums(worth, sign * padded.values[here, columns])
    feasible = loads <= padded.capacities[part][:, None]
    limited = padded.limits[part] < NO_LIMIT
    if limited.any():
        counts = _subset_sums(start.sum(axis=1), sign)
        feasible &= counts <= padded.limits[part][:, None]
    totals[~feasible] = -1
    best = totals.argmax(axis=1)
    reached = totals[np.arange(len(part)), best]
    better = (reached > incumbent[part]).nonzero()[0]
    if not len(better):
        return
    rows = part[better]
    picked[rows] = start[better]
    changed = ((best[better][:, None] >> np.arange(size)) & 1).astype(bool) & is_core[better]
    which, slot = changed.nonzero()
    picked[rows[which], columns[better][which, slot]] ^= True
    incumbent[rows] = reached[better]


def _subset_sums(base: Int64, changes: Int64) -> Int64:
    """[R, 2^size] base plus the sum of each subset of changes [R, size]."""
    half = changes.shape[1] // 2
    low = changes[:, :half] @ _subsets(half)
    high = changes[:, half:] @ _subsets(changes.shape[1] - half)
    sums = (base[:, None] + high)[:, :, None] + low[:, None, :]
    return sums.reshape(len(base), -1)


def _subsets(size: int) -> Int64:
    return ((np.arange(1 << size)[None, :] >> np.arange(size)[:, None]) & 1).astype(np.int64)
