"""The few series of interest out of a Prometheus text page, added up the way engines mean them.

A page holds hundreds of histogram lines that nobody here needs, and the Prometheus parser walks a
line character by character in Python. So one regular expression picks the lines of interest, and
the parse of a line's name and labels, which do not change between polls, is kept.

Traps that `Page` knows: one page may hold several data-parallel ranks, each with a cache of its own
(added up, or one picked); series of tensor- and pipeline-parallel ranks repeat the same number (the
largest counts); a total may stand beside its parts by rank or priority (never counted twice); parts
by anything else are added.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

LINES_MAX: Final = 4_096
"""Lines of interest read from one page."""

_REPLICAS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "ep_rank", "pid"})
"""Labels whose series repeat one number."""


_Labelled = tuple[Mapping[str, str], float]


class Picker:
    """Finds the lines of some metric families, with or without the suffix `_total`."""

    def __init__(self, names: Iterable[str], rank_label: str) -> None:
        """Look for `names`; `rank_label` tells the data-parallel ranks apart."""
        alternatives = "|".join(re.escape(name) for name in names)
        self._lines = re.compile(rf"^(?:{alternatives})(?:_total)?[{{ \t].*$", re.MULTILINE)
        self._rank_label = rank_label

    def page(self, text: str, rank: int | None) -> "Page":
        """Read a page; of one data-parallel rank where `rank` is given."""
        families: dict[str, list[_Labelled]] = defaultdict(list)
        for number, match in enumerate(self._lines.finditer(text)):
            if number >= LINES_MAX:
                break
            series = _series(match.group())
            if series is not None:
                name, labels, value = series
                families[name.removesuffix("_total")].append((labels, value))
        return Page(families, self._rank_label, None if rank is None else str(rank))


class Page:
    """The picked series. Every answer is `None` where the page does not say."""

    def __init__(
        self,
        families: Mapping[str, list[_Labelled]],
        rank_label: str,
        rank: str | None,
    ) -> None:
        self._families = families
        self._rank_label = rank_label
        self._rank = rank

    def sum(self, *names: str) -> float | None:
        """Sum over the ranks of the first of `names` that is there (newer names first)."""
        for name in names:
            parts = self._parts(name)
            if parts:
                return sum(value for _, value in parts)
        return None

    def max(self, *names: str) -> float | None:
        """Largest over the ranks of the first of `names` that is there."""
        for name in names:
            parts = self._parts(name)
            if parts:
                return max(value for _, value in parts)
        return None

    def sums_by(self, label: str, name: str) -> dict[str, float]:
        """Sums over the ranks by the values of one label."""
        sums: dict[str, float] = defaultdict(float)
        for labels, value in self._parts(name):
            sums[labels.get(label, "")] += value
        return dict(sums)

    def labels(self, name: str) -> list[Mapping[str, str]]:
        """Labels of one info metric by rank; a repeated rank counts once."""
        by_rank = {labels.get(self._rank_label, ""): labels for labels, _ in self._of_rank(name)}
        return list(by_rank.values())

    def where(self, name: str, label: str, value: str) -> float | None:
        """Smallest value over the ranks of the series with that label."""
        found = [v for labels, v in self._of_rank(name) if labels.get(label) == value]
        return min(found) if found else None

    def num_ranks(self, *names: str) -> int:
        """Data-parallel ranks on the whole page, at least 1."""
        ranks = {
            labels[self._rank_label]
            for name in names
            for labels, _ in self._families.get(name, ())
            if self._rank_label in labels
        }
        return max(1, len(ranks))

    def _parts(self, name: str) -> list[_Labelled]:
        """Series that add up: no repetition, no total beside its parts, nothing absurd."""
        parts: dict[frozenset[tuple[str, str]], _Labelled] = {}
        for labels, value in self._of_rank(name):
            if not (math.isfinite(value) and value >= 0.0):
                continue
            key = frozenset(item for item in labels.items() if item[0] not in _REPLICAS)
            known = parts.get(key)
            if known is None or value > known[1]:
                parts[key] = (labels, value)
        found = list(parts.values())
        if any(labels.get(self._rank_label) for labels, _ in found):
            found = [item for item in found if item[0].get(self._rank_label)]
        if any(labels.get("priority") == "" for labels, _ in found):
            found = [item for item in found if not item[0].get("priority")]
        return found

    def _of_rank(self, name: str) -> list[_Labelled]:
        series = self._families.get(name, [])
        if self._rank is None:
            return series
        return [item for item in series if item[0].get(self._rank_label) == self._rank]


def _series(line: str) -> tuple[str, Mapping[str, str], float] | None:
    end = line.rfind("}") + 1 or len(line.split(None, 1)[0])
    head, numbers = line[:end], line[end:].split()
    try:
        value = float(numbers[0])
    except (ValueError, IndexError):
        return None
    parsed = _head(head)
    return None if parsed is None else (*parsed, value)


@lru_cache(maxsize=16_384)
def _head(head: str) -> tuple[str, Mapping[str, str]] | None:
    try:
        for family in text_string_to_metric_families(head + " 1"):
            for sample in family.samples:
                return sample.name, sample.labels
    except (ValueError, IndexError, OverflowError):
        # The lax parser raises any of these for a line that is no sample.
        return None
    return None
