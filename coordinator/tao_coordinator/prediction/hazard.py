"""The default predictor: empirical hazards with back-off, calibrated, from direct evidence first.

Evidence, strongest first: a deadline of the session or call, its progress, its own session's recent
calls of the same key, the key's history, the tool's, that of all calls, a scale-free prior. A
declared time-out is the upper end of every distribution. Stated times are not taken at their word:
the ratio of actual to stated time is learned like a duration, per tool, so that a harness that
always promises 10 s and takes 100 is believed for what it is.

Running calls of all sessions count as censored observations: at 1 s and whenever its age has
tripled, a call's key learns that it survived, so that a hang is noticed while it lasts. At the same
moments, and at its start, the predictor writes down its own forecast for the next `horizon_s` and
checks it later: that is the reliability it reports.

Two thirds of tool calls end within a second, and "mean minus elapsed" says "now" about every call
that is late. A hazard says the opposite where the data does.
"""

import heapq
import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, cast

import numpy as np

from tao_coordinator.core.events import Event
from tao_coordinator.prediction.calibration import (
    Calibration,
    Coverage,
    Reliability,
    ReliabilityReport,
)
from tao_coordinator.prediction.history import PRIOR_WEIGHT, History, LifeTable
from tao_coordinator.prediction.remaining import (
    READY,
    Aged,
    Law,
    Overdue,
    Remaining,
    Source,
    last_of,
)
from tao_coordinator.prediction.survival import DURATIONS, Curve, Grid, scale_free
from tao_coordinator.prediction.tracking import (
    AFTER_TURN,
    WAIT,
    Call,
    SessionTrack,
    Told,
    Tracker,
)

RECENT_MAX: Final = 4
"""Latest durations remembered per session and key: never more than the key's own pseudo-counts."""
RECENT_KEYS_MAX: Final = 32
"""Keys remembered per session."""
KILLED_RATIO: Final = 0.95
"""A call that lasted this share of its time-out, or more, was killed by it ..."""
SPARED_RATIO: Final = 1.1
SPARED_S: Final = 2.0
"""... unless it lasted past both: then the time-out is not enforced, and the end was its own."""
PRIOR_EXPONENT: Final = 0.5
"""The prior: doubling its age, a call ends with probability 1 - 2^-0.5 = 29 %."""
TOLD_OFFSET_S: Final = 0.25
"""Resolution of stated times: added to both sides of the ratio of actual to stated."""

_FIRST_WATCHED: Final = DURATIONS.index(1.0) + 1
_WATCHED_EVERY: Final = 5
"""Edges between two looks at a running call: its age triples."""
_LEVELS: Final = ("all", "tool", "key")

_EARLY: Final = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85)
_ON_TIME: Final = (0.9, 0.94, 0.97, 1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8)
_LATE: Final = (2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 300.0, 1000.0)
RATIOS: Final = Grid((0.0, *_EARLY, *_ON_TIME, *_LATE))
"""Buckets for actual / stated time, fine around 1."""


def _told_survival(ratio: float) -> float:
    """Believed of stated times before any was checked: mostly right, sometimes anything."""
    return 0.9 / (1.0 + ratio**8.0) + 0.1 / (1.0 + ratio**1.5)


_TOLD_PRIOR: Final = Curve(
    RATIOS,
    np.array([1.0 - _told_survival(b) / _told_survival(a) for a, b in pairwise(RATIOS.edges)]),
)
_PRIOR: Final = scale_free(DURATIONS, PRIOR_EXPONENT)
_PRIOR_COUNTS: Final = np.full(DURATIONS.num_closed, PRIOR_WEIGHT)


