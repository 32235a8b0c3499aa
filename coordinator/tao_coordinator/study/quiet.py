"""Stretches of a recorded trace in which nobody came: nights, weekends, a stray date.

Virtual time passes second by second even where nothing runs, so months of it take hours.
"""

import math
from collections.abc import Iterable


def without_quiet(times_s: Iterable[float], quiet_s_max: float) -> tuple[tuple[float, ...], int]:
    """Arrivals from 0 on, in order, none further behind the one before than the limit.

    Args:
        times_s: on any clock, Unix times too.
        quiet_s_max: what a longer stretch between two arrivals is cut to, s; > 0.

    Returns:
        Arrivals, s, and how many stretches were cut.
    """
    known = sorted(times_s)
    found: list[float] = []
    cut = 0
    zero_s = before_s = known[0] if known else math.nan
    for time_s in known:
        quiet_s = time_s - before_s
        if quiet_s > quiet_s_max:
            zero_s += quiet_s - quiet_s_max
            cut += 1
        found.append(time_s - zero_s)
        before_s = time_s
    return tuple(found), cut
