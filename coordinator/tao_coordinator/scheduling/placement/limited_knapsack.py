"""Exact 0/1 knapsack with a limit on the number of items.

    maximise  sum_j v_j y_j   subject to  sum_j w_j y_j <= C,  sum_j y_j <= L

As `knapsack`, whose symbols it shares, with a second price: `mu` per item.

1. Where the L most valuable items fit, or the optimum without the limit keeps it, that is the
   answer.
2. *Prices*: `g(mu) = mu L + Dantzig bound of the values v - mu` is convex and piecewise linear with
   slope `L - (items in its solution)`; the minimum is found where tangents from both sides cross
   (Kelley 1960; a handful of evaluations). Any `mu >= 0` is valid, so stopping early only loosens.
   `lam` is the break density there, `r_j = v_j - lam w_j - mu` the reduced value, and
   `z = lam C + mu L + sum_j max(0, r_j)` bounds the optimum.
3. *Reduction*: changing item j against {r_j > 0} loses `|r_j|` of z; an item whose loss reaches the
   gap to the incumbent stays as it is.
4. *Lists* of labels (count, weight, value) over the remaining items, smallest loss first, starting
   from {r_j > 0}, which need not be feasible: bound `V + lam (C - W) + mu (L - N)`; among labels of
   equal count the dominated ones go. Too long a list keeps the best bounds, as in `knapsack`.

Complexity: as `knapsack`, about twice the numpy calls per core item.
"""

import numpy as np

from tao_coordinator.scheduling.placement import knapsack
from tao_coordinator.scheduling.placement.knapsack import Knapsack, subset_of, subset_sums
from tao_coordinator.scheduling.placement.problem import Bool, Float64, Int64

_TANGENTS_MAX = 12
_HEAD = 8


def solve(
    weights: Int64,
    values: Int64,
    capacity: int,
    limit: int | None,
    labels_max: int = knapsack.LABELS_MAX,
    tolerance: int = 0,
) -> Knapsack:
    """Maximise the sum of values under both constraints.

    Args:
        weights: [n] tokens >= 0.
        values: [n]; items with values <= 0 are never chosen.
        capacity: tokens; below 0 nothing fits.
        limit: largest number of items; None: no limit.
        labels_max: longest list kept before labels are dropped.
        tolerance: by how much the answer may fall short (`knapsack`).
    """
    if limit is None:
        return knapsack.solve(weights, values, capacity, labels_max, tolerance)
    items = ((values > 0) & (weights <= capacity)).nonzero()[0]
    if limit <= 0 or not len(items):
        return Knapsack(items[:0], 0, 0, 4)
    w, v = weights[items], values[items]
    if limit == 1:
        best = int(v.argmax())
        return Knapsack(items[best : best + 1], int(v[best]), int(v[best]), 12)
    if len(items) <= knapsack.ENUMERATED_MAX:
        return _enumerate(items, w, v, capacity, limit)
    top = np.argpartition(-v, limit - 1)[:limit] if limit < len(v) else np.arange(len(v))
    if int(w[top].sum()) <= capacity:
        value = int(v[top].sum())
        return Knapsack(items[np.sort(top)], value, value, 24)
    free = knapsack.solve(w, v, capacity, labels_max, tolerance)
    if len(free.chosen) <= limit:
        return Knapsack(items[free.chosen], free.value, free.bound, 24 + free.work)
    search = _Search(w, v, capacity, limit, labels_max, tolerance)
    taken, bound = search.run()
    value = int(v[taken].sum())
    bound = max(value, min(bound, free.bound))
    return Knapsack(items[taken], value, bound, 24 + free.work + search.work)


def seat_price(weights: Int64, values: Int64, capacity: int, limit: int | None) -> int:
    """A good `mu`: what one more item would be worth, where the limit binds."""
    items = ((values > 0) & (weights <= capacity)).nonzero()[0]
    if limit is None or limit <= 0 or len(items) <= limit:
        return 0
    return max(0, round(_prices(weights[items], values[items], capacity, limit)[1]))


