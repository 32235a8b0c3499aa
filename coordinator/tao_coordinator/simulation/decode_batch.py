"""The decoding sequences of one engine, which advance in lockstep: one token each per step.

Since every step moves all of them, one counter (the *tick*) stands for all their positions, and a
stretch of steps in which nobody joins, leaves or finishes costs the same as one step.
"""

import heapq

from tao_coordinator.simulation.request import LiveRequest


class DecodeBatch:
    """Sequences that have their whole prompt in the cache and produce one token per step."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._tick = 0
        self._by_end: list[tuple[int, int, LiveRequest]] = []
        self._joins = 0
        # How many sequences start a block at ticks of each residue modulo the block size.
        self._starts_at = [0] * block_size
        self.num_sequences = 0
        self.context_tokens = 0
        """Tokens in the cache, over all the sequences."""

    def join(self, sequence: LiveRequest) -> None:
        """Add a sequence that has just produced a token, with `computed_tokens` in the cache."""
        self._joins += 1
        sequence.joined_tick = self._tick
        sequence.join_number = self._joins
        remaining = sequence.request.output_tokens - sequence.produced_tokens
        heapq.heappush(self._by_end, (self._tick + remaining, self._joins, sequence))
        self._starts_at[self._residue(sequence)] += 1
        self.num_sequences += 1
        self.context_tokens += sequence.computed_tokens

    def leave(self, sequence: LiveRequest) -> None:
        """Take a sequence out, its counts brought up to date."""
        self._starts_at[self._residue(sequence)] -= 1
        steps = self._tick - sequence.joined_tick
        sequence.produced_tokens += steps
        sequence.computed_tokens += steps
        # The heap entry stays and is recognised by its number.
        sequence.join_number = 0
        self.num_sequences -= 1
        self.context_tokens -= sequence.computed_tokens

    def produced(self, sequence: LiveRequest) -> int:
        """Return how many tokens a member has produced at the end of the last finished step."""
        return sequence.produced_tokens + self._tick - sequence.joined_tick

    def blocks_needed(self, num_steps: int) -> int:
        """Return how many new KV blocks the next `num_steps` steps take."""
        size = self._block_size
        rounds, rest = divmod(num_steps, size)
        first = self._tick % size
        needed = rounds * self.num_sequences + sum(self._starts_at[first : first + rest])
        if first + rest > size:
            needed += sum(self._starts_at[: first + rest - size])
        return needed

    def starts_block(self, sequence: LiveRequest) -> bool:
        """Return whether the next step of a member begins a new KV block."""
        return self._residue(sequence) == self._tick % self._block_size

    def steps_to_next_end(self) -> int:
        """Return after how many steps the first of the members has all its tokens."""
        heap = self._by_end
        while heap[0][1] != heap[0][2].join_number:
            heapq.heappop(heap)
        return heap[0][0] - self._tick

    def steps_that_fit(self, most_steps: int, free_blocks: int) -> int:
        """Return the most steps, up to `most_steps`, whose new blocks fit into `free_blocks`."""
        if self.blocks_needed(most_steps) <= free_blocks:
            return most_steps
        low, high = 0, most_steps - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_needed(middle) <= free_blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def advance(self, num_steps: int) -> None:
        """Let `num_steps` steps pass; nobody may finish before the last of them."""
        self._tick += num_steps
        self.context_tokens += num_steps * self.num_sequences

    def pop_finished(self) -> list[LiveRequest]:
        """Take out the sequences that have all their tokens now, in order of joining."""
        finished: list[LiveRequest] = []
        heap = self._by_end
        while heap and (heap[0][0] <= self._tick or heap[0][1] != heap[0][2].join_number):
            _, number, sequence = heapq.heappop(heap)
            if number == sequence.join_number:
                self.leave(sequence)
                finished.append(sequence)
        return finished

    def _residue(self, sequence: LiveRequest) -> int:
        return (sequence.joined_tick - sequence.computed_tokens) % self._block_size
