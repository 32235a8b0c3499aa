"""Exact 0/1 knapsack on one backend: variable reduction, then lists around the break item.

    maximise  sum_j v_j y_j   subject to  sum_j w_j y_j <= C,  y_j in {0, 1}

Symbols: `w_j` weights, tokens; `v_j` values, integers (packed vectors: `packing`); `C` capacity,
tokens; `d_j = v_j / w_j` density; items in order of falling density; `s` the *break item*, the
first that no longer fits; `W_s, V_s` weight and value of the *break solution* {j < s};
`lam = d_s`.

1. *Bound*: `z = V_s + lam (C - W_s)` (Dantzig 1957). Changing item j against the break solution,
   taking one with j >= s out of turn or leaving one with j < s, loses `|v_j - lam w_j|` of it.
2. *Incumbent*: the break solution plus whatever still fits, in order of density.
3. *Reduction* (Ingargiola and Korsh 1973; Dembo and Hammer 1980): an item whose loss reaches the
   gap `z - incumbent` cannot be changed in a better solution. The rest is the *core*.
4. *Lists* (Nemhauser and Ullmann 1969; Pisinger's MINKNAP, 1997, for the order): core items one by
   one, outwards from the break item, each either as in the break solution or changed. A label is
   (weight, value); weights above C are allowed while items to be left out may still follow.
   Dominated labels go, and so do those whose bound
       V + (C - W) d      d = if W <= C the largest density not yet considered, else the smallest
                              of the break solution not yet considered (none left: infinite)
   is below the incumbent, which grows with the labels. The first few items are expanded at once,
   as all their subsets.

No capacity quantum: weights are exact. Densities are float64, so bounds carry a slack that covers
their rounding (values reach 2^61, float64 has 53 bits); decisions between labels are integer.
A list longer than `labels_max` keeps the labels with the best bounds; the best dropped one enters
`bound`, which is never below the optimum. With a `tolerance` > 0 only improvements larger than it
are searched for, and `bound` allows for the rest: enough while a sum of many knapsacks is coarse.

Complexity: sorting, plus one numpy merge per core item (a handful on average) over the list.
Departures from MINKNAP: vectorised lists, no division of items by stack, reduction against the
current incumbent instead of a second bound.
"""

from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement.problem import Bool, Float64, Int64

ENUMERATED_MAX = 10
"""So few items are tried in all combinations."""
_HEAD = 8
"""Core items expanded at once."""
LABELS_MAX = 2048
_BITS = [((np.arange(1 << c)[:, None] >> np.arange(c)[None, :]) & 1) for c in range(7)]
"""[2^c, c]: all subsets of c items."""


class Knapsack(NamedTuple):
    """An answer; it is the proved optimum where `bound == value`."""

    chosen: Int64
    """Indices of the chosen items."""
    value: int
    bound: int
    """Never below the optimum."""
    work: int
    """Work units spent (`effort`)."""

    @property
    def exact(self) -> bool:
        """Whether the optimum is proved."""
        return self.value == self.bound


def solve(
    weights: Int64,
    values: Int64,
    capacity: int,
    labels_max: int = LABELS_MAX,
    tolerance: int = 0,
) -> Knapsack:
    """Maximise the sum of values under `sum(weights) <= capacity`.

    Args:
        weights: [n] tokens >= 0.
        values: [n]; items with values <= 0 are never chosen.
        capacity: tokens; below 0 nothing fits.
        labels_max: longest list kept before labels are dropped.
        tolerance: by how much the answer may fall short.
    """
    items = ((values > 0) & (weights <= capacity)).nonzero()[0]
    w, v = weights[items], values[items]
    if not len(items) or int(w.sum()) <= capacity:
        value = int(v.sum())
        return Knapsack(items, value, value, 12)
    if len(items) <= ENUMERATED_MAX:
        sums = subset_sums(v)
        sums[subset_sums(w) > capacity] = -1
        best = int(sums.argmax())
        value = int(sums[best])
        return Knapsack(items[subset_of(best, len(items))], value, value, 18)
    order = (v / np.maximum(w, 1e-9)).argsort(kind="stable")[::-1]
    search = _Search(w[order], v[order], capacity, labels_max, tolerance)
    taken, bound = search.run()
    value = int(search.v[taken].sum())
    return Knapsack(items[order[taken]], value, max(value, bound), search.work)


