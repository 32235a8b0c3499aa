"""The answer to "when does this session come back?": a distribution, and where it comes from.

Laws are the shapes that a remaining time can have; `Remaining` is what the engine gets to see. All
are frozen: an answer stays what it was when further facts come in.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tao_coordinator.prediction.survival import DURATIONS, Curve

_BISECTIONS = 40


class Source(StrEnum):
    """Where an answer comes from, strongest evidence first."""

    TURN = "turn"
    """A turn is requested or running: nothing to wait for."""
    DEADLINE = "deadline"
    """The session or the call said when, or its time-out is all that is known."""
    PROGRESS = "progress"
    """The call said how far it is."""
    HISTORY = "history"
    """Past durations; `level` says whose."""
    PRIOR = "prior"
    """Nothing was seen yet."""


class Law(Protocol):
    """Distribution of a remaining time in seconds."""

    def p_by(self, horizon_s: float) -> float:
        """P(over within `horizon_s`)."""
        ...

    def quantile(self, share: float) -> float:
        """Seconds within which it is over with probability `share` in [0, 1)."""
        ...

    def keep(self, refill_s: float) -> tuple[float, float]:
        """Ski rental: seconds from now after which to give up, and the expected cost."""
        ...


@dataclass(frozen=True, slots=True)
class Aged:
    """A duration with a known curve that has lasted `age_s` already."""

    curve: Curve
    age_s: float
    limit_s: float = math.inf
    """Age at which it certainly ends: the harness's time-out. > age_s."""
    unit_s: float = 1.0
    """Seconds per unit of the curve's grid."""

    def p_by(self, horizon_s: float) -> float:
        """See `Law`."""
        if horizon_s < 0.0:
            return 0.0
        end_s = self.age_s + horizon_s
        if end_s >= self.limit_s:
            return 1.0
        curve, unit_s = self.curve, self.unit_s
        return -math.expm1(curve.hazard_to(self.age_s / unit_s) - curve.hazard_to(end_s / unit_s))

    def quantile(self, share: float) -> float:
        """See `Law`."""
        curve, unit_s = self.curve, self.unit_s
        hazard = curve.hazard_to(self.age_s / unit_s) - math.log1p(-share)
        end_s = min(self.limit_s, curve.value_at(hazard) * unit_s)
        return max(0.0, end_s - self.age_s)

    def keep(self, refill_s: float) -> tuple[float, float]:
        """See `Law`."""
        unit_s = self.unit_s
        end, cost = self.curve.keep(self.age_s / unit_s, refill_s / unit_s, self.limit_s / unit_s)
        return max(0.0, end * unit_s - self.age_s), cost * unit_s


@dataclass(frozen=True, slots=True)
class Overdue:
    """Past its time-out without an end: S(x) = scale / (scale + x), late begets later."""

    scale_s: float

    def p_by(self, horizon_s: float) -> float:
        """See `Law`."""
        return max(0.0, horizon_s) / (self.scale_s + max(0.0, horizon_s))

    def quantile(self, share: float) -> float:
        """See `Law`."""
        return self.scale_s * share / (1.0 - share)

    def keep(self, refill_s: float) -> tuple[float, float]:
        """See `Law`; the hazard 1 / (scale + x) falls, so give up where it reaches 1 / R."""
        limit_s = max(0.0, refill_s - self.scale_s)
        spent_s = self.scale_s * math.log1p(limit_s / self.scale_s)
        return limit_s, spent_s + refill_s * self.scale_s / (self.scale_s + limit_s)


@dataclass(frozen=True, slots=True)
class Point:
    """One number and a verdict, without any spread: what a point predictor claims."""

    remaining_s: float
    ready: bool | None = None
    """The verdict where it does not follow from `remaining_s`."""

    def p_by(self, horizon_s: float) -> float:
        """See `Law`."""
        if self.ready is not None:
            return float(self.ready)
        return float(self.remaining_s <= horizon_s)

    def quantile(self, share: float) -> float:
        """See `Law`."""
        return self.remaining_s

    def keep(self, refill_s: float) -> tuple[float, float]:
        """See `Law`."""
        if self.remaining_s <= refill_s:
            return math.inf, self.remaining_s
        return 0.0, refill_s


