r"""What was learned from past durations: life tables in a tree of keys, with back-off.

One `LifeTable` counts, per bucket, how many calls reached it and how many ended in it. A call that
still runs counts as having survived the buckets it has passed (censored), and one that its time-out
killed never counts as an end: the kill says nothing about calls with another time-out.

A table's end probability in a bucket blends its own counts with its parent's curve, as if the
parent had brought `PRIOR_WEIGHT` calls into that very bucket (a beta prior on each conditional
probability):

    q_i = (ended_i + c * q_i^parent) / (reached_i + c)

Far out, where a key has seen nothing, it therefore follows its parent, and ultimately a scale-free
prior. The tree: all calls -> tool -> tool + key; sessions come last, on top, and are held weakly.

Drift: counts are halved whenever a table has seen `FORGET_AT` calls, so that it remembers about the
last `FORGET_AT` of them; up to then order does not matter at all. Memory: `TABLES_MAX` tables; when
full, the least used quarter goes and use counts are halved.

Complexity: an update is O(buckets passed) per level; a curve is O(buckets) and kept while little
has changed.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, cast

import numpy as np

from tao_coordinator.prediction.survival import Curve, Floats, Grid

PRIOR_WEIGHT: Final = 4.0
"""Pseudo-counts that a parent brings into each bucket of its child."""
FORGET_AT: Final = 1000.0
"""Calls after which a table halves its counts."""
TABLES_MAX: Final = 2048
_STALE: Final = 0.1
"""A curve is kept until its table has changed as often as this share of the calls it has seen."""
_SETTLED: Final = 10.0 * PRIOR_WEIGHT
"""Calls from which on a table no longer looks whether its parent has changed."""
_FORMAT: Final = 1
_DEPTH_MAX: Final = 2
_COUNT_MAX: Final = 1e5
"""No table holds more; and up to here three levels that agree leave a probability below 1."""

Path = tuple[str, ...]


class LifeTable:
    """Counts of one key: how many reached each bucket, how many ended there."""

    __slots__ = ("_changes", "_curve", "_fresh_until", "_parent", "ended", "reached", "uses")

    def __init__(self, grid: Grid) -> None:
        """Start empty."""
        self.reached: Floats = np.zeros(grid.num_closed)
        self.ended: Floats = np.zeros(grid.num_closed)
        self.uses = 0.0
        """Calls seen, halved with the counts."""
        self._changes = 0
        self._fresh_until = -1
        self._curve: Curve | None = None
        self._parent: Curve | None = None

    def survived(self, first: int, last: int) -> None:
        """One more call has passed the buckets `first` to `last` - 1.

        With `last` < `first` it turned out to have ended before what was counted already.
        """
        if last > first:
            self.reached[first:last] += 1.0
        elif last < first:
            part = slice(last, first)
            self.reached[part] = np.maximum(self.reached[part] - 1.0, self.ended[part])
        self._changes += 1

    def close(self, index: int, *, ended: bool) -> None:
        """One more call is over; the buckets it had passed were counted by `survived`.

        An end is spread over its bucket and half of each neighbour: where exactly the edge of a
        bucket lies is an accident, and few ends make a ragged curve.

        Args:
            index: bucket in which it is over.
            ended: False: it was killed or lost there, how long it would have run is unknown.
        """
        reached, counts = self.reached, self.ended
        if ended and index < len(counts):
            if 0 < index < len(counts) - 1:
                counts[index - 1] += 0.25
                counts[index] += 0.5
                counts[index + 1] += 0.25
                reached[index] += 0.75
                reached[index + 1] += 0.25
            else:
                counts[index] += 1.0
                reached[index] += 1.0
        self._changes += 1
        self.uses += 1.0
        if self.uses >= FORGET_AT:
            self.halve()

    def halve(self) -> None:
        """Forget half of everything."""
        self.reached *= 0.5
        self.ended *= 0.5
        self.uses *= 0.5

    def curve(self, parent: Curve) -> Curve:
        """This key's curve, blended with its parent's."""
        curve = self._curve
        if curve is not None and self._parent is parent and self._changes <= self._fresh_until:
            return curve
        self._parent = parent
        self._fresh_until = self._changes + int(_STALE * self.uses)
        ends = PRIOR_WEIGHT * parent.ends
        ends += self.ended
        ends /= self.reached + PRIOR_WEIGHT
        self._curve = curve = Curve(parent.grid, ends)
        return curve

    def settled_curve(self) -> Curve | None:
        """The latest curve, if the table's own counts carry it and have hardly changed since."""
        is_settled = self.uses >= _SETTLED and self._changes <= self._fresh_until
        return self._curve if is_settled else None

    def export(self) -> list[list[float]]:
        """Counts as plain values, trailing zeros cut."""
        return [_trimmed(self.reached), _trimmed(self.ended)]

    def merge(self, reached: list[float], ended: list[float], uses: float) -> None:
        """Add the counts of another table."""
        for mine, theirs in ((self.reached, reached), (self.ended, ended)):
            mine[: len(theirs)] += theirs
        self.uses += uses
        self._changes += max(1, int(uses))
        while self.uses >= FORGET_AT:
            self.halve()