def subset_sums(values: Int64) -> Int64:
    """[2^c] sums of all subsets of up to 12 values; bit j of the index says whether j is in."""
    half = len(values) // 2
    low = _BITS[half] @ values[:half]
    high = _BITS[len(values) - half] @ values[half:]
    return (high[:, None] + low[None, :]).ravel()


def subset_of(index: int, size: int) -> Int64:
    """Positions of the set bits."""
    return ((index >> np.arange(size)) & 1).nonzero()[0]


class _Search:
    """One run of steps 1-4. Items are in order of falling density and do not all fit."""

    def __init__(self, w: Int64, v: Int64, capacity: int, labels_max: int, tolerance: int) -> None:
        self.w, self.v, self.capacity, self.labels_max = w, v, capacity, labels_max
        self.tolerance = tolerance
        self.density: Float64 = v / np.maximum(w, 1e-9)
        self.work = 80 + len(w) // 16
        filled = w.cumsum()
        self.s = int(filled.searchsorted(capacity, side="right"))
        self.weight_s = int(filled[self.s - 1]) if self.s else 0
        self.value_s = int(v[: self.s].sum())
        lam = float(self.density[self.s])
        self.relaxed = self.value_s + lam * (capacity - self.weight_s)
        # Four roundings of quantities no larger than this.
        self.slack = max(1.0, 2.0**-49 * (self.relaxed + lam * float(filled[-1])))
        self.loss: Float64 = np.abs(v - lam * w)
        self.added: list[int] = []
        self.incumbent = self._greedy()
        self.dropped = 0

    def run(self) -> tuple[Int64, int]:
        """Positions taken, and a bound."""
        core = (self.loss < self._gap()).nonzero()[0]
        if not len(core):
            return self._greedy_positions(), self._bound()
        # Outwards from the break item, sides alternating.
        core = core[np.abs(2 * core + 1 - 2 * self.s).argsort(kind="stable")]
        return self._expand(core)

    def _gap(self) -> float:
        return self.relaxed - self.incumbent - self.tolerance + self.slack

    def _bound(self) -> int:
        if not self.tolerance:
            return max(self.incumbent, self.dropped)
        reached = max(self.incumbent + self.tolerance, self.dropped)
        return min(reached, int(self.relaxed + self.slack) + 1)

    def _greedy(self) -> int:
        room, value = self.capacity - self.weight_s, self.value_s
        position = self.s + 1
        while position < len(self.w):
            fits = self.w[position:] <= room
            skip = int(fits.argmax())
            if not fits[skip]:
                break
            position += skip
            self.added.append(position)
            room -= int(self.w[position])
            value += int(self.v[position])
            position += 1
        return value

    def _greedy_positions(self) -> Int64:
        return np.concatenate((np.arange(self.s), np.array(self.added, np.int64)))

    def _expand(self, core: Int64) -> tuple[Int64, int]:
        leaves = core < self.s
        sign = np.where(leaves, -1, 1)
        changes = self.w[core] * sign, self.v[core] * sign
        num, head = len(core), min(_HEAD, len(core))
        densities = _densities_to_come(self.density[core], leaves)
        label_w = self.weight_s + subset_sums(changes[0][:head])
        label_v = self.value_s + subset_sums(changes[1][:head])
        feasible = label_w <= self.capacity
        best = int(np.where(feasible, label_v, -1).argmax())
        changed: Int64 | None = None
        if feasible[best] and int(label_v[best]) > self.incumbent:
            self.incumbent = int(label_v[best])
            changed = core[subset_of(best, head)]
        if num > head:
            slopes: Float64 = np.array([densities[1][head], densities[0][head]])
            reach = label_v + (self.capacity - label_w) * slopes[feasible.astype(np.int64)]
            roots = (reach >= self.incumbent + self.tolerance - self.slack).nonzero()[0]
            roots = roots[label_w[roots].argsort(kind="stable")]
            deeper = self._merge(label_w[roots], label_v[roots], changes, densities, core)
            if deeper is not None:
                root, positions = deeper
                changed = core[np.append(subset_of(int(roots[root]), head), positions)]
        if changed is None:
            return self._greedy_positions(), self._bound()
        taken = np.zeros(len(self.w), bool)
        taken[: self.s] = True
        taken[changed] ^= True
        return taken.nonzero()[0], self._bound()

    def _merge(
        self,
        w: Int64,
        v: Int64,
        changes: tuple[Int64, Int64],
        densities: tuple[Float64, Float64],
        core: Int64,
    ) -> tuple[int, Int64] | None:
        """Expand the core after its head: root label and changed core positions, if better."""
        capacity, before = self.capacity, self.incumbent
        add_next: list[float] = densities[0].tolist()
        leave_next: list[float] = densities[1].tolist()
        dw: list[int] = changes[0].tolist()
        dv: list[int] = changes[1].tolist()
        losses: list[float] = self.loss[core].tolist()
        history: list[tuple[int, int, Int64]] = []
        for k in range(_HEAD, len(core)):
            fit = len(w)
            if leave_next[k] == np.inf:  # only additions follow: nothing above C survives
                fit = int(w.searchsorted(capacity - dw[k], side="right"))
            if not fit or losses[k] >= self._gap():
                continue
            old = len(w)
            w = np.concatenate((w, w[:fit] + dw[k]))
            v = np.concatenate((v, v[:fit] + dv[k]))
            index = w.argsort(kind="stable")
            w, v = w[index], v[index]
            best = np.maximum.accumulate(v)
            under = int(w.searchsorted(capacity, side="right"))
            if under:
                self.incumbent = max(self.incumbent, int(best[under - 1]))
            bound = (capacity - w).astype(np.float64)
            bound[:under] *= add_next[k + 1]
            bound[under:] *= leave_next[k + 1]
            bound += v
            keep = bound >= self.incumbent + self.tolerance - self.slack
            keep[1:] &= v[1:] > best[:-1]
            if under and self.tolerance:  # its own bound may be within the tolerance
                keep[int(v[:under].argmax())] = True
            kept = keep.nonzero()[0]
            self.work += 15 + len(index) // 32
            if len(kept) > self.labels_max:
                self.work += 20 + len(kept) // 64
                kept = self._thin(kept, bound[kept], v[kept], w[kept] <= capacity)
            history.append((k, old, index[kept]))
            w, v = w[kept], v[kept]
        under = int(w.searchsorted(capacity, side="right"))
        if not under or int(v[under - 1]) <= before:
            return None
        return _backtrack(history, under - 1)

    def _thin(self, kept: Int64, bound: Float64, v: Int64, feasible: Bool) -> Int64:
        ranked = np.argpartition(-bound, self.labels_max)
        worst = float(bound[ranked[self.labels_max :]].max())
        self.dropped = max(self.dropped, int(worst + self.slack) + 1)
        stay = np.zeros(len(kept), bool)
        stay[ranked[: self.labels_max]] = True
        stay[int(np.where(feasible, v, -1).argmax())] = True
        return kept[stay]


def _densities_to_come(density: Float64, leaves: Bool) -> tuple[Float64, Float64]:
    """[num + 1] each, after k core items: largest density to add, smallest to leave out."""
    num = len(density)
    add, leave = np.zeros(num + 1), np.full(num + 1, np.inf)
    add[:num][~leaves] = density[~leaves]
    leave[:num][leaves] = density[leaves]
    return (
        np.maximum.accumulate(add[::-1])[::-1],
        np.minimum.accumulate(leave[::-1])[::-1],
    )


def _backtrack(history: list[tuple[int, int, Int64]], label: int) -> tuple[int, Int64]:
    changed: list[int] = []
    for k, old, index in reversed(history):
        label = int(index[label])
        if label >= old:
            changed.append(k)
            label -= old
    return label, np.array(changed, np.int64)
