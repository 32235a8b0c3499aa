"""Rooms that are left, found by size: best fit in O(log m)."""

from bisect import bisect_left, insort

import numpy as np

from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.placement.sparse.instance import SparseInstance
from tao_coordinator.scheduling.placement.sparse.state import SparsePlan

KINDS_MAX = 16
"""Beyond so many kinds of backends, searching each kind's rooms costs too much to try packings."""


class Holes:
    """Rooms of the backends that may still take a session, by kind and size."""

    def __init__(self, plan: SparsePlan) -> None:
        self._plan, instance = plan, plan.instance
        self._instance: SparseInstance = instance
        num_kinds = instance.weights.shape[1]
        self._rooms: list[list[tuple[int, int]]] = [[] for _ in range(num_kinds)]
        free = ((plan.seats > 0) & (plan.room >= 0)).nonzero()[0]
        for b in free[plan.room[free].argsort(kind="stable")].tolist():
            self._rooms[int(instance.kind_of[b])].append((int(plan.room[b]), b))
        self.work = 20 + len(free) // 4

    def largest(self) -> int:
        """Largest room, tokens."""
        return max((rooms[-1][0] for rooms in self._rooms if rooms), default=0)

    def total(self) -> int:
        """All rooms together, tokens."""
        return sum(room for rooms in self._rooms for room, _ in rooms)

    def place(self, sessions: list[int]) -> None:
        """Put sessions into the plan one after the other, each where the least room remains."""
        who: list[int] = []
        where: list[int] = []
        seats: list[int] = self._plan.seats.tolist()
        for session in sessions:
            found = self._best(session, self._rooms)
            if found is None:
                continue
            kind, index, left = found
            _, b = self._rooms[kind].pop(index)
            seats[b] -= 1
            if seats[b] > 0:
                insort(self._rooms[kind], (left, b))
            who.append(session)
            where.append(b)
        self._plan.place(np.array(who, np.int64), np.array(where, np.int64))

    def packs(self, sessions: list[int]) -> bool:
        """Whether `place` would place every one of them."""
        rooms = [kind[:] for kind in self._rooms]
        seats: list[int] = self._plan.seats.tolist()
        for session in sessions:
            found = self._best(session, rooms)
            if found is None:
                return False
            kind, index, left = found
            _, b = rooms[kind].pop(index)
            seats[b] -= 1
            if seats[b] > 0:
                insort(rooms[kind], (left, b))
        return True

    def _best(
        self, session: int, rooms: list[list[tuple[int, int]]]
    ) -> tuple[int, int, int] | None:
        """Kind, position and remainder of the best fit."""
        best: tuple[int, int, int] | None = None
        weights: list[int] = self._instance.weights[session].tolist()
        eligible: list[bool] = self._instance.eligible[session].tolist()
        for kind, (weight, allowed) in enumerate(zip(weights, eligible, strict=True)):
            if not allowed:
                continue
            index = bisect_left(rooms[kind], (weight, -1))
            if index < len(rooms[kind]):
                left = rooms[kind][index][0] - weight
                if best is None or left < best[2]:
                    best = kind, index, left
        self.work += 2 + len(weights) // 3
        return best


def largest_packable(holes: Holes, sessions: list[int], sizes: Int64) -> int:
    """How many of the first sessions best-fit-decreasing places without exception.

    Args:
        holes: rooms.
        sessions: smallest first.
        sizes: [num] summed weights of the first sessions, tokens.
    """
    low, high = 0, int(sizes.searchsorted(holes.total(), side="right"))
    while low < high:
        middle = (low + high + 1) // 2
        if holes.packs(sessions[:middle][::-1]):
            low = middle
        else:
            high = middle - 1
    return low
