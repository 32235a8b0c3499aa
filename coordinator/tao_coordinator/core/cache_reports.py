"""What it means when a reply does not say how many of its tokens were cached.

Engines leave the count out in two cases: they found nothing (vLLM with its flag on), or they do not
tell (flag off, an older build, a gateway that strips it). The first is a miss and evidence, the
second must move nothing. So, per backend:

- before its first count, absent means unknown;
- afterwards absent means 0, at once where a miss is no surprise;
- a *surprising* absence (the tokens must be there: prefix just used, or shared by all) opens a
  silence: it and all absences after it are kept until the engine speaks again. A count ends the
  silence, and what was kept were misses. `SURPRISES_MAX` surprises without one count: the engine
  has stopped telling, what was kept is dropped, and absent means unknown until its next count.

Nothing is told late that matters: a silence lasts a few replies. Memory: `SILENCE_MAX` replies.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

SURPRISES_MAX = 8
"""So many misses of what must be there in a row are no misses."""
SILENCE_MAX = 64
"""Replies kept; a longer silence with fewer surprises was misses after all."""

T = TypeVar("T")


@dataclass(slots=True)
class CacheReports(Generic[T]):
    """One backend's habit of telling cached tokens."""

    tells: bool = False
    """Absent means 0."""
    _kept: list[T] = field(default_factory=list[T])
    _num_surprises: int = 0

    def take(
        self, reply: T, cached_tokens: int | None, *, is_hit_certain: bool
    ) -> list[tuple[T, int]]:
        """Replies whose cached tokens are known now, oldest first.

        Args:
            reply: what the caller wants back with its count.
            cached_tokens: as told; `None`: left out.
            is_hit_certain: leaving it out would be a surprise.
        """
        if cached_tokens is not None:
            self.tells = True
            return [*self._end_silence(), (reply, cached_tokens)]
        if not self.tells:
            return []
        self._kept.append(reply)
        self._num_surprises += is_hit_certain
        if self._num_surprises >= SURPRISES_MAX:
            self.tells = False
            self._end_silence()
            return []
        if self._num_surprises == 0 or len(self._kept) >= SILENCE_MAX:
            return self._end_silence()
        return []

    def _end_silence(self) -> list[tuple[T, int]]:
        misses = [(reply, 0) for reply in self._kept]
        self._kept.clear()
        self._num_surprises = 0
        return misses
