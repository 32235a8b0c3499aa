"""How hard to try: budgets in work units, so that the same input gives the same plan.

One work unit is about one microsecond of one idle core of the machine the figures in
`docs/placement.md` were measured on; every solver counts its own (numpy calls and array elements).
A clock may be passed in as well; it can only cut the search short between blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tao_coordinator.scheduling.placement.plan import Rung


@dataclass(frozen=True, slots=True)
class Effort:
    """Budget of one solution."""

    work: int
    """Work units; the search ends at the first block boundary after them."""
    rung_max: Rung = Rung.NEIGHBOURHOOD
    """Last rung to try."""
    token_gap: float = 0.0
    """Stop once class, credit and ready are proved and the token gap is no larger."""
    limit_s: float | None = None
    """Seconds by `elapsed_s` after which the search ends at the next block boundary."""
    elapsed_s: Callable[[], float] | None = None
    """Seconds since the caller started counting."""

    def timed(self, elapsed_s: Callable[[], float], limit_s: float | None = None) -> "Effort":
        """The same effort with a clock."""
        return replace(self, elapsed_s=elapsed_s, limit_s=limit_s)


INSTANT = Effort(work=20_000, rung_max=Rung.LOCAL_RATIO)
"""One Cohen-Katz-Raz plan with improving passes: for use inside a loop."""
INSTANT_OVERDUE = Effort(work=20_000, rung_max=Rung.STAGE_FILL)
"""The same and a second plan made without class, for problems in which sessions are overdue: local
ratio on whole vectors alone loses a tenth to a quarter of their credit. Twice to four times as
long."""
LOOP = Effort(work=50_000, token_gap=0.005)
"""All rungs, about 50 ms at most."""
FULL = Effort(work=1_500_000, token_gap=0.005)
"""All rungs, about 1.5 s at most."""


class EffortSpent(Exception):
    """Raised at a checkpoint inside a block, so that no block runs on for long."""


class Meter:
    """Work spent so far against an effort."""

    __slots__ = ("_effort", "spent")

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self.spent = 0

    def spend(self, work: int) -> None:
        """Count work done."""
        self.spent += work

    def checkpoint(self) -> None:
        """End the current block if the effort is spent; what was found so far is kept.

        Raises:
            EffortSpent: it is.
        """
        if self.exhausted:
            raise EffortSpent

    @property
    def exhausted(self) -> bool:
        """Whether to stop at this block boundary."""
        effort = self._effort
        if self.spent >= effort.work:
            return True
        return (
            effort.elapsed_s is not None
            and effort.limit_s is not None
            and effort.elapsed_s() >= effort.limit_s
        )