class History:
    """A tree of life tables; a path names a key from coarse to fine."""

    def __init__(self, prior: Curve) -> None:
        """Start empty.

        Args:
            prior: what is believed before anything was seen; gives the grid too.
        """
        self.prior = prior
        self.grid = prior.grid
        self._root = LifeTable(self.grid)
        self._tables: dict[Path, LifeTable] = {}
        self._levels: dict[Path, tuple[LifeTable, ...]] = {}
        """Look-ups of `levels`, as far as they still hold."""

    def __len__(self) -> int:
        """Tables kept, the root not counted."""
        return len(self._tables)

    def levels(self, path: Path) -> tuple[LifeTable, ...]:
        """Tables from the root down to `path`; made where missing."""
        found = self._levels.get(path)
        if found is None:
            parts = [path[:depth] for depth in range(1, len(path) + 1)]
            if len(self._tables) + len(parts) > TABLES_MAX:
                self._evict()
            tables = [self._tables.setdefault(part, LifeTable(self.grid)) for part in parts]
            found = self._levels[path] = (self._root, *tables)
        return found

    def known(self, path: Path) -> tuple[LifeTable, ...]:
        """Like `levels`, but only as deep as something was seen; makes nothing."""
        found = [self._root]
        for depth in range(1, len(path) + 1):
            table = self._tables.get(path[:depth])
            if table is None:
                break
            found.append(table)
        return tuple(found)

    def curve(self, levels: tuple[LifeTable, ...]) -> Curve:
        """The curve of the finest of `levels`."""
        own = levels[-1].settled_curve()
        if own is not None:
            return own
        curve = self.prior
        for table in levels:
            curve = table.curve(curve)
        return curve

    def _evict(self) -> None:
        """Drop the least used quarter; halve the use of the rest, so that the past fades."""
        by_use = sorted(self._tables, key=lambda path: self._tables[path].uses)
        for path in islice(by_use, len(by_use) // 4 + 1):
            del self._tables[path]
        for table in self._tables.values():
            table.uses *= 0.5
        self._levels.clear()

    # --- across restarts -------------------------------------------------------------------------

    def export(self) -> dict[str, object]:
        """Everything learned, as plain values (JSON)."""
        tables = [[list(path), table.uses, *table.export()] for path, table in self._all()]
        return {"version": _FORMAT, "edges": list(self.grid.edges), "tables": tables}

    def merge(self, exported: Mapping[str, object]) -> None:
        """Add what another history has learned.

        Raises:
            ValueError: not an export of this version and grid; nothing is changed then.
        """
        if exported.get("version") != _FORMAT or exported.get("edges") != list(self.grid.edges):
            raise ValueError("history of another version or grid")
        for path, uses, reached, ended in _checked(exported.get("tables"), self.grid.num_closed):
            self.levels(path)[-1].merge(reached, ended, uses)

    def _all(self) -> list[tuple[Path, LifeTable]]:
        return [((), self._root), *self._tables.items()]


def _checked(tables: object, size: int) -> list[tuple[Path, float, list[float], list[float]]]:
    if not isinstance(tables, list):
        raise ValueError("history without a list of tables")
    checked: list[tuple[Path, float, list[float], list[float]]] = []
    for item in cast("list[object]", tables):
        fields = cast("list[object]", item) if isinstance(item, list) else []
        if len(fields) != 4:
            raise ValueError("a history table has four fields")
        names, uses, reached, ended = fields
        if not isinstance(names, list) or not all(
            isinstance(name, str) for name in cast("list[object]", names)
        ):
            raise ValueError("a history table is named by strings")
        path = tuple(cast("list[str]", names))
        if len(path) > _DEPTH_MAX:
            raise ValueError("a history table is named by a tool and a key at most")
        checked.append((path, _counts([uses], 1)[0], _counts(reached, size), _counts(ended, size)))
    return checked


def _counts(values: object, size: int) -> list[float]:
    if not isinstance(values, list) or len(cast("list[object]", values)) > size:
        raise ValueError("counts of a history table are a list within its grid")
    counts: list[float] = []
    for value in cast("list[object]", values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("counts of a history table are numbers")
        # A comparison with NaN is false, so this refuses it too.
        if not 0 <= value <= _COUNT_MAX:
            raise ValueError("counts of a history table are from 0 to 1e5")
        counts.append(float(value))
    return counts


def _trimmed(counts: Floats) -> list[float]:
    return np.trim_zeros(counts, "b").tolist()