class HazardPredictor:
    """P(back within H | still away after e), for every session; see the module's header."""

    def __init__(self, horizon_s: float = 1.0) -> None:
        """Start without history.

        Args:
            horizon_s: horizon of the forecasts that are checked for calibration.
        """
        self.horizon_s = horizon_s
        self.calls = History(_PRIOR)
        self.pauses = History(_PRIOR)
        self.told = History(_TOLD_PRIOR)
        self._tracker = Tracker(self)
        self._coverage = Coverage()
        self._reliability = {source: Reliability() for source in Source}
        self._watched: list[tuple[float, int, int, Call, SessionTrack]] = []
        self._num_watched = 0
        self._now_s = -math.inf

    # --- the predictor's interface ---------------------------------------------------------------

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
            return self._pause_unseen()
        if call_id is not None and call_id in track.calls:
            return self._of_call(track, track.calls[call_id], now_s)
        self._tracker.drop_expired(track, now_s)
        if track.deadline is not None:
            return self._of_told(track.deadline, (Source.DEADLINE.value, ""), now_s, math.inf)
        answers = [self._of_call(track, call, now_s) for call in track.calls.values()]
        pause = track.pause
        if pause is not None and (pause.path[0] == WAIT or not answers):
            answers.append(self._of_call(track, pause, now_s))
        if answers:
            return last_of(answers)
        return READY if track.in_turn else self._pause_unseen()

    def calibration(self) -> Calibration:
        """See `ReadinessPredictor`."""
        total = Reliability()
        by_source: dict[str, ReliabilityReport] = {}
        for source, reliability in self._reliability.items():
            report = reliability.report()
            if report.count:
                by_source[source.value] = report
                total.merge(reliability)
        return Calibration(
            horizon_s=self.horizon_s,
            by_source={"total": total.report(), **by_source},
            coverage=self._coverage.report(),
        )

    def export(self) -> dict[str, object]:
        """See `ReadinessPredictor`."""
        return {name: getattr(self, name).export() for name in ("calls", "pauses", "told")}

    def merge(self, exported: Mapping[str, object]) -> None:
        """See `ReadinessPredictor`."""
        checked: list[tuple[History, Mapping[str, object]]] = []
        for name in ("calls", "pauses", "told"):
            history = cast("History", getattr(self, name))
            part = exported.get(name)
            if not isinstance(part, Mapping):
                raise ValueError(f"no history of {name} in this export")
            History(history.prior).merge(cast("Mapping[str, object]", part))
            checked.append((history, cast("Mapping[str, object]", part)))
        for history, part in checked:
            history.merge(part)

    # --- answers ---------------------------------------------------------------------------------

    def _of_call(self, track: SessionTrack, call: Call, now_s: float) -> Remaining:
        age_s = now_s - call.started_s
        if age_s >= call.timeout_s:
            return Remaining(Overdue(1.0 + age_s - call.timeout_s), Source.DEADLINE, "")
        if call.told is not None:
            source = Source.PROGRESS if call.told.by_progress else Source.DEADLINE
            path = (source.value, call.path[0])
            limit_s = call.timeout_s + call.started_s
            return self._of_told(call.told, path, now_s, limit_s)
        curve, level = self._curve(track, call)
        return Remaining(
            Aged(curve, age_s, call.timeout_s),
            Source.HISTORY if level else Source.PRIOR,
            level,
            self._coverage.levels,
        )

    def _of_told(
        self, told: Told, path: tuple[str, ...], now_s: float, limit_s: float
    ) -> Remaining:
        """From a stated time; `limit_s` is the time at which it certainly ends."""
        curve = self.told.curve(self.told.known(path))
        origin_s = told.at_s - TOLD_OFFSET_S
        law: Law = Aged(
            curve,
            age_s=now_s - origin_s,
            limit_s=limit_s - origin_s,
            unit_s=told.remaining_s + TOLD_OFFSET_S,
        )
        return Remaining(law, Source(path[0]), "")

    def _pause_unseen(self) -> Remaining:
        levels = self.pauses.known((AFTER_TURN,))
        level = _level_name(levels)
        source = Source.HISTORY if level else Source.PRIOR
        return Remaining(Aged(self.pauses.curve(levels), 0.0), source, level)

    def _curve(self, track: SessionTrack, call: Call) -> tuple[Curve, str]:
        """The call's curve and the name of the finest level that outweighs its prior."""
        history = self.pauses if call.is_pause else self.calls
        base = history.curve(call.levels)
        recent = track.recent.get(call.path)
        if recent is None:
            return base, _level_name(call.levels)
        if call.curve is None or call.curve[0] is not base or call.curve[1] is not recent:
            call.curve = (base, recent, with_recent(base, recent))
        return call.curve[2], "session"

    # --- learning (Listener) ---------------------------------------------------------------------

    def call_started(self, track: SessionTrack, call: Call) -> None:
        """Look up whose history applies, and start to watch."""
        history = self.pauses if call.is_pause else self.calls
        call.levels = history.levels(call.path)
        if call.is_pause:
            self._watch(track, call)
            return
        answer = self._forecast(track, call, call.started_s)
        if call.told is None:
            call.stated = answer.law
        self._watch(track, call)

    def call_over(self, track: SessionTrack, call: Call, duration_s: float, ended: bool) -> None:
        """Learn a duration, and check what was said about it."""
        if not call.levels:
            call.levels = (self.pauses if call.is_pause else self.calls).levels(call.path)
        limit_s = call.timeout_s
        is_killed = KILLED_RATIO * limit_s <= duration_s <= SPARED_RATIO * limit_s + SPARED_S
        ended = ended and not is_killed
        index = DURATIONS.index(duration_s)
        if not ended and index == 0:
            return  # it says nothing about how long such calls last
        for table in call.levels:
            table.survived(call.passed, index)
            table.close(index, ended=ended)
        self._remember(track, call, index if ended else ~index)
        if call.told is not None and ended:
            self.told_over(call.path[0], call.told, call.started_s + duration_s)
        if not call.is_pause and (ended or is_killed):
            self._check_forecasts(call, duration_s)

    def told_over(self, tool: str, told: Told, now_s: float) -> None:
        """Learn how true a stated time was."""
        source = Source.PROGRESS if told.by_progress else Source.DEADLINE
        actual_s = max(0.0, now_s - told.at_s) + TOLD_OFFSET_S
        index = RATIOS.index(actual_s / (told.remaining_s + TOLD_OFFSET_S))
        for table in self.told.levels((source.value, tool)):
            table.survived(0, index)
            table.close(index, ended=True)

    def _remember(self, track: SessionTrack, call: Call, index: int) -> None:
        recent = track.recent
        seen = recent.get(call.path)
        if seen is None:
            if len(recent) >= RECENT_KEYS_MAX:
                del recent[next(iter(recent))]
            recent[call.path] = (index,)
        else:
            recent[call.path] = (*seen[1 - RECENT_MAX :], index)

    # --- running calls ---------------------------------------------------------------------------

    def _watch(self, track: SessionTrack, call: Call) -> None:
        self._push(call.started_s + DURATIONS.edges[_FIRST_WATCHED], _FIRST_WATCHED, call, track)

    def _push(self, due_s: float, index: int, call: Call, track: SessionTrack) -> None:
        self._num_watched += 1
        heapq.heappush(self._watched, (due_s, self._num_watched, index, call, track))

    def _advance(self, now_s: float) -> float:
        """Let running calls pass the edges they have reached by now; returns the time that is."""
        if now_s < self._now_s:
            now_s = self._now_s
        self._now_s = now_s
        watched = self._watched
        while watched and watched[0][0] <= now_s:
            due_s, _, index, call, track = heapq.heappop(watched)
            age_s = DURATIONS.edges[index]
            if not call.is_open or age_s >= call.believed_s:
                continue
            for table in call.levels:
                table.survived(call.passed, index)
            call.passed = index
            if not call.is_pause:
                self._settle(call, age_s)
                self._forecast(track, call, due_s)
            later = index + _WATCHED_EVERY
            if later <= DURATIONS.num_closed:
                self._push(call.started_s + DURATIONS.edges[later], later, call, track)
        return now_s

    # --- calibration -----------------------------------------------------------------------------

    def _forecast(self, track: SessionTrack, call: Call, now_s: float) -> Remaining:
        answer = self._of_call(track, call, now_s)
        due_s = now_s - call.started_s + self.horizon_s
        call.forecasts.append((due_s, answer.law.p_by(self.horizon_s), answer.source))
        return answer

    def _settle(self, call: Call, age_s: float) -> None:
        """It still runs at `age_s`: forecasts that are due were wrong to the extent of p."""
        forecasts = call.forecasts
        while forecasts and forecasts[0][0] <= age_s:
            _, probability, source = forecasts.pop(0)
            self._reliability[source].add(probability, False)

    def _check_forecasts(self, call: Call, duration_s: float) -> None:
        for due_s, probability, source in call.forecasts:
            self._reliability[source].add(probability, duration_s <= due_s)
        call.forecasts.clear()
        if call.stated is not None:
            # A killed call reached its limit, and no quantile lies beyond.
            reached_s = min(duration_s, KILLED_RATIO * call.timeout_s)
            self._coverage.add(call.stated.p_by(reached_s))


def with_recent(base: Curve, recent: tuple[int, ...]) -> Curve:
    """A key's curve with a session's own latest durations on top, held weakly.

    Args:
        base: the key's curve, as the prior.
        recent: buckets of durations; inverted (`~i`): cut short there.
    """
    ended, reached = PRIOR_WEIGHT * base.ends, _PRIOR_COUNTS.copy()
    for index in recent:
        if index < 0:
            reached[:~index] += 1.0
            continue
        reached[: index + 1] += 1.0
        if index < len(ended):
            ended[index] += 1.0
    ended /= reached
    return Curve(base.grid, ended)


def _level_name(levels: tuple[LifeTable, ...]) -> str:
    """Finest level with as many calls as the prior brings; the coarsest with any; or empty."""
    for depth in range(len(levels) - 1, -1, -1):
        if levels[depth].uses >= PRIOR_WEIGHT:
            return _LEVELS[min(depth, 2)]
    return _LEVELS[0] if levels[0].uses else ""
