"""How long a fleet takes to find its caches again after a load has fallen."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tao_coordinator.simulation.run_record import Moment

WINDOW_S: Final = 200.0
WINDOWS: Final = 3
"""In a row: one good window may be luck."""
WARM_RATIO: Final = 0.9
"""Hits over prompt tokens in each of them."""


def recovery_s(timeline: Sequence[Moment], since_s: float) -> float:
    """Seconds from `since_s` to the first of `WINDOWS` warm windows in a row.

    To the end of the run where there are none, or fewer windows than that. A
    window without prompts is warm.
    """
    later = [moment for moment in timeline if moment.time_s >= since_s]
    if not later:
        return 0.0
    ends = [later[0]]
    for moment in later:
        if moment.time_s >= ends[-1].time_s + WINDOW_S:
            ends.append(moment)
    row = 0
    for number, (first, last) in enumerate(pairwise(ends), start=1):
        prompt = last.prompt_tokens - first.prompt_tokens
        cached = last.cached_tokens - first.cached_tokens
        row = row + 1 if cached >= WARM_RATIO * prompt else 0
        if row == WINDOWS:
            return ends[number - WINDOWS].time_s - since_s
    return later[-1].time_s - since_s
