"""Prediction of what an engine's prefix cache still holds of each session.

An engine such as vLLM evicts the least recently used *unreferenced* blocks, tail of a chain first,
when it needs room. This shadow does the same with one entry per session instead of one per block:
calls in flight are referenced, everything else is an idle chain ordered by its last reply. Ended
sessions stay in it: their blocks stay in the engine too until somebody needs the room. So do the
blocks of a prompt that was rewritten.

Only private tokens are counted; the shared prefix is part of no entry and `pool_tokens` excludes
it. Source: policy study, `shadow_evict` (its section 5). O(log entries) amortised per operation.
"""

from collections.abc import Hashable

from tao_coordinator.core.idle_chains import IdleChains

_ENTRIES_MAX = 65_536
"""Bound on remembered chains where the pool is unknown or sessions are tiny."""


class ShadowCache:
    """Least-recently-used model of one backend's cached session prefixes, in tokens."""

    __slots__ = ("_idle", "_in_flight", "_num_rewrites", "in_flight_tokens")

    def __init__(self) -> None:
        self._idle = IdleChains()
        self._in_flight: dict[Hashable, int] = {}
        self._num_rewrites = 0
        self.in_flight_tokens = 0
        """Tokens referenced by running calls; parallel calls of one session count once."""

    @property
    def idle_tokens(self) -> int:
        """Tokens of chains that nobody references."""
        return self._idle.total_tokens

    def resident_tokens(self, key: Hashable) -> int:
        """Tokens of this session predicted to be cached, referenced or not."""
        return self._in_flight.get(key) or self._idle.tokens(key)

    def depth_tokens(self, key: Hashable) -> int:
        """Tokens that an LRU keeps longer than this session's idle chain, its own included.

        0 without an idle chain.
        """
        own = self._idle.tokens(key)
        return self.in_flight_tokens + own + self._idle.newer_tokens(key) if own else 0

    def start(self, key: Hashable, tokens: int, pool_tokens: int | None) -> int:
        """A call of `tokens` private tokens begins; returns what it should find cached."""
        running = self._in_flight.get(key)
        if running is not None:
            # A parallel call of the same session shares the prefix of the one that runs.
            if tokens > running:
                self._in_flight[key] = tokens
                self.in_flight_tokens += tokens - running
                self.evict(pool_tokens)
            return min(running, tokens)
        resident = self._idle.take(key)
        self._in_flight[key] = tokens
        self.in_flight_tokens += tokens
        self.evict(pool_tokens)
        return min(resident, tokens)

    def end(self, key: Hashable, tokens: int, pool_tokens: int | None) -> None:
        """The session's last running call is over; it leaves `tokens` as the newest chain."""
        self.in_flight_tokens -= self._in_flight.pop(key, 0)
        self._idle.take(key)
        if tokens > 0:
            self._idle.put(key, tokens)
        self.evict(pool_tokens)

    def rewrite(self, key: Hashable, tokens: int, pool_tokens: int | None) -> None:
        """`tokens` of a session's old prompt will not be asked for again, but lie there still."""
        if tokens > 0:
            self._num_rewrites += 1
            self._idle.put(("rewritten", key, self._num_rewrites), tokens)
            self.evict(pool_tokens)

    def evict(self, pool_tokens: int | None) -> None:
        """Cut the oldest idle chains until all fits `pool_tokens` (`None`: no limit known)."""
        while len(self._idle) > _ENTRIES_MAX:
            self._idle.cut_oldest(self._idle.total_tokens)
        if pool_tokens is None:
            return
        excess = self.idle_tokens + self.in_flight_tokens - max(0, pool_tokens)
        while excess > 0 and len(self._idle):
            excess -= self._idle.cut_oldest(excess)

    def clear(self) -> None:
        """The engine restarted: idle chains are gone. Calls in flight are ended by their leases."""
        self._idle.clear()

    def check(self) -> None:
        """Assert that the sums agree with the entries."""
        self._idle.check()
        assert self.in_flight_tokens == sum(self._in_flight.values())
