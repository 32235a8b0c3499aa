"""What the feedback policies see of a backend: KV usage and hit rate."""

from collections import deque

from tao_coordinator.core.model import Backend


def kv_usage_ratio(backend: Backend, now_s: float, max_age_s: float) -> float | None:
    """Share of the KV pool that running calls reference, 0..1; `None`: nothing is known.

    The engine's own gauge when it is fresh, else what the shadow of its cache has in flight. Idle
    sessions count in neither: an agent in a tool looks like free memory.
    """
    age_s = None if backend.sampled_s is None else now_s - backend.sampled_s
    if backend.kv_usage_ratio is not None and age_s is not None and age_s <= max_age_s:
        return backend.kv_usage_ratio
    capacity = backend.capacity_tokens
    if not capacity:
        return None
    in_flight = backend.cache.in_flight_tokens
    shared = backend.shared_prefix.tokens if in_flight else 0
    return min(1.0, (in_flight + shared) / capacity)


class TrailingHitRate:
    """Cached tokens over prompt tokens of the replies in a sliding window.

    Shared prefixes count, as in the engines' own counters.
    """

    def __init__(self, window_s: float) -> None:
        """Remember `window_s` of samples."""
        self._window_s = window_s
        self._samples: deque[tuple[float, int, int]] = deque([(float("-inf"), 0, 0)])

    def sample(self, backend: Backend, now_s: float) -> None:
        """Take the backend's sums as of `now_s`."""
        self._samples.append((now_s, backend.prompt_tokens, backend.cached_tokens))
        # The newest sample at least a window old is the base that the rate counts from.
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - self._window_s:
            self._samples.popleft()

    @property
    def ratio(self) -> float | None:
        """0..1; `None`: no reply with known cached tokens in the window."""
        _, prompt_0, cached_0 = self._samples[0]
        _, prompt_1, cached_1 = self._samples[-1]
        if prompt_1 <= prompt_0:
            return None
        return (cached_1 - cached_0) / (prompt_1 - prompt_0)
