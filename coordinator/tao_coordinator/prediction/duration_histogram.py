r"""Distribution of idle durations per tool key, and when to give up an idle session's seat.

Durations fall into logarithmic buckets; a key with few samples is blended with the distribution of
all keys, which weighs as much as 4 samples of its own. That one has a small exponential prior, so
that the first session of a fresh coordinator gets an answer too.

Keep or release is ski rental with a known distribution: keeping an idle session's seat costs its
idle time, losing its cache costs the refill price R (in the same seconds). The best moment to give
up is

    tau* = argmin_tau  E[min(D, tau)] + R * P(D > tau)                       D: idle duration

and tau* = infinity (never) where waiting for the end is always cheaper. Source: policy study
section 5 (`ttl`), where this rule was worth 11-33 % throughput with long tools and an oracle of the
true ends added at most 0.8 %.

Symbols: `LOWEST_S` 50 ms, ratio 1.25, 46 buckets, so the last one starts at about 1,150 s.
Complexity: O(1) per sample, O(buckets) per query; answers are cached per key and R-step until the
key has seen about 5 % more samples. Memory: at most `KEYS_MAX` keys; further ones share the global
one.
"""

import math

LOWEST_S = 0.05
RATIO = 1.25
NUM_BUCKETS = 47
"""Bucket 0 is everything up to `LOWEST_S`."""
KEYS_MAX = 4096
PRIOR_WEIGHT = 4.0
"""Pseudo-counts that the distribution of all keys brings into one key's."""
_FLOOR_WEIGHT = 0.02
"""Weight of the exponential prior per bucket inside the distribution of all keys."""
_REFILL_STEP = math.log(1.1)

_UPPER_S = [LOWEST_S * RATIO**i for i in range(NUM_BUCKETS)]
_MIDDLE_S = [LOWEST_S * 0.6] + [LOWEST_S * RATIO ** (i - 0.5) for i in range(1, NUM_BUCKETS)]


def bucket_index(duration_s: float) -> int:
    """Bucket of a duration; longer than the last edge falls into the last one."""
    if duration_s <= LOWEST_S:
        return 0
    return min(NUM_BUCKETS - 1, 1 + int(math.log(duration_s / LOWEST_S) / math.log(RATIO)))


class DurationHistogram:
    """Counts of idle durations by tool key, with back-off to all keys."""

    def __init__(self, prior_mean_s: float = 5.0) -> None:
        """Start empty.

        Args:
            prior_mean_s: mean of the exponential prior used until real durations were seen.
        """
        self._prior = [math.exp(-middle / prior_mean_s) for middle in _MIDDLE_S]
        self._all = [0] * NUM_BUCKETS
        self._by_key: dict[str, list[int]] = {}
        self._limit_cache: dict[tuple[str, int], tuple[int, float]] = {}
        self._num_all = 0

    def add(self, key: str, duration_s: float) -> None:
        """Count one idle time that has ended."""
        index = bucket_index(max(0.0, duration_s))
        self._all[index] += 1
        self._num_all += 1
        counts = self._by_key.get(key)
        if counts is None:
            if len(self._by_key) >= KEYS_MAX:
                return
            counts = self._by_key[key] = [0] * NUM_BUCKETS
        counts[index] += 1

    def weights(self, key: str) -> list[float]:
        """Unnormalised distribution over the buckets for this key, back-off included."""
        everything = [n + _FLOOR_WEIGHT * p for n, p in zip(self._all, self._prior, strict=True)]
        total = sum(everything)
        counts = self._by_key.get(key)
        if counts is None:
            return [PRIOR_WEIGHT * w / total for w in everything]
        return [n + PRIOR_WEIGHT * w / total for n, w in zip(counts, everything, strict=True)]

    def keep_limit_s(self, key: str, refill_s: float) -> float:
        """tau*: idle seconds after which the seat is better given up; `inf`: never.

        Args:
            key: tool key whose distribution applies; unknown keys use that of all.
            refill_s: R, the price of losing the cache, seconds > 0.
        """
        step = round(math.log(max(refill_s, 1e-3)) / _REFILL_STEP)
        cached = self._limit_cache.get((key, step))
        if cached is not None and self._num_all <= cached[0]:
            return cached[1]
        limit_s = self._best_limit_s(self.weights(key), math.exp(step * _REFILL_STEP))
        if len(self._limit_cache) > 4 * KEYS_MAX:
            self._limit_cache.clear()
        self._limit_cache[key, step] = (self._num_all + max(4, self._num_all // 20), limit_s)
        return limit_s

    @staticmethod
    def _best_limit_s(weights: list[float], refill_s: float) -> float:
        total = sum(weights)
        best_cost, best_s = refill_s, 0.0
        ended, spent = 0.0, 0.0
        for index, weight in enumerate(weights):
            ended += weight
            spent += weight * _MIDDLE_S[index]
            last = index == NUM_BUCKETS - 1
            alive = 0.0 if last else total - ended
            cost = (spent + alive * (_UPPER_S[index] + refill_s)) / total
            if cost < best_cost - 1e-9:
                best_cost, best_s = cost, math.inf if last else _UPPER_S[index]
        return best_s
