"""Bootstrap intervals, paired where the arms of a comparison ran the same sessions."""

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
    """Mean with its bootstrap interval; one value has no width that could be known."""
    data = np.asarray(values, np.float64)
    if len(data) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    picks = np.random.default_rng(_SEED).integers(0, len(data), (RESAMPLES, len(data)))
    return _interval(float(data.mean()), data[picks].mean(axis=1))


def ratio_interval(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Interval:
    """Ratio of two means over the units (sessions, seeds) that both arms have, paired.

    Units are resampled together, so what makes a unit long in both arms cancels.
    """
    keys = sorted(ours.keys() & theirs.keys())
    if not keys:
        return Interval(float("nan"), float("nan"), float("nan"))
    mine = np.array([ours[key] for key in keys], np.float64)
    other = np.array([theirs[key] for key in keys], np.float64)
    picks = np.random.default_rng(_SEED).integers(0, len(keys), (RESAMPLES, len(keys)))
    above, below = mine[picks].mean(axis=1), other[picks].mean(axis=1)
    if not other.mean():
        return Interval(float("nan"), float("nan"), float("nan"))
    # A resample in which the other arm has nothing says nothing about the ratio.
    ratios = above[below > 0.0] / below[below > 0.0]
    return _interval(float(mine.mean() / other.mean()), ratios)


def _interval(value: float, resampled: Floats) -> Interval:
    tail = 100.0 * (1.0 - CONFIDENCE) / 2.0
    low, high = np.percentile(resampled, [tail, 100.0 - tail])
    return Interval(value, float(low), float(high))
