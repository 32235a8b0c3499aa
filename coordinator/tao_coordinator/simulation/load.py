"""When sessions start: a closed loop of workers, whose number may change, or an open one.

A load is asked twice: which sessions start by the clock, and which start because one has ended.
"""

from dataclasses import dataclass
from typing import Protocol

THINK_S = 0.5
"""A worker takes its next session this long after one has ended."""


class Load(Protocol):
    """Who starts when; sessions are numbered in the order in which they are to run."""

    def starts(self, num_sessions: int) -> list[tuple[float, int]]:
        """Times at which sessions start whatever happens: (seconds, how many)."""
        ...

    def after_end(self, now_s: float, num_live: int) -> float | None:
        """When the next session starts since one has ended; `None`: none does.

        Args:
            now_s: time of the end.
            num_live: sessions that run still, without the one that ended.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """N workers run one session after the other; later steps change N."""

    workers: int
    ramp_s: float = 60.0
    """The first N sessions start evenly over this time."""
    changes: tuple[tuple[float, int], ...] = ()
    """(time, workers from then on), by time. Fewer workers let running sessions finish."""

    def __post_init__(self) -> None:
        """A loop needs a worker."""
        if self.workers < 1 or any(workers < 0 for _, workers in self.changes):
            raise ValueError("a closed loop needs at least one worker")

    def starts(self, num_sessions: int) -> list[tuple[float, int]]:
        """The ramp, and one burst per increase."""
        number = min(self.workers, num_sessions)
        found = [(self.ramp_s * index / number, 1) for index in range(number)]
        before = self.workers
        for time_s, workers in self.changes:
            if workers > before:
                found.append((time_s, workers - before))
            before = workers
        return found

    def after_end(self, now_s: float, num_live: int) -> float | None:
        """The worker takes the next one, unless there are too many workers now."""
        workers = self.workers
        for time_s, then in self.changes:
            if time_s <= now_s:
                workers = then
        return now_s + THINK_S if num_live < workers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Sessions arrive by the clock, however slow they are served."""

    arrivals_s: tuple[float, ...]

    def starts(self, num_sessions: int) -> list[tuple[float, int]]:
        """One per arrival; sessions beyond the last arrival never start."""
        return [(time_s, 1) for time_s in self.arrivals_s[:num_sessions]]

    def after_end(self, now_s: float, num_live: int) -> float | None:
        """Nobody waits for an end."""
        return None
