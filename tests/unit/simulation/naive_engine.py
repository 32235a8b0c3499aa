"""The same engine the slow way, blocks one by one and steps one by one: the tests' oracle."""

from collections import deque

from tao_coordinator.simulation.engine_constants import EngineConstants
from tao_coordinator.simulation.request import SimRequest


class NaivePool:
    """Block ids with reference counts, a map from hash to block, a plain list as free queue."""

    def __init__(self, num_blocks: int) -> None:
        self.hash_of: list[int | None] = [None] * num_blocks
        self.references = [0] * num_blocks
        self.queue = list(range(num_blocks))
        self.cached: dict[int, int] = {}

    def match(self, chain: tuple[int, ...], limit: int) -> int:
        depth = 0
        while depth < limit and chain[depth] in self.cached:
            depth += 1
        return depth

    def admit(self, chain: tuple[int, ...], limit: int, num_blocks: int) -> list[int] | None:
        hits = [self.cached[value] for value in chain[: self.match(chain, limit)]]
        free_hits = sum(1 for block in hits if self.references[block] == 0)
        if num_blocks - len(hits) + free_hits > len(self.queue):
            return None
        for block in hits:
            self._touch(block)
        return hits + self.take(num_blocks - len(hits))

    def take(self, num_blocks: int) -> list[int]:
        taken: list[int] = []
        for _ in range(num_blocks):
            block = self.queue.pop(0)
            value = self.hash_of[block]
            if value is not None:
                del self.cached[value]
                self.hash_of[block] = None
            self.references[block] = 1
            taken.append(block)
        return taken

    def publish(self, blocks: list[int], chain: tuple[int, ...], num_blocks: int) -> None:
        for index in range(num_blocks):
            own, value = blocks[index], chain[index]
            if self.hash_of[own] is not None:
                continue
            if value in self.cached:
                other = self.cached[value]
                self._touch(other)
                blocks[index] = other
                self.references[own] = 0
                self.queue.insert(0, own)
            else:
                self.hash_of[own] = value
                self.cached[value] = own

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.references[block] -= 1
            if self.references[block] == 0:
                if self.hash_of[block] is None:
                    self.queue.insert(0, block)
                else:
                    self.queue.append(block)

    @property
    def num_referenced(self) -> int:
        return sum(1 for count in self.references if count)

    def _touch(self, block: int) -> None:
        if self.references[block] == 0:
            self.queue.remove(block)
        self.references[block] += 1


class NaiveSequence:
    def __init__(self, request: SimRequest) -> None:
        self.request = request
        self.chain = request.block_hashes + request.output_block_hashes
        self.target = request.prompt_tokens
        self.computed = 0
        self.produced = 0
        self.blocks: list[int] = []
        self.cached: int | None = None
        self.first_s: float | None = None
        self.finished_s: float | None = None
        self.dropped = False

    @property
    def decoding(self) -> bool:
        return self.produced > 0 and self.computed >= self.target