@dataclass(frozen=True, slots=True)
class LastOf:
    """The last of several independent ends: a session returns when its last blocking call does."""

    laws: tuple[Law, ...]

    def p_by(self, horizon_s: float) -> float:
        """See `Law`."""
        return math.prod(law.p_by(horizon_s) for law in self.laws)

    def quantile(self, share: float) -> float:
        """See `Law`; by bisection between two bounds from the members' quantiles."""
        low = max(law.quantile(share) for law in self.laws)
        high = max(law.quantile(share ** (1.0 / len(self.laws))) for law in self.laws)
        for _ in range(_BISECTIONS):
            if high - low <= 1e-3 * high:
                break
            middle = 0.5 * (low + high)
            if self.p_by(middle) < share:
                low = middle
            else:
                high = middle
        return high

    def keep(self, refill_s: float) -> tuple[float, float]:
        """See `Law`; on the grid of durations, by the trapezoid rule."""
        best_s, best_cost = 0.0, refill_s
        spent, at, alive = 0.0, 0.0, 1.0
        for edge in DURATIONS.edges[1:]:
            left = 1.0 - self.p_by(edge)
            spent += 0.5 * (alive + left) * (edge - at)
            at, alive = edge, left
            cost = spent + refill_s * left
            if cost < best_cost:
                best_s, best_cost = (math.inf if left <= 0.0 else edge), cost
            if left <= 0.0 or spent >= best_cost:
                break
        return (math.inf if best_s >= DURATIONS.edges[-1] else best_s), best_cost


@dataclass(frozen=True, slots=True)
class Remaining:
    """How long until a session wants its backend again, and how sure that is."""

    law: Law
    source: Source
    level: str
    """Whose history: `session`, `key`, `tool`, `all`; empty where the source is not history."""
    interval_levels: tuple[float, float] = (0.05, 0.95)
    """Quantile levels whose interval covers 90 %, corrected online."""

    def p_ready_by(self, horizon_s: float) -> float:
        """P(the session is back within `horizon_s` seconds)."""
        return self.law.p_by(horizon_s)

    def quantile(self, share: float) -> float:
        """Seconds within which it is back with probability `share`; `inf` from 1 on."""
        return math.inf if share >= 1.0 else self.law.quantile(max(0.0, share))

    @property
    def median_s(self) -> float:
        """As likely sooner as later."""
        return self.law.quantile(0.5)

    @property
    def interval_s(self) -> tuple[float, float]:
        """The interval that holds 90 % of the returns, as far as past coverage can tell."""
        low, high = self.interval_levels
        return self.quantile(low) if low > 0.0 else 0.0, self.quantile(high)

    def keep_limit_s(self, refill_s: float) -> float:
        """Seconds from now after which the seat is better given up; 0: now, `inf`: never.

        Args:
            refill_s: R, the price of losing the cache, seconds > 0.
        """
        return self.law.keep(refill_s)[0]

    def to_json(self, horizon_s: float) -> dict[str, object]:
        """Plain values for people and metrics; `None` stands for "never" and "no end"."""
        low_s, high_s = self.interval_s
        return {
            "median_s": _finite(self.median_s),
            "interval_s": [_finite(low_s), _finite(high_s)],
            "p_ready": self.p_ready_by(horizon_s),
            "source": self.source.value,
            "level": self.level,
        }

    def idle_cost_s(self, refill_s: float) -> float:
        """Expected cost of the best limit: idle seconds kept plus refills, at most `refill_s`."""
        return self.law.keep(refill_s)[1]


def _finite(value_s: float) -> float | None:
    return value_s if math.isfinite(value_s) else None


def last_of(answers: Sequence[Remaining]) -> Remaining:
    """When all of several are over; speaks for the one that is expected to last longest."""
    if len(answers) == 1:
        return answers[0]
    slowest = max(answers, key=lambda answer: answer.median_s)
    return Remaining(
        law=LastOf(tuple(answer.law for answer in answers)),
        source=slowest.source,
        level=slowest.level,
        interval_levels=slowest.interval_levels,
    )


READY = Remaining(law=Point(0.0), source=Source.TURN, level="")
"""The session wants its backend now."""
