"""What replies say about the predicted cache: the only signal of the capacity controller.

An engine that really holds more than it reports finds tokens that should have been evicted; one
that holds less misses tokens that should have been there. Both are counted against the prompt
tokens seen. Three things look alike and must not count:

- a *partial* hit is a changed prompt (compaction, branch), no eviction: only total misses count;
- a miss of a chain that lay *shallow* in the LRU cannot be an eviction of a pool anywhere near the
  reported one: only chains at a depth of half the pool or more count;
- the shared prefix is hit whatever happens: all counts are private tokens.

A reply without a cached count says nothing and moves nothing. Source: policy study, section 5
(capacity integrator) and pitfalls 2-4.
"""

from dataclasses import dataclass

PREDICTED_TOKENS_MIN = 1_000
"""A smaller prediction is too small for its miss to mean anything."""
TOTAL_MISS_RATIO = 0.05
"""Less than this share of the prediction found is a total miss."""
DEPTH_RATIO_MIN = 0.5
"""Share of the pool that is newer than the chain, from which on a miss may be an eviction."""


@dataclass(slots=True)
class CacheEvidence:
    """Sums of one backend since the controller last took them. Private tokens."""

    surplus_tokens: int = 0
    """Found although predicted to be gone, minus missed although predicted to be there."""
    prompt_tokens: int = 0
    """Prompts of the replies counted."""

    def record(
        self, *, prompt_tokens: int, predicted_tokens: int, cached_tokens: int, depth_ratio: float
    ) -> None:
        """Count one reply of a started session.

        Args:
            prompt_tokens: length of its prompt.
            predicted_tokens: of them predicted to be cached.
            cached_tokens: of them reported as cached.
            depth_ratio: share of the pool that was newer than its chain, the chain included.
        """
        self.prompt_tokens += prompt_tokens
        if predicted_tokens == 0:
            self.surplus_tokens += cached_tokens
            return
        is_total_miss = cached_tokens < TOTAL_MISS_RATIO * predicted_tokens
        is_deep = depth_ratio >= DEPTH_RATIO_MIN
        if predicted_tokens > PREDICTED_TOKENS_MIN and is_total_miss and is_deep:
            self.surplus_tokens -= predicted_tokens

    def take(self) -> tuple[int, int]:
        """The two sums; they start again at 0."""
        taken = (self.surplus_tokens, self.prompt_tokens)
        self.surplus_tokens = self.prompt_tokens = 0
        return taken
