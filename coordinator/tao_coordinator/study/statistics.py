"""Bootstrap intervals, paired where the arms of a comparison ran the same sessions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tao_coordinator.simulation.run_record import Floats

RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
_SEED: Final = 20_261


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and where it may lie."""

    value: float
    low: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean with its bootstrap interval; one value has none, and none has no mean (not a number)."""
    data = np.asarray(values, np.float64)
    if len(data) < 2:
        return Interval(float(data[0]) if len(data) else math.nan, math.nan, math.nan)
    picks = np.random.default_rng(_SEED).integers(0, len(data), (RESAMPLES, len(data)))
    return _interval(float(data.mean()), data[picks].mean(axis=1))


def ratio_interval(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Interval:
    """Ratio of two means over the units (sessions, seeds) that both arms have, paired.

    Units are resampled together, so what makes a unit long in both arms cancels. One unit has no
    interval.
    """
    keys = sorted(ours.keys() & theirs.keys())
    mine = np.array([ours[key] for key in keys], np.float64)
    other = np.array([theirs[key] for key in keys], np.float64)
    if not keys or not other.mean():
        return Interval(math.nan, math.nan, math.nan)
    value = float(mine.mean() / other.mean())
    if len(keys) == 1:
        return Interval(value, math.nan, math.nan)
    picks = np.random.default_rng(_SEED).integers(0, len(keys), (RESAMPLES, len(keys)))
    above, below = mine[picks].mean(axis=1), other[picks].mean(axis=1)
    # A resample in which the other arm has nothing says nothing about the ratio.
    ratios = above[below > 0.0] / below[below > 0.0]
    return _interval(value, ratios)


def _interval(value: float, resampled: Floats) -> Interval:
    tail = 100.0 * (1.0 - CONFIDENCE) / 2.0
    low, high = np.percentile(resampled, [tail, 100.0 - tail])
    return Interval(value, float(low), float(high))
