"""Is what was said also what happened? Online reliability of probabilities and intervals.

`Reliability` keeps the Brier score and a table of ten bins: of everything announced with about 30
%, how much came true. `Coverage` keeps an interval honest: after each miss it moves the quantile
level out, after each hit a little in (adaptive conformal inference, Gibbs and Candes 2021, per
side), so that the long-run share of misses is the nominal one whatever the durations do:

    level <- level + gain * (nominal - miss)

Counts are halved when they reach `FORGET_AT`, so that the figures speak of the recent past.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from tao_coordinator.core.observation import ReadinessView

NUM_BINS: Final = 10
FORGET_AT: Final = 20_000.0
GAIN: Final = 0.005
"""Step of the conformal correction: the share of misses is off by at most about 1 / (GAIN * n)."""
MISS: Final = 0.05
"""Nominal share of misses per side: a 90 % interval."""


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Forecasts of about the same probability."""

    count: float
    forecast: float
    """Mean probability announced."""
    observed: float
    """Share that came true."""


@dataclass(frozen=True, slots=True)
class ReliabilityReport:
    """How far probabilities can be trusted."""

    count: float
    brier: float
    """Mean squared difference of forecast and outcome; 0 is perfect."""
    base_rate: float
    """Share that came true."""
    calibration_error: float
    """Mean absolute difference of forecast and observed share over the bins."""
    bins: tuple[ReliabilityBin, ...]
    """Ten, by probability."""


@dataclass(frozen=True, slots=True)
class CoverageReport:
    """How often the stated 90 % interval held."""

    count: float
    covered: float
    """Share of durations inside."""
    too_short: float
    """Share below the interval."""
    too_long: float
    """Share above the interval."""
    levels: tuple[float, float]
    """Quantile levels in use now."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Everything known about a predictor's honesty."""

    horizon_s: float
    """The probabilities are of an end within this."""
    by_source: Mapping[str, ReliabilityReport]
    """By where the answer came from; `total` is all of them."""
    coverage: CoverageReport

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)

    def view(self) -> ReadinessView:
        """For the state API and the metrics."""
        total = self.by_source["total"]
        return ReadinessView(
            num_forecasts=total.count,
            horizon_s=self.horizon_s,
            brier=total.brier,
            calibration_error=total.calibration_error,
            interval_coverage=self.coverage.covered,
            detail=self.to_json(),
        )


class Reliability:
    """Collects forecasts and their outcomes."""

    __slots__ = ("_came_true", "_counts", "_squares", "_sums", "_total")

    def __init__(self) -> None:
        """Start empty."""
        self._counts = [0.0] * NUM_BINS
        self._sums = [0.0] * NUM_BINS
        self._came_true = [0.0] * NUM_BINS
        self._squares = 0.0
        self._total = 0.0

    def add(self, probability: float, came_true: bool) -> None:
        """Count one resolved forecast."""
        index = min(NUM_BINS - 1, int(probability * NUM_BINS))
        self._counts[index] += 1.0
        self._sums[index] += probability
        if came_true:
            self._came_true[index] += 1.0
            self._squares += (1.0 - probability) ** 2
        else:
            self._squares += probability * probability
        self._total += 1.0
        if self._total >= FORGET_AT:
            self._halve()

    def merge(self, other: "Reliability") -> None:
        """Add the counts of another."""
        for index in range(NUM_BINS):
            self._counts[index] += other._counts[index]
            self._sums[index] += other._sums[index]
            self._came_true[index] += other._came_true[index]
        self._squares += other._squares
        self._total += other._total

    def report(self) -> ReliabilityReport:
        """Summarise."""
        total = self._total or 1.0
        bins = tuple(
            ReliabilityBin(count, sums / (count or 1.0), true / (count or 1.0))
            for count, sums, true in zip(self._counts, self._sums, self._came_true, strict=True)
        )
        return ReliabilityReport(
            count=self._total,
            brier=self._squares / total,
            base_rate=sum(self._came_true) / total,
            calibration_error=sum(b.count * abs(b.forecast - b.observed) for b in bins) / total,
            bins=bins,
        )

    def _halve(self) -> None:
        self._counts = [value * 0.5 for value in self._counts]
        self._sums = [value * 0.5 for value in self._sums]
        self._came_true = [value * 0.5 for value in self._came_true]
        self._squares *= 0.5
        self._total *= 0.5


class Coverage:
    """Keeps the quantile levels of an interval such that it covers what it claims."""

    __slots__ = ("_above", "_below", "_high_miss", "_low_miss", "_total", "levels")

    def __init__(self) -> None:
        """Start at the nominal levels."""
        # Below 0 the interval is open on that side and cannot miss, which brings it back.
        self._low_miss = MISS
        self._high_miss = MISS
        self.levels: tuple[float, float] = MISS, 1.0 - MISS
        """Quantile levels of the two ends; 0 and 1 mean open."""
        self._below = 0.0
        self._above = 0.0
        self._total = 0.0

    def add(self, level: float) -> None:
        """Count one duration against the interval that was in use.

        Args:
            level: the quantile level at which the duration turned out to lie.
        """
        is_below = level < self.levels[0]
        is_above = level > self.levels[1]
        # A half is as narrow as an interval gets; going on would only delay the way back.
        self._low_miss = min(0.5, self._low_miss + GAIN * (MISS - is_below))
        self._high_miss = min(0.5, self._high_miss + GAIN * (MISS - is_above))
        self.levels = max(0.0, self._low_miss), 1.0 - max(0.0, self._high_miss)
        self._below += is_below
        self._above += is_above
        self._total += 1.0
        if self._total >= FORGET_AT:
            self._below *= 0.5
            self._above *= 0.5
            self._total *= 0.5

    def report(self) -> CoverageReport:
        """Summarise."""
        total = self._total or 1.0
        return CoverageReport(
            count=self._total,
            covered=1.0 - (self._below + self._above) / total if self._total else 0.0,
            too_short=self._below / total,
            too_long=self._above / total,
            levels=self.levels,
        )