def _enumerate(items: Int64, w: Int64, v: Int64, capacity: int, limit: int) -> Knapsack:
    sums = subset_sums(v)
    sums[(subset_sums(w) > capacity) | (subset_sums(np.ones_like(w)) > limit)] = -1
    best = int(sums.argmax())
    value = int(sums[best])
    return Knapsack(items[subset_of(best, len(items))], value, value, 28)


def _relax(w: Int64, v: Int64, capacity: int, limit: int, mu: float) -> tuple[float, float, float]:
    """Value of g at mu, its slope, and the break density."""
    worth = v - mu
    items = (worth > 0).nonzero()[0]
    density = worth[items] / np.maximum(w[items], 1e-9)
    items = items[density.argsort()[::-1]]
    filled = w[items].cumsum()
    fit = int(filled.searchsorted(capacity, side="right"))
    value, count, lam = float(worth[items[:fit]].sum()), float(fit), 0.0
    if fit < len(items):
        breaker = int(items[fit])
        lam = float(worth[breaker]) / float(max(w[breaker], 1e-9))
        room = capacity - (int(filled[fit - 1]) if fit else 0)
        value += lam * room
        count += room / float(w[breaker])
    return value + mu * limit, limit - count, lam


def _prices(w: Int64, v: Int64, capacity: int, limit: int) -> tuple[float, float]:
    """Break density and price per item near the minimum of g."""
    low, high = 0.0, float(v.max())
    value_low, slope_low, lam = _relax(w, v, capacity, limit, low)
    value_high, slope_high = high * limit, float(limit)
    best, mu_best, lam_best = value_low, low, lam
    for _ in range(_TANGENTS_MAX):
        if slope_low >= 0 or slope_high <= 0 or high - low <= 1e-12 * high:
            break
        mu = (value_high - slope_high * high - value_low + slope_low * low) / (
            slope_low - slope_high
        )
        if not low < mu < high:
            break
        value, slope, lam = _relax(w, v, capacity, limit, mu)
        crossing = value_low + slope_low * (mu - low)
        if value < best:
            best, mu_best, lam_best = value, mu, lam
        if slope < 0:
            low, value_low, slope_low = mu, value, slope
        else:
            high, value_high, slope_high = mu, value, slope
        if value - crossing <= 1e-9 * abs(crossing) or slope == 0:
            break
    return lam_best, mu_best


