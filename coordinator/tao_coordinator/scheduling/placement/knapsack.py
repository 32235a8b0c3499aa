"""Exact 0/1 knapsack on one backend by lists of non-dominated (weight, value) pairs.

Nemhauser and Ullmann 1969, with the refinements measured in the placement study: items in order of
density, a Dantzig bound on every label against a greedy incumbent, and no merge at all for an item
that does not fit beside the lightest surviving label. No capacity quantum: weights are exact.

Cost is proportional to the number of surviving labels, typically tens of microseconds. A list
longer than `labels_max` is thinned to one label per weight bucket: the answer stays feasible,
`exact` says so.
"""

from typing import NamedTuple

import numpy as np

from tao_coordinator.scheduling.placement.problem import Int64


class Knapsack(NamedTuple):
    """Chosen item indices, ascending in density order, and whether the optimum is proved."""

    chosen: Int64
    exact: bool


def solve(weights: Int64, values: Int64, capacity: int, labels_max: int = 512) -> Knapsack:
    """Maximise the sum of values under `sum(weights) <= capacity`.

    Args:
        weights: [n] tokens >= 0.
        values: [n]; items with values <= 0 are never chosen.
        capacity: tokens; below 0 nothing fits.
        labels_max: longest list kept before thinning.
    """
    items = np.flatnonzero((values > 0) & (weights <= capacity))
    w, v = weights[items], values[items]
    if int(w.sum()) <= capacity:
        return Knapsack(items, True)
    order = np.argsort(-(v / np.maximum(w, 1)), kind="stable")
    items, w, v = items[order], w[order], v[order]
    return _solve_lists(items, w, v, capacity, labels_max)


def _solve_lists(items: Int64, w: Int64, v: Int64, capacity: int, labels_max: int) -> Knapsack:
    density = np.append(v / np.maximum(w, 1), 0.0)
    by_value = np.argsort(-v, kind="stable")
    incumbent = max(_greedy(w, v, capacity), _greedy(w[by_value], v[by_value], capacity))
    # Packed values reach 2^61, beyond the 53 bits of the density quotients.
    slack = max(1.0, incumbent * 1e-13)
    label_w, label_v = np.zeros(1, np.int64), np.zeros(1, np.int64)
    history: list[tuple[int, Int64] | None] = []
    exact = True
    for j in range(len(items)):
        room = capacity - int(w[j])
        if int(label_w[0]) > room:
            history.append(None)
            continue
        old = len(label_w)
        cut = label_w.searchsorted(room, side="right")
        merged_w = np.concatenate((label_w, label_w[:cut] + w[j]))
        merged_v = np.concatenate((label_v, label_v[:cut] + v[j]))
        index = np.argsort(merged_w, kind="stable")
        sorted_v = merged_v[index]
        best_so_far = np.maximum.accumulate(sorted_v)
        keep = np.ones(len(index), bool)
        keep[1:] = sorted_v[1:] > best_so_far[:-1]
        incumbent = max(incumbent, int(best_so_far[-1]))
        bound = sorted_v + (capacity - merged_w[index]) * density[j + 1]
        keep &= bound >= incumbent - slack
        index = index[keep]
        if len(index) > labels_max:
            exact = False
            bucket = (merged_w[index] * labels_max) // (capacity + 1)
            index = index[np.flatnonzero(np.append(bucket[1:] != bucket[:-1], True))]
        history.append((old, index))
        label_w, label_v = merged_w[index], merged_v[index]
    return Knapsack(items[_backtrack(history, len(label_v) - 1)], exact)


def _backtrack(history: list[tuple[int, Int64] | None], label: int) -> Int64:
    taken: list[int] = []
    for j in range(len(history) - 1, -1, -1):
        entry = history[j]
        if entry is None:
            continue
        old, index = entry
        label = int(index[label])
        if label >= old:
            taken.append(j)
            label -= old
    return np.array(taken[::-1], dtype=np.int64)


def _greedy(w: Int64, v: Int64, capacity: int) -> int:
    left, value = capacity, 0
    weights: list[int] = w.tolist()
    gains: list[int] = v.tolist()
    for weight, gain in zip(weights, gains, strict=True):
        if weight <= left:
            left -= weight
            value += gain
    return value
