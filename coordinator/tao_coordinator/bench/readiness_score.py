"""How good forecasts of readiness were: F1, AUC, Brier, errors at start, coverage.

The threshold of F1 is chosen on the first third of the questions, in time order; everything is
reported on the rest.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Final, NamedTuple

WARM_UP: Final = 1 / 3
"""Share of the questions that choose the threshold and are not scored."""
CLOSE_S: Final = 0.5


class Forecast(NamedTuple):
    """One answer and what happened."""

    tool: str
    probability: float
    median_s: float
    came_true: bool

    @property
    def rank(self) -> tuple[float, float]:
        """Orders answers; a point predictor's 0s and 1s by its remaining time."""
        return self.probability, -self.median_s


class StartForecast(NamedTuple):
    """What was said of a call when it began."""

    at_s: float
    tool: str
    median_s: float
    interval_s: tuple[float, float]
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyScore:
    """Quality of "back within H" over a set of questions."""

    count: int
    base_rate: float
    threshold: float
    f1: float
    precision: float
    recall: float
    auc: float
    brier: float
    calibration_error: float
    """Mean absolute gap of forecast and observed share, over ten bins."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartScore:
    """Quality of the duration said at a call's start."""

    count: int
    mae_s: float
    close_share: float
    """Share within 0.5 s."""
    covered_share: float
    """Share of durations inside the 90 % interval."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def score_ready(forecasts: Sequence[Forecast], threshold: float | None = None) -> ReadyScore:
    """Score forecasts in time order; the first third only chooses the threshold.

    Args:
        forecasts: in time order.
        threshold: use this one and score everything.
    """
    cut = 0
    if threshold is None:
        cut = int(len(forecasts) * WARM_UP)
        threshold = best_threshold(forecasts[:cut])
    scored = forecasts[cut:]
    hits = sum(f.came_true and f.probability >= threshold for f in scored)
    flagged = sum(f.probability >= threshold for f in scored)
    positives = sum(f.came_true for f in scored)
    count = len(scored)
    return ReadyScore(
        count=count,
        base_rate=_ratio(positives, count),
        threshold=threshold,
        f1=_ratio(2 * hits, flagged + positives),
        precision=_ratio(hits, flagged),
        recall=_ratio(hits, positives),
        auc=area_under_curve(scored),
        brier=_ratio(sum((f.probability - f.came_true) ** 2 for f in scored), count),
        calibration_error=_calibration_error(scored),
    )


def score_starts(starts: Sequence[StartForecast]) -> StartScore:
    """Score what was said at the start of calls."""
    errors = [abs(start.median_s - start.duration_s) for start in starts]
    covered = sum(s.interval_s[0] <= s.duration_s <= s.interval_s[1] for s in starts)
    return StartScore(
        count=len(starts),
        mae_s=_ratio(sum(errors), len(errors)),
        close_share=_ratio(sum(error <= CLOSE_S for error in errors), len(errors)),
        covered_share=_ratio(covered, len(starts)),
    )


def best_threshold(forecasts: Sequence[Forecast]) -> float:
    """The probability from which to say "ready" for the largest F1; 0.5 without positives."""
    positives = sum(f.came_true for f in forecasts)
    best_f1, best = 0.0, 0.5
    hits = flagged = 0
    descending = sorted(forecasts, key=lambda f: -f.probability)
    for probability, group in groupby(descending, key=lambda f: f.probability):
        for forecast in group:
            flagged += 1
            hits += forecast.came_true
        f1 = _ratio(2 * hits, flagged + positives)
        if f1 > best_f1:
            best_f1, best = f1, probability
    return best


def area_under_curve(forecasts: Sequence[Forecast]) -> float:
    """P(a true case ranks above a false one), ties half; NaN-free: 0.5 without both kinds."""
    ordered = sorted(forecasts, key=lambda f: f.rank)
    positives = sum(f.came_true for f in ordered)
    negatives = len(ordered) - positives
    if not positives or not negatives:
        return 0.5
    wins = 0.0
    below = 0
    for _, group in groupby(ordered, key=lambda f: f.rank):
        outcomes = [f.came_true for f in group]
        true = sum(outcomes)
        false = len(outcomes) - true
        wins += true * (below + 0.5 * false)
        below += false
    return wins / (positives * negatives)


def by_tool(
    forecasts: Sequence[Forecast], threshold: float, count_min: int
) -> dict[str, ReadyScore]:
    """Scores per tool with a given threshold, the most asked first."""
    groups: dict[str, list[Forecast]] = defaultdict(list)
    for forecast in forecasts[int(len(forecasts) * WARM_UP) :]:
        groups[forecast.tool].append(forecast)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return {tool: score_ready(own, threshold) for tool, own in ordered if len(own) >= count_min}


def _calibration_error(forecasts: Sequence[Forecast]) -> float:
    gaps: dict[int, float] = defaultdict(float)
    for forecast in forecasts:
        gaps[min(9, int(forecast.probability * 10))] += forecast.probability - forecast.came_true
    return _ratio(math.fsum(abs(gap) for gap in gaps.values()), len(forecasts))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