class _Search:
    """Steps 2-4 where the limit binds."""

    def __init__(
        self, w: Int64, v: Int64, capacity: int, limit: int, labels_max: int, tolerance: int
    ) -> None:
        self.w, self.v, self.capacity, self.limit = w, v, capacity, limit
        self.labels_max, self.tolerance = labels_max, tolerance
        self.lam, self.mu = _prices(w, v, capacity, limit)
        self.reduced: Float64 = v - self.lam * w - self.mu
        positive = np.maximum(self.reduced, 0.0).sum()
        self.relaxed = float(self.lam * capacity + self.mu * limit + positive)
        scale = self.lam * float(w.sum()) + self.mu * len(w) + float(np.abs(self.reduced).sum())
        # Sums of len(w) terms; each of a few roundings.
        self.slack = max(1.0, 2.0**-48 * (self.relaxed + scale))
        self.start: Bool = self.reduced > 0
        self.dropped = 0
        self.work = 70 + len(w) // 4
        self.greedy = self._greedy()
        self.incumbent = int(v[self.greedy].sum())

    def run(self) -> tuple[Int64, int]:
        """Positions taken, and a bound."""
        loss = np.abs(self.reduced)
        core = (loss < self._gap()).nonzero()[0]
        core = core[loss[core].argsort(kind="stable")]
        changed = self._expand(core, loss[core].tolist())
        bound = max(self.incumbent + self.tolerance, self.dropped)
        bound = min(bound, int(self.relaxed + self.slack) + 1)
        if changed is None:
            return self.greedy, bound
        taken = self.start.copy()
        taken[core[changed]] ^= True
        return taken.nonzero()[0], bound

    def _gap(self) -> float:
        return self.relaxed - self.incumbent - self.tolerance + self.slack

    def _threshold(self) -> float:
        return self.incumbent + self.tolerance - self.slack

    def _greedy(self) -> Int64:
        """By falling reduced value, whatever still fits."""
        room, taken = self.capacity, list[int]()
        for position in self.reduced.argsort(kind="stable")[::-1].tolist():
            if int(self.w[position]) <= room:
                taken.append(position)
                room -= int(self.w[position])
                if len(taken) == self.limit:
                    break
        return np.array(sorted(taken), np.int64)

    def _bounds(self, n: Int64, w: Int64, v: Int64) -> Float64:
        return v + self.lam * (self.capacity - w) + self.mu * (self.limit - n)

    def _improve(self, n: Int64, w: Int64, v: Int64) -> int | None:
        """Best feasible label, if any; raises the incumbent."""
        feasible = ((w <= self.capacity) & (n <= self.limit)).nonzero()[0]
        if not len(feasible):
            return None
        best = int(feasible[v[feasible].argmax()])
        self.incumbent = max(self.incumbent, int(v[best]))
        return best

    def _expand(self, core: Int64, losses: list[float]) -> Int64 | None:
        """Positions in `core` that the best label changes, if it beats the greedy plan."""
        head, before = min(_HEAD, len(core)), self.incumbent
        sign = np.where(self.start[core], -1, 1)
        dw, dv = self.w[core] * sign, self.v[core] * sign
        n = int(self.start.sum()) + subset_sums(sign[:head])
        w = int(self.w[self.start].sum()) + subset_sums(dw[:head])
        v = int(self.v[self.start].sum()) + subset_sums(dv[:head])
        self._improve(n, w, v)
        index = (self._bounds(n, w, v) >= self._threshold()).nonzero()[0]
        n, w, v = n[index], w[index], v[index]
        history: list[tuple[int, int, Int64]] = [(-1, 0, index)]
        for k in range(head, len(core)):
            if losses[k] >= self._gap():
                break
            old = len(n)
            n = np.concatenate((n, n + int(sign[k])))
            w = np.concatenate((w, w + int(dw[k])))
            v = np.concatenate((v, v + int(dv[k])))
            best = self._improve(n, w, v)
            kept = self._select(n, w, v, best)
            history.append((k, old, kept))
            n, w, v = n[kept], w[kept], v[kept]
            self.work += 42 + old // 12
        best = self._improve(n, w, v)
        if best is None or int(v[best]) <= before:
            return None
        return _backtrack(history, best, head)

    def _select(self, n: Int64, w: Int64, v: Int64, best: int | None) -> Int64:
        """Labels that may still win: not dominated at equal count, bound above the incumbent."""
        bound = self._bounds(n, w, v)
        kept = (bound >= self._threshold()).nonzero()[0]
        if len(kept) > self.labels_max:
            ranked = kept[np.argpartition(-bound[kept], self.labels_max)]
            worst = float(bound[ranked[self.labels_max :]].max())
            self.dropped = max(self.dropped, int(worst + self.slack) + 1)
            kept = ranked[: self.labels_max]
            if best is not None and best not in kept:
                kept = np.append(kept, best)
        # Rising count, then weight; equal weights: larger value first.
        kept = kept[np.lexsort((-v[kept], w[kept], n[kept]))]
        if len(kept) < 2:
            return kept
        # Running maximum of the value inside each count: values as dense ranks, counts as offsets.
        order = v[kept].argsort(kind="stable")
        rank = np.empty(len(kept), np.int64)
        rank[order] = np.append(0, (np.diff(v[kept][order]) > 0).cumsum())
        level = rank + n[kept] * len(kept)
        best_so_far = np.maximum.accumulate(level)
        stay = np.ones(len(kept), bool)
        stay[1:] = level[1:] > best_so_far[:-1]
        return kept[stay]


def _backtrack(history: list[tuple[int, int, Int64]], label: int, head: int) -> Int64:
    changed: list[int] = []
    for k, old, index in reversed(history):
        label = int(index[label])
        if k < 0:
            break
        if label >= old:
            changed.append(k)
            label -= old
    return np.append(np.array(changed, np.int64), subset_of(label, head))
