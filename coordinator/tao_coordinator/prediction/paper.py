"""The published predictor (TAO, Eq. 5-6 and Appendix A), as far as it is public.

    D    deadline: stated by the tool, else mean + margin of its tool, else of all tools, else 5 s
    rho  max(0, D - elapsed)                                                            (Eq. 5)
    r    1 once the end was seen; a probe when past D; 1 if rho <= H and D was set
         at most 30 s ago; else 0                                                       (Eq. 6)

The margin of Appendix A is made of count, mean, sample variance and observed range. The formula
itself is not public; the empirical Bernstein bound (Maurer and Pontil 2009, theorem 4) is built of
exactly these four and is used here, capped at the largest duration seen (`margin_is_capped`):
without the cap, ten calls are predicted a minute late. The bound is on the mean; using the observed
range voids even that, so the paper itself calls the margin heuristic, not calibrated.

Probes: a session past its deadline is "ready" for one window of H, then again after 1, 2, 4, ... s,
at most `probe_gap_s_max` apart. What this predictor claims, it claims as 0 or 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from tao_coordinator.core.events import Event
from tao_coordinator.prediction.calibration import Calibration, Coverage, Reliability
from tao_coordinator.prediction.remaining import READY, Point, Remaining, Source, last_of
from tao_coordinator.prediction.tracking import (
    AFTER_TOOL,
    WAIT,
    Call,
    SessionTrack,
    Told,
    Tracker,
)

TOOLS_MAX: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSettings:
    """Constants of Eq. 5-6 and of the reconstruction of Appendix A."""

    horizon_s: float = 1.0
    """H: predicted to return within this counts as ready."""
    stale_s: float = 30.0
    """A prediction older than this is not believed."""
    default_s: float = 5.0
    """D before any call has ended."""
    confidence_delta: float = 0.05
    """delta of the margin; not stated in the paper."""
    margin_is_capped: bool = True
    """D is at most the longest duration seen."""
    probe_gap_s_max: float = 30.0
    """Longest pause between two probes."""


@dataclass(slots=True)
class Moments:
    """Count, mean, variance and range of durations (Welford)."""

    count: float = 0.0
    mean_s: float = 0.0
    squares: float = 0.0
    lowest_s: float = math.inf
    highest_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """Count one duration."""
        self.count += 1.0
        delta = duration_s - self.mean_s
        self.mean_s += delta / self.count
        self.squares += delta * (duration_s - self.mean_s)
        self.lowest_s = min(self.lowest_s, duration_s)
        self.highest_s = max(self.highest_s, duration_s)

    def merge(self, other: "Moments") -> None:
        """Add those of another (Chan et al.)."""
        if not other.count:
            return
        count = self.count + other.count
        delta = other.mean_s - self.mean_s
        self.squares += other.squares + delta * delta * self.count * other.count / count
        self.mean_s += delta * other.count / count
        self.count = count
        self.lowest_s = min(self.lowest_s, other.lowest_s)
        self.highest_s = max(self.highest_s, other.highest_s)

    def deadline_s(self, settings: PaperSettings) -> float:
        """Mean plus the finite-sample margin; needs one duration."""
        if self.count < 2.0:
            return self.mean_s
        log_term = math.log(2.0 / settings.confidence_delta)
        variance = self.squares / (self.count - 1.0)
        margin_s = math.sqrt(2.0 * variance * log_term / self.count)
        spread_s = self.highest_s - self.lowest_s
        margin_s += 7.0 * spread_s * log_term / (3.0 * (self.count - 1.0))
        deadline_s = self.mean_s + margin_s
        return min(deadline_s, self.highest_s) if settings.margin_is_capped else deadline_s


class PaperPredictor:
    """Mean plus margin minus elapsed, with probes; see the module's header."""

    def __init__(self, settings: PaperSettings | None = None) -> None:
        """Start without history."""
        self.settings = settings or PaperSettings()
        self._tools: dict[str, Moments] = {}
        self._all = Moments()
        self._tracker = Tracker(self)
        self._reliability = Reliability()
        self._now_s = -math.inf

    def observe(self, event: Event, now_s: float) -> None:
        """See `ReadinessPredictor`."""
        self._tracker.observe(event, self._advance(now_s))

    def turn_ended(self, session_id: str, now_s: float) -> None:
        """See `ReadinessPredictor`."""
        self._tracker.turn_ended(session_id, self._advance(now_s))

    def forget(self, session_id: str) -> None:
        """See `ReadinessPredictor`."""
        self._tracker.forget(session_id)

    def remaining(self, session_id: str, now_s: float, *, call_id: str | None = None) -> Remaining:
        """See `ReadinessPredictor`."""
        now_s = self._advance(now_s)
        track = self._tracker.get(session_id)
        if track is None:
            return self._before(self.settings.default_s, 0.0, Source.PRIOR, "")
        if call_id is not None and call_id in track.calls:
            return self._of_call(track.calls[call_id], now_s)
        self._tracker.drop_expired(track, now_s)
        if track.deadline is not None:
            return self._of_told(track.deadline, now_s)
        answers = [self._of_call(call, now_s) for call in track.calls.values()]
        pause = track.pause
        if pause is not None and (pause.path[0] == WAIT or not answers):
            answers.append(self._of_pause(pause, now_s))
        if answers:
            return last_of(answers)
        if track.in_turn:
            return READY
        return self._before(self.settings.default_s, 0.0, Source.PRIOR, "")

    def calibration(self) -> Calibration:
        """See `ReadinessPredictor`; there is no interval to cover anything."""
        return Calibration(
            horizon_s=self.settings.horizon_s,
            by_source={"total": self._reliability.report()},
            coverage=Coverage().report(),
        )

    def export(self) -> dict[str, object]:
        """See `ReadinessPredictor`."""
        tools = {"": self._all, **self._tools}
        return {"tools": {name: _plain(moments) for name, moments in tools.items()}}

    def merge(self, exported: Mapping[str, object]) -> None:
        """See `ReadinessPredictor`."""
        tools = exported.get("tools")
        if not isinstance(tools, Mapping):
            raise ValueError("no tools in this export")
        checked = {
            str(name): _from_plain(values)
            for name, values in cast("Mapping[object, object]", tools).items()
        }
        for name, moments in checked.items():
            (self._tool(name) if name else self._all).merge(moments)

    # --- answers ---------------------------------------------------------------------------------

    def _of_call(self, call: Call, now_s: float) -> Remaining:
        if call.told is not None:
            return self._of_told(call.told, now_s)
        moments = self._tools.get(call.path[0])
        if moments is None and not call.is_pause:
            moments = self._all
        elapsed_s = now_s - call.started_s
        if moments is None or not moments.count:
            return self._before(self.settings.default_s, elapsed_s, Source.PRIOR, "")
        level = "all" if moments is self._all else "tool"
        deadline_s = moments.deadline_s(self.settings)
        return self._before(deadline_s, elapsed_s, Source.HISTORY, level)

    def _of_pause(self, pause: Call, now_s: float) -> Remaining:
        if pause.path[0] == AFTER_TOOL:
            return READY  # the end was seen: it wins over any prediction
        return self._of_call(pause, now_s)

    def _of_told(self, told: Told, now_s: float) -> Remaining:
        source = Source.PROGRESS if told.by_progress else Source.DEADLINE
        return self._before(told.remaining_s, now_s - told.at_s, source, "")

    def _before(self, deadline_s: float, elapsed_s: float, source: Source, level: str) -> Remaining:
        """Eq. 5 and 6 for a deadline that was set `elapsed_s` ago."""
        if elapsed_s >= deadline_s:
            law = Point(0.0, self._probes(elapsed_s - deadline_s))
        elif elapsed_s > self.settings.stale_s:
            law = Point(deadline_s - elapsed_s, False)
        else:
            law = Point(deadline_s - elapsed_s)
        return Remaining(law, source, level)

    def _probes(self, overdue_s: float) -> bool:
        """Whether a window of H is open: at 0, 1, 3, 7, ... s past the deadline."""
        opens_s, gap_s = 0.0, self.settings.horizon_s
        while opens_s + gap_s <= overdue_s:
            opens_s += gap_s
            gap_s = min(2.0 * gap_s, self.settings.probe_gap_s_max)
            if gap_s == self.settings.probe_gap_s_max:
                opens_s += gap_s * math.floor((overdue_s - opens_s) / gap_s)
                break
        return overdue_s - opens_s < self.settings.horizon_s

    # --- learning (Listener) ---------------------------------------------------------------------

    def call_started(self, track: SessionTrack, call: Call) -> None:
        """Write down the verdict on the next H, to be checked."""
        if not call.is_pause:
            answer = self._of_call(call, call.started_s)
            horizon_s = self.settings.horizon_s
            call.forecasts.append((horizon_s, answer.p_ready_by(horizon_s), answer.source))

    def call_over(self, track: SessionTrack, call: Call, duration_s: float, ended: bool) -> None:
        """Learn a duration; pauses are none."""
        if call.is_pause or not ended:
            return
        for due_s, probability, _ in call.forecasts:
            self._reliability.add(probability, duration_s <= due_s)
        self._all.add(duration_s)
        self._tool(call.path[0]).add(duration_s)

    def told_over(self, tool: str, told: Told, now_s: float) -> None:
        """Nothing to learn: stated times are taken at their word."""

    def _tool(self, name: str) -> Moments:
        moments = self._tools.get(name)
        if moments is None:
            if len(self._tools) >= TOOLS_MAX:
                del self._tools[min(self._tools, key=lambda tool: self._tools[tool].count)]
            moments = self._tools[name] = Moments()
        return moments

    def _advance(self, now_s: float) -> float:
        self._now_s = max(now_s, self._now_s)
        return self._now_s


def _plain(moments: Moments) -> list[float]:
    lowest_s = moments.lowest_s if moments.count else 0.0
    return [moments.count, moments.mean_s, moments.squares, lowest_s, moments.highest_s]


def _from_plain(values: object) -> Moments:
    fields = cast("list[object]", values) if isinstance(values, list) else []
    if len(fields) != 5:
        raise ValueError("moments of a tool are five numbers")
    numbers: list[float] = []
    for value in fields:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
            raise ValueError("moments of a tool are numbers >= 0")
        numbers.append(float(value))
    return Moments(*numbers)
