"""Load on an engine that did not come through the coordinator, in tokens of its KV pool.

An engine tells how many requests it has; the coordinator knows how many of them are its own. What
is more than that comes from elsewhere, takes room, and is taken off the pool.

A sample is older than the moment it is looked at, calls begin and end meanwhile, and a lease is
given back a little before or after the engine notices. So the engine's count is held against the
*most* own calls that were in flight at any moment since the sample before the last one, and an
excess counts only once `SAMPLES` samples in a row have shown it: the smallest of them is taken. A
call that the engine counts several times (`n` > 1) still looks like load from elsewhere.

Only referenced blocks can be seen this way. What foreign sessions leave cached and idle shows in
misses, which the capacity controller corrects for.
"""

from collections import deque
from typing import Final

SAMPLES: Final = 3
"""Samples in a row that must show an excess."""
TYPICAL_TOKENS: Final = 4_096
"""Size of a foreign call where the engine tells nothing to estimate it from."""
SHARE_MAX: Final = 0.8
"""Of the capacity at most: a misread engine must not stop its backend altogether."""


class ForeignLoad:
    """Estimate for one backend. Counts are requests, sizes integer tokens."""

    __slots__ = ("_excesses", "_own_max", "_own_max_before", "num_own", "num_requests", "tokens")

    def __init__(self) -> None:
        self._excesses: deque[int] = deque(maxlen=SAMPLES)
        self._own_max = 0
        self._own_max_before = 0
        self.num_own = 0
        """Own calls in flight."""
        self.num_requests = 0
        self.tokens = 0
        """To be taken off the pool."""

    def call_began(self) -> None:
        """A lease was granted."""
        self.num_own += 1
        self._own_max = max(self._own_max, self.num_own)

    def call_ended(self) -> None:
        """A lease is over."""
        self.num_own -= 1

    def sampled(
        self,
        *,
        running: int | None,
        waiting: int | None,
        kv_usage_ratio: float | None,
        capacity_tokens: int | None,
    ) -> None:
        """Look at what the engine says of itself.

        Args:
            running: requests in its batch; `None`: it does not say.
            waiting: requests in its own queue.
            kv_usage_ratio: share of the pool that running requests reference, 0..1.
            capacity_tokens: the pool.
        """
        if running is None:
            self.forget()
            return
        own = max(self._own_max, self._own_max_before)
        self._own_max_before, self._own_max = self._own_max, self.num_own
        self._excesses.append(max(0, running + (waiting or 0) - own))
        full = len(self._excesses) == SAMPLES
        self.num_requests = min(self._excesses) if full else 0
        size = TYPICAL_TOKENS
        if kv_usage_ratio is not None and capacity_tokens and running:
            size = int(kv_usage_ratio * capacity_tokens / running)
        self.tokens = self.num_requests * size
        if capacity_tokens is not None:
            self.tokens = min(self.tokens, int(SHARE_MAX * capacity_tokens))

    def forget(self) -> None:
        """Nothing is known any more: the engine is silent, or another one."""
        self._excesses.clear()
        self.num_requests = 0
        self.tokens = 0
