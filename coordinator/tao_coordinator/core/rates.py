"""Learned speeds of one backend: how fast it prefills, how compute-bound it is, typical turn sizes.

Refilling a whole pool takes `R = pool tokens / prefill rate` seconds: the price, in idle time, of
losing a session's cache (policy study, section 5; prior and clip in `core.parameters`). Where
decoding is slowed by many running calls the backend is compute-bound and freed cache gains little,
so R is multiplied by `time per output token now / when idle`.
"""

from collections import deque

COLD_TOKENS_MIN = 4_096
"""A call teaches the prefill rate only if it had at least this many uncached tokens."""
_SAMPLES_MAX = 64
_IDLE_WINDOW = 50
_SLOWDOWN_MAX = 20.0


class BackendRates:
    """Running estimates of one backend. All rates are tokens per second of the caller's clock."""

    __slots__ = (
        "_idle_s_per_token",
        "_now_s_per_token",
        "_prefill",
        "_window",
        "prefill_tokens_per_s",
    )

    def __init__(self) -> None:
        self._prefill: deque[float] = deque(maxlen=_SAMPLES_MAX)
        self.prefill_tokens_per_s: float | None = None
        """p90 over recent cold calls: times to first token include queueing, most are too low."""
        self._now_s_per_token: float | None = None
        self._idle_s_per_token: float | None = None
        self._window: list[float] = []

    @property
    def slowdown(self) -> float:
        """Time per output token now over that of an idle backend, in [1, 20]; 1 when unknown."""
        if self._now_s_per_token is None or not self._idle_s_per_token:
            return 1.0
        return min(_SLOWDOWN_MAX, max(1.0, self._now_s_per_token / self._idle_s_per_token))

    def learn_prefill(self, *, uncached_tokens: int, ttft_s: float | None) -> None:
        """Take one finished call into account whose cached tokens are known."""
        if uncached_tokens >= COLD_TOKENS_MIN and ttft_s:
            self._prefill.append(uncached_tokens / ttft_s)
            ordered = sorted(self._prefill)
            self.prefill_tokens_per_s = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]

    def learn_decoding(
        self, *, output_tokens: int | None, ttft_s: float | None, duration_s: float | None
    ) -> None:
        """Take one finished call into account; `None` where the caller does not know."""
        # Below 32 tokens the quotient is mostly network and scheduling noise.
        if not output_tokens or output_tokens < 32 or ttft_s is None or duration_s is None:
            return
        per_token_s = max(0.0, duration_s - ttft_s) / (output_tokens - 1)
        now = self._now_s_per_token
        self._now_s_per_token = per_token_s if now is None else now + 0.02 * (per_token_s - now)
        self._window.append(per_token_s)
        if len(self._window) >= _IDLE_WINDOW:
            tenth = sorted(self._window)[_IDLE_WINDOW // 10]
            self._window.clear()
            idle = self._idle_s_per_token
            self._idle_s_per_token = tenth if idle is None else min(idle, tenth)

    def refill_s(
        self, pool_tokens: int | None, *, prior_s: float, bounds_s: tuple[float, float]
    ) -> float:
        """R: idle seconds that losing the cache is worth, clipped to `bounds_s`."""
        rate = self.prefill_tokens_per_s
        seconds = prior_s if rate is None or pool_tokens is None else pool_tokens / rate
        return min(bounds_s[1], max(bounds_s[0], seconds * self.slowdown))
