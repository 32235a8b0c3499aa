"""One modelled H100 backend: vLLM's scheduler and KV cache over the step law of `engine_constants`.

First come, first served with continuous batching: each step gives every decoding sequence one token
and spends what is left of the token budget on prompts in chunks. A prompt is admitted when the
blocks of the whole prompt are free. When a decoding sequence needs a block and none is free, the
newest request loses its blocks and computes them again later.

The model is exact step by step, but it does not simulate every step: a stretch of pure decode steps
in which nothing can change is one event, and the token times inside it follow from the step law. A
request that arrives or is aborted, or a load from a host tier that ends, cuts it at the next step.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from tao_coordinator.simulation.block_pool import BlockPool
from tao_coordinator.simulation.decode_batch import DecodeBatch
from tao_coordinator.simulation.engine_constants import EngineConstants
from tao_coordinator.simulation.host_tier import HostTier, HostTierSpec
from tao_coordinator.simulation.request import (
    BackendSnapshot,
    LiveRequest,
    Phase,
    SimOutput,
    SimRequest,
    check_request,
)
from tao_coordinator.simulation.stretch import Stretch

TOKEN_BUDGET: Final = 8192
"""Tokens that one step computes at most, decoding sequences included."""
MAX_SEQUENCES: Final = 256
"""Requests that run at the same time at most."""


class BackendModel:
    """One engine in virtual time; `now_s` never goes back.

    Args:
        constants: Step law and default pool.
        block_size: Tokens per KV block.
        capacity_tokens: Size of the pool, rounded down to whole blocks; default: the preset's.
        token_budget: Tokens per step.
        max_sequences: Requests that run at the same time.
        host_tier: Host memory below the pool; `None`: what is evicted is lost.
        evicts_whole: Idle sessions lose at once what they share with nobody (`BlockPool`).
    """

    def __init__(
        self,
        constants: EngineConstants,
        *,
        block_size: int = 16,
        capacity_tokens: int | None = None,
        token_budget: int = TOKEN_BUDGET,
        max_sequences: int = MAX_SEQUENCES,
        host_tier: HostTierSpec | None = None,
        evicts_whole: bool = False,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if not 1 <= max_sequences <= token_budget:
            raise ValueError("max_sequences must be at least 1 and at most token_budget")
        if capacity_tokens is None:
            capacity_tokens = constants.kv_capacity_tokens
        self.constants = constants
        self.block_size = block_size
        self.pool = BlockPool(capacity_tokens // block_size, evicts_whole=evicts_whole)
        self.host = HostTier(host_tier, block_size)
        self._token_budget = token_budget
        self._max_sequences = max_sequences
        self._live: dict[str, LiveRequest] = {}
        self._waiting: deque[LiveRequest] = deque()
        self._running: dict[LiveRequest, None] = {}  # in order of admission
        self._partial: LiveRequest | None = None  # its prompt is computed in part; never two
        self._batch = DecodeBatch(block_size)
        self._aborting: list[LiveRequest] = []
        self._outputs: list[SimOutput] = []
        self._stretch = Stretch(constants, self._batch)  # under way
        self._chunks: list[tuple[LiveRequest, int]] = []  # of its prompts
        self._taken_blocks = 0  # taken already for the decoding sequences of this stretch
        self._now_s = 0.0
        self._prefix_queries_tokens = 0
        self._prefix_hits_tokens = 0
        self._host_hits_tokens = 0
        self._prompt_tokens = 0
        self._generation_tokens = 0
        self._prefilled_tokens = 0
        self._preemptions = 0
        self._finished = 0
        self._aborted = 0
        self._busy_s = 0.0

    @property
    def capacity_tokens(self) -> int:
        """KV pool in tokens: whole blocks."""
        return self.pool.num_blocks * self.block_size

    def submit(self, now_s: float, request: SimRequest) -> None:
        """Put a request at the end of the queue.

        Raises:
            RequestTooLargeError: Prompt and reply together do not fit into the pool.
            ValueError: A length below 1, an id in use, or hashes that do not fit the lengths.
        """
        if request.request_id in self._live:
            raise ValueError(f"request id {request.request_id!r} is in use")
        check_request(request, self.block_size, self.pool.num_blocks)
        self._run_until(now_s, inclusive=False)
        live = LiveRequest(request)
        self._live[request.request_id] = live
        if not self._waiting:  # behind others it could not start before them
            self._look_again(now_s)
        self._waiting.append(live)

    def abort(self, now_s: float, request_id: str) -> bool:
        """Drop a request: at once while it waits, else at the end of the step under way.

        Returns:
            Whether the request was known and unfinished. No output follows for it.
        """
        self._run_until(now_s, inclusive=False)
        live = self._live.pop(request_id, None)
        if live is None:
            return False
        self._aborted += 1
        if live.phase is Phase.WAITING:
            was_first = live is self._waiting[0]
            self._waiting.remove(live)
            if was_first and self._waiting:
                self._look_again(now_s)  # the next one may fit where this one did not
        elif live.phase is Phase.LOADING:
            self.host.drop(live, self.pool, -(-live.target_tokens // self.block_size))
            self._look_again(now_s)
        else:
            self._aborting.append(live)
            self._stretch.cut(now_s)
        return True

    def move(self, now_s: float, chain: Sequence[int], *, to_host: bool) -> None:
        """Move an idle session's blocks to the host tier, or back before it asks for them."""
        self._run_until(now_s, inclusive=False)
        self._look_again(now_s)
        if to_host:
            self.host.move_down(chain, self.pool)
            return
        # What the decoding sequences need until the next boundary is theirs.
        owed = max(0, self._batch.blocks_needed(self._stretch.num_steps) - self._taken_blocks)
        self.host.move_up(now_s, chain, self.pool, self.pool.num_free - owed)

    def next_event_s(self) -> float | None:
        """Return when something happens next if nothing arrives; `None`: never."""
        return self._stretch.end_s if self._is_awake else None

    def advance(self, now_s: float) -> list[SimOutput]:
        """Let time pass up to and including `now_s`; return the milestones since the last call."""
        self._run_until(now_s, inclusive=True)
        outputs, self._outputs = self._outputs, []
        return outputs

    def produced_tokens(self, now_s: float, request_id: str) -> int | None:
        """Return how many tokens an unfinished request has produced by `now_s`.

        `now_s` lies between the last call of `advance` and the next event. `None`: no such request.
        """
        live = self._live.get(request_id)
        if live is None:
            return None
        if live.phase is not Phase.DECODE:
            return live.produced_tokens
        return self._batch.produced(live) + self._stretch.steps_done(now_s)

    def snapshot(self, now_s: float) -> BackendSnapshot:
        """Return the engine's counts; `now_s` as for `produced_tokens`."""
        steps = self._stretch.steps_done(now_s)
        growth = max(0, self._batch.blocks_needed(steps) - self._taken_blocks)
        return BackendSnapshot(
            running=len(self._running),
            # vLLM counts those among the waiting whose blocks are still being loaded.
            waiting=len(self._waiting) + self.host.num_requests,
            used_blocks=self.pool.num_referenced + growth,
            num_blocks=self.pool.num_blocks,
            prefix_queries_tokens=self._prefix_queries_tokens,
            prefix_hits_tokens=self._prefix_hits_tokens,
            host_hits_tokens=self._host_hits_tokens,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generation_tokens + steps * self._batch.num_sequences,
            prefilled_tokens=self._prefilled_tokens,
            preemptions=self._preemptions,
            finished=self._finished,
            aborted=self._aborted,
            busy_s=self._busy_s,
        )

    # --- time ---------------------------------------------------------------------------------

    def _run_until(self, now_s: float, *, inclusive: bool) -> None:
        if now_s < self._now_s:
            raise ValueError(f"time went back from {self._now_s} to {now_s}")
        self._now_s = now_s
        stretch = self._stretch
        while self._is_awake:
            if stretch.end_s > now_s or (stretch.end_s == now_s and not inclusive):
                break
            if stretch.num_steps:
                self._end_step()
            self._begin_step(stretch.end_s)

    @property
    def _is_awake(self) -> bool:
        """Something will happen by itself."""
        return bool(self._stretch.num_steps or self._waiting) or self.host.is_busy

    def _look_again(self, now_s: float) -> None:
        """The queue has changed: a step begins as soon as one can, all that arrives now in it."""
        if self._stretch.num_steps:
            self._stretch.cut(now_s)
        else:
            self._stretch.end_s = now_s

    # --- a step begins --------------------------------------------------------------------------

    def _begin_step(self, now_s: float) -> None:
        batch, pool = self._batch, self.pool
        stretch = self._stretch
        stretch.start_s = now_s
        self._taken_blocks = 0
        self.host.end_loads(now_s, pool)
        has_prompts = bool(self._partial or self._waiting or self.host.loaded)
        needed = batch.blocks_needed(1)
        preempted = needed > pool.num_free
        if preempted:
            self._make_room()
        elif has_prompts:
            # Room for the next tokens of those that decode comes before new prompts.
            pool.take(needed)
            self._taken_blocks = needed
        if has_prompts or self._waiting:
            self._plan_chunks(admit=not preempted)
        if self._chunks:
            stretch.begin_prefill(self._chunks)
        elif batch.num_sequences:
            # After a preemption the queue is looked at again after one step.
            steps = 1 if preempted else batch.steps_to_next_end()
            stretch.begin_decode(batch.steps_that_fit(steps, pool.num_free + self._taken_blocks))
            stretch.cut(self.host.next_s(now_s))
        else:
            stretch.num_steps = 0
            if self.host.is_busy:
                stretch.end_s = self.host.next_s(now_s)
            else:
                assert not self._waiting, "an idle engine can always admit the first in its queue"

    def _plan_chunks(self, *, admit: bool) -> None:
        budget = self._token_budget - self._batch.num_sequences
        if self._partial:
            budget -= self._schedule_chunk(self._partial, budget)
        while admit and budget and len(self._running) < self._max_sequences:
            if self.host.loaded:
                live = self.host.loaded.popleft()
                live.phase = Phase.PREFILL
            elif self._waiting and self._admit(live := self._waiting[0]):
                self._waiting.popleft()
            else:
                return
            if live.phase is Phase.LOADING:
                continue
            self._running[live] = None
            budget -= self._schedule_chunk(live, budget)

    def _admit(self, live: LiveRequest) -> bool:
        size = self.block_size
        # A prompt that is cached as a whole still computes its last block, for the next token.
        hit_limit = min((live.target_tokens - 1) // size, len(live.chain))
        holding = self.pool.admit(live.chain, hit_limit, -(-live.target_tokens // size))
        if holding is None:
            return False
        live.holding = holding
        pool_tokens = holding.hit_blocks * size
        host_blocks = self.host.fetch(self._stretch.start_s, live, hit_limit)
        live.computed_tokens = max(pool_tokens, host_blocks * size)
        live.phase = Phase.LOADING if host_blocks else Phase.PREFILL
        if live.cached_tokens is None:
            live.admitted_s = self._stretch.start_s
            live.cached_tokens = live.computed_tokens
            self._prefix_queries_tokens += live.target_tokens
            self._prefix_hits_tokens += pool_tokens
            self._host_hits_tokens += live.computed_tokens - pool_tokens
        return True

    def _schedule_chunk(self, live: LiveRequest, budget: int) -> int:
        chunk = min(live.target_tokens - live.computed_tokens, budget)
        self._chunks.append((live, chunk))
        self._publish(live, live.computed_tokens + chunk)
        return chunk

    def _make_room(self) -> None:
        """Give each decoding sequence the block it needs, oldest first, at the newest's expense."""
        for live in list(self._running):
            if live.phase is Phase.DECODE and self._batch.starts_block(live):
                while self.pool.num_free == 0 and live in self._running:
                    self._preempt(next(reversed(self._running)))
                if live in self._running:
                    self.pool.take(1)
                    self._taken_blocks += 1

    def _preempt(self, live: LiveRequest) -> None:
        self._leave(live)
        live.phase = Phase.WAITING
        live.target_tokens = live.request.prompt_tokens + live.produced_tokens
        self._waiting.appendleft(live)
        self._preemptions += 1

    # --- a step ends ----------------------------------------------------------------------------

    def _end_step(self) -> None:
        batch, steps, now_s = self._batch, self._stretch.num_steps, self._stretch.end_s
        self._busy_s += now_s - self._stretch.start_s
        self.pool.take(batch.blocks_needed(steps) - self._taken_blocks)
        self._generation_tokens += steps * batch.num_sequences
        batch.advance(steps)
        for live in batch.pop_finished():
            self._finish(live, now_s)
        self._partial = None
        for live, chunk in self._chunks:
            live.computed_tokens += chunk
            self._prefilled_tokens += chunk
            if live.computed_tokens == live.target_tokens:
                self._end_prefill(live, now_s)
            else:
                self._partial = live
        self._chunks.clear()
        for live in self._aborting:
            if live in self._running:
                self._leave(live)
        self._aborting.clear()

    def _end_prefill(self, live: LiveRequest, now_s: float) -> None:
        request = live.request
        live.produced_tokens += 1
        self._generation_tokens += 1
        is_last = live.produced_tokens == request.output_tokens
        if live.first_token_s is None:
            live.first_token_s = now_s
            self._prompt_tokens += request.prompt_tokens
            if not is_last:
                self._report(live, None)
        if is_last:
            self._finish(live, now_s)
        else:
            live.phase = Phase.DECODE
            self._batch.join(live)

    def _finish(self, live: LiveRequest, now_s: float) -> None:
        self._leave(live)
        self._report(live, now_s)

    def _leave(self, live: LiveRequest) -> None:
        """Take a running request out of the engine; its full blocks stay in the cache."""
        if live.phase is Phase.PREFILL:
            if live is self._partial:
                self._partial = None
            num_blocks = -(-live.target_tokens // self.block_size)
        else:
            if live.join_number:
                self._batch.leave(live)
            num_blocks = -(-live.computed_tokens // self.block_size)
        assert live.holding is not None
        self._publish(live, live.computed_tokens)
        self.pool.release(live.holding, num_blocks)
        live.holding = None
        live.computed_tokens = 0
        del self._running[live]

    def _publish(self, live: LiveRequest, computed_tokens: int) -> None:
        assert live.holding is not None
        num_blocks = min(computed_tokens // self.block_size, len(live.chain))
        self.pool.publish(live.holding, num_blocks)
        self.host.write_through(live.chain, num_blocks)

    def _report(self, live: LiveRequest, finished_s: float | None) -> None:
        request_id = live.request.request_id
        if self._live.get(request_id) is not live:
            return  # aborted while its last step ran
        if finished_s is not None:
            del self._live[request_id]
            self._finished += 1
        assert live.first_token_s is not None
        assert live.cached_tokens is not None
        self._outputs.append(
            SimOutput(
                request_id=request_id,
                admitted_s=live.admitted_s,
                first_token_s=live.first_token_s,
                finished_s=finished_s,
                produced_tokens=live.produced_tokens,
                cached_tokens=live.cached_tokens,
            )
        )