class NaiveEngine:
    """Runs a list of arrivals (and aborts) to the end, one step after the other."""

    def __init__(
        self,
        constants: EngineConstants,
        block_size: int,
        num_blocks: int,
        token_budget: int,
        max_sequences: int,
    ) -> None:
        self.constants = constants
        self.size = block_size
        self.pool = NaivePool(num_blocks)
        self.token_budget = token_budget
        self.max_sequences = max_sequences
        self.waiting: deque[NaiveSequence] = deque()
        self.running: list[NaiveSequence] = []
        self.preemptions = 0

    def run(
        self, arrivals: list[tuple[float, SimRequest]], aborts: dict[str, float] | None = None
    ) -> dict[str, NaiveSequence]:
        aborts = aborts or {}
        pending = deque(arrivals)
        results: dict[str, NaiveSequence] = {}
        now = 0.0
        while pending or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, pending[0][0])
            while pending and pending[0][0] <= now:
                _, request = pending.popleft()
                results[request.request_id] = sequence = NaiveSequence(request)
                self.waiting.append(sequence)
            for request_id, at in aborts.items():
                if at <= now and request_id in results:
                    self._drop(results[request_id])
            if self.waiting or self.running:
                now = self._step(now)
        return results

    def _drop(self, sequence: NaiveSequence) -> None:
        if sequence.finished_s is not None or sequence.dropped:
            return
        sequence.dropped = True
        if sequence in self.running:
            self._leave(sequence)
        else:
            self.waiting.remove(sequence)

    def _leave(self, sequence: NaiveSequence) -> None:
        self.running.remove(sequence)
        full = min(sequence.computed // self.size, len(sequence.chain))
        self.pool.publish(sequence.blocks, sequence.chain, full)
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def _grow(self) -> bool:
        """Give each decoding sequence the slot of its next token; return whether one had to go."""
        preempted = False
        index = 0
        while index < len(self.running):
            sequence = self.running[index]
            if sequence.decoding and sequence.computed == len(sequence.blocks) * self.size:
                while not self.pool.queue and sequence in self.running:
                    newest = self.running[-1]
                    self._leave(newest)
                    newest.computed = 0
                    newest.target = newest.request.prompt_tokens + newest.produced
                    self.waiting.appendleft(newest)
                    self.preemptions += 1
                    preempted = True
                if sequence not in self.running:
                    break
                sequence.blocks += self.pool.take(1)
            index += 1
        return preempted

    def _chunk(self, sequence: NaiveSequence, budget: int) -> int:
        chunk = min(sequence.target - sequence.computed, budget)
        full = min((sequence.computed + chunk) // self.size, len(sequence.chain))
        self.pool.publish(sequence.blocks, sequence.chain, full)
        return chunk

    def _step(self, now: float) -> float:
        preempted = self._grow()
        decoding = [sequence for sequence in self.running if sequence.decoding]
        budget = self.token_budget - len(decoding)
        chunks: list[tuple[NaiveSequence, int]] = []
        for sequence in self.running:
            if not sequence.decoding and budget:
                chunks.append((sequence, self._chunk(sequence, budget)))
                budget -= chunks[-1][1]
        while not preempted and budget and self.waiting and len(self.running) < self.max_sequences:
            sequence = self.waiting[0]
            limit = min((sequence.target - 1) // self.size, len(sequence.chain))
            hits = self.pool.match(sequence.chain, limit)
            blocks = self.pool.admit(sequence.chain, limit, -(-sequence.target // self.size))
            if blocks is None:
                break
            self.waiting.popleft()
            self.running.append(sequence)
            sequence.blocks = blocks
            sequence.computed = hits * self.size
            if sequence.cached is None:
                sequence.cached = sequence.computed
            chunks.append((sequence, self._chunk(sequence, budget)))
            budget -= chunks[-1][1]
        end = now + self._duration_s(decoding, chunks)
        for sequence in decoding:
            sequence.computed += 1
            sequence.produced += 1
        for sequence, chunk in chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.target:
                sequence.produced += 1
                if sequence.first_s is None:
                    sequence.first_s = end
        for sequence in decoding + [sequence for sequence, _ in chunks]:
            if sequence.produced == sequence.request.output_tokens:
                sequence.finished_s = end
                self._leave(sequence)
        return end

    def _duration_s(
        self, decoding: list[NaiveSequence], chunks: list[tuple[NaiveSequence, int]]
    ) -> float:
        c = self.constants
        context = sum(sequence.computed for sequence in decoding)
        new = sum(chunk for _, chunk in chunks)
        attention = sum(chunk * (sequence.computed + chunk / 2) for sequence, chunk in chunks)
        base = (
            c.decode_base_ms + c.decode_per_sequence_ms * len(decoding)
            if decoding
            else c.prefill_base_ms
        )
        linear = c.prefill_derate * c.prefill_per_token_ms * new
        total = max(base, linear) + c.decode_per_context_token_ms * context
        return (total + c.prefill_derate * c.prefill_per_attention_ms * attention) / 1000
