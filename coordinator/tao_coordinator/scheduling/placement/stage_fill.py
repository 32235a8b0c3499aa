"""Fill what a credit core leaves over: packed class by class, smallest sessions first.

A plan that maximises credit leaves residual budgets; every session not in it has no credit worth
the room. Of those, in order of (class, readiness), as MANY as possible should be placed, so small
ones first; but placing the smallest first scatters them over the holes. So for each class:

    N* = largest N such that best-fit-decreasing packs ALL of the N smallest sessions   (bisection)

and these are placed so, the others smallest first. For the last class (ordinary, not ready) only
tokens are left to maximise: best-fit decreasing over all. Weights may differ between backends: a
session's size is its lightest, and the best fit is the smallest remainder.

Packing all of N is not monotone in N, so bisection finds a large N, not always the largest; the
answer is feasible in any case. Complexity: O(n m) per packing, O(log n) packings per class.
"""

import numpy as np

from tao_coordinator.scheduling.placement.effort import Meter
from tao_coordinator.scheduling.placement.packing import PackedProblem, Pairs
from tao_coordinator.scheduling.placement.problem import Int64


def fill(packed: PackedProblem, backend_of: Int64, meter: Meter) -> Int64:
    """[n] `backend_of` with waiting sessions added where they fit."""
    problem, pairs, backend_of = packed.source, packed.pairs, backend_of.copy()
    holes = _Holes(pairs, backend_of)
    waiting = (backend_of < 0) & (pairs.values >= 0).any(axis=1)
    lightest = np.where(pairs.values >= 0, pairs.weights, np.iinfo(np.int64).max).min(axis=1)
    for rank in np.unique(problem.classes[waiting])[::-1].tolist():
        for ready in (1, 0):
            group = (waiting & (problem.classes == rank) & (problem.ready == ready)).nonzero()[0]
            if not len(group):
                continue
            sessions: list[int] = group[lightest[group].argsort(kind="stable")].tolist()
            together = 0
            if rank == 0 and ready == 0:
                sessions.reverse()
            else:
                sizes = lightest[sessions].cumsum()
                together = holes.largest_packable(sessions, sizes)
            first, rest = sessions[:together][::-1], sessions[together:]
            for session, backend in holes.place(first) + holes.place(rest):
                backend_of[session] = backend
    meter.spend(holes.work)
    return backend_of


class _Holes:
    """Residual budgets and session limits."""

    def __init__(self, pairs: Pairs, backend_of: Int64) -> None:
        placed = (backend_of >= 0).nonzero()[0]
        load = np.zeros(len(pairs.budgets), np.int64)
        np.add.at(load, backend_of[placed], pairs.weights[placed, backend_of[placed]])
        used: list[int] = np.bincount(backend_of[placed], minlength=len(load)).tolist()
        self._room: list[int] = (pairs.budgets - load).tolist()
        self._seats = [
            len(backend_of) if limit is None else limit - count
            for limit, count in zip(pairs.limits, used, strict=True)
        ]
        self._fits: list[list[int]] = [row.nonzero()[0].tolist() for row in pairs.values >= 0]
        self._weights: list[list[int]] = pairs.weights.tolist()
        self.work = 30 + pairs.weights.size // 10

    def place(self, sessions: list[int]) -> list[tuple[int, int]]:
        """Pairs of session and backend, each by best fit in the given order; some may not fit."""
        placed: list[tuple[int, int]] = []
        for session in sessions:
            backend = self._best_fit(session, self._room, self._seats)
            if backend >= 0:
                self._room[backend] -= self._weights[session][backend]
                self._seats[backend] -= 1
                placed.append((session, backend))
        return placed

    def largest_packable(self, sessions: list[int], sizes: Int64) -> int:
        """How many of the first sessions best-fit-decreasing places without exception.

        Args:
            sessions: smallest first.
            sizes: [num] summed weights of the first sessions, tokens.
        """
        low, high = 0, int(sizes.searchsorted(sum(self._room), side="right"))
        while low < high:
            middle = (low + high + 1) // 2
            if self._packs(sessions[:middle][::-1]):
                low = middle
            else:
                high = middle - 1
        return low

    def _packs(self, sessions: list[int]) -> bool:
        room, seats = self._room[:], self._seats[:]
        for session in sessions:
            backend = self._best_fit(session, room, seats)
            if backend < 0:
                return False
            room[backend] -= self._weights[session][backend]
            seats[backend] -= 1
        return True

    def _best_fit(self, session: int, room: list[int], seats: list[int]) -> int:
        weights, best, left_best = self._weights[session], -1, 1 << 62
        for backend in self._fits[session]:
            left = room[backend] - weights[backend]
            if 0 <= left < left_best and seats[backend] > 0:
                best, left_best = backend, left
        self.work += 1 + len(self._fits[session]) // 8
        return best
