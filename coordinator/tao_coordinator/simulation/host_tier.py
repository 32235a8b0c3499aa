"""KV blocks in host memory below the GPU's pool: what stays there, and how it comes back.

The rules are those of vLLM's OffloadingConnector (`vllm/v1/kv_offload`, since 0.11); SGLang's
HiCache with `write_through` and LMCache do the same:

- *written through*: a full block is copied to the host as soon as it is computed, on a stream of
  its own that costs the engine nothing. So the tier holds again what the pool holds: one no larger
  than the pool adds little (HiCache asks for a ratio above 1);
- *least recently used*: a prompt refreshes its whole chain; of chains of equal age the tail goes
  first. Blocks that are being loaded stay;
- *asynchronous load*: a prompt whose prefix goes on in the host beyond what the pool has takes its
  blocks in the pool and waits until they are filled, while the engine goes on with the others and
  admits those behind it. What is not in the host is computed then. Loads share the link, first
  come, first served. Nothing is loaded before a prompt asks for it;
- *counted apart*: the engine's prefix hits are those of its pool; hits of the host are external
  ones. The `cached_tokens` of a reply are both together.

TokenCake (arXiv 2510.18586) instead moves a session's blocks when its tool starts and back before
it is expected to end (`tool_offload`): with `is_written_through` off only what is moved is there.

Left out: the time of writing (the link is full duplex and writes at the speed of computing at
most), the host's own memory bandwidth, and what copies cost the kernels beside them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tao_coordinator.simulation.block_pool import BlockPool, Holding
from tao_coordinator.simulation.request import LiveRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTierSpec:
    """One engine's host tier."""

    tokens: int
    """KV tokens that fit there; at least one block."""
    reload_tokens_per_s: float
    """From there to the pool."""
    is_written_through: bool = True
    """False: only what `offload` has moved lies there."""

    def __post_init__(self) -> None:
        """A tier holds something and gives it back."""
        if self.tokens < 1 or not self.reload_tokens_per_s > 0.0:
            raise ValueError("a host tier has tokens and a reload rate above 0")


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    """Blocks on their way from the host to the pool."""

    live: LiveRequest | None
    """The request that waits for them; `None`: they are moved in advance."""
    holding: Holding
    """Their places in the pool."""
    source: Holding
    """Their places in the host: protected until they have arrived."""
    num_blocks: int
    """Leading blocks of the chain that are in the pool afterwards."""
    end_s: float


class HostTier:
    """What lies in the host, the link to it, and the requests that wait for it.

    Args:
        spec: Size, rate, what is written; `None`: there is no such tier, and nothing lies there.
        block_size: Tokens per block.
    """

    def __init__(self, spec: HostTierSpec | None, block_size: int) -> None:
        self._is_written_through = spec is not None and spec.is_written_through
        self._blocks = None if spec is None else BlockPool(max(1, spec.tokens // block_size))
        self._block_s = 0.0 if spec is None else block_size / spec.reload_tokens_per_s
        self._loads: deque[_Load] = deque()
        self._link_free_s = 0.0
        self.loaded: deque[LiveRequest] = deque()
        """Requests whose blocks have arrived and that do not run yet, in order of arrival."""

    @property
    def is_busy(self) -> bool:
        """Something is on its way or has arrived."""
        return bool(self._loads or self.loaded)

    @property
    def num_requests(self) -> int:
        """Requests whose blocks are on their way or have arrived."""
        return len(self.loaded) + sum(load.live is not None for load in self._loads)

    def next_s(self, now_s: float) -> float:
        """When there is something to do for the engine, not before now; `inf`: never."""
        if self.loaded:
            return now_s
        return max(now_s, self._loads[0].end_s) if self._loads else inf

    def match(self, chain: Sequence[int], limit: int) -> int:
        """Return how many leading blocks of `chain`, at most `limit`, lie there."""
        return 0 if self._blocks is None else self._blocks.match(chain, limit)

    # --- to the host -----------------------------------------------------------------------------

    def write_through(self, chain: Sequence[int], num_blocks: int) -> None:
        """The first blocks of a chain are computed: copy what is new, refresh the rest."""
        if self._is_written_through:
            self.write(chain, num_blocks)

    def write(self, chain: Sequence[int], num_blocks: int) -> None:
        """Put the first blocks of a chain there, if they fit beside what is being loaded."""
        if self._blocks is None:
            return
        num_blocks = min(num_blocks, self._blocks.num_blocks)
        holding = self._blocks.admit(chain, num_blocks, num_blocks) if num_blocks else None
        if holding is not None:
            self._blocks.publish(holding, num_blocks)
            self._blocks.release(holding, num_blocks)

    def move_down(self, chain: Sequence[int], pool: BlockPool) -> None:
        """Move what the pool has of a chain that nobody holds to the host."""
        self.write(chain, pool.match(chain, len(chain)))
        pool.drop(chain)

    # --- from the host ---------------------------------------------------------------------------

    def fetch(self, now_s: float, live: LiveRequest, limit: int) -> int:
        """Begin to fill the request's blocks from the host where that has more than the pool.

        Returns:
            Leading blocks of its chain that the pool has afterwards; 0: there is nothing to load.
        """
        assert live.holding is not None
        num_blocks = self.match(live.chain, limit)
        if num_blocks <= live.holding.hit_blocks:
            return 0
        self._load(now_s, live, live.holding, num_blocks)
        return num_blocks

    def move_up(
        self, now_s: float, chain: Sequence[int], pool: BlockPool, free_blocks: int
    ) -> None:
        """Begin to load what the host has of a chain and the pool lacks, if room can be had.

        Args:
            now_s: as of now.
            chain: hashes of its full blocks.
            pool: where to.
            free_blocks: of its free blocks those that may be taken.
        """
        num_blocks = self.match(chain, len(chain))
        if num_blocks - pool.match(chain, num_blocks) <= 0 or num_blocks > free_blocks:
            return
        holding = pool.admit(chain, num_blocks, num_blocks)
        if holding is not None:
            self._load(now_s, None, holding, num_blocks)

    def end_loads(self, now_s: float, pool: BlockPool) -> None:
        """What has arrived by now can be hit; who waited for it goes on."""
        while self._loads and self._loads[0].end_s <= now_s:
            load = self._loads.popleft()
            self._unprotect(load)
            pool.publish(load.holding, load.num_blocks)
            if load.live is None:
                pool.release(load.holding, load.num_blocks)
            else:
                self.loaded.append(load.live)

    def drop(self, live: LiveRequest, pool: BlockPool, num_blocks: int) -> None:
        """The request is aborted: give back its `num_blocks`; what it had of the link is spent."""
        assert live.holding is not None
        if live in self.loaded:
            self.loaded.remove(live)
        else:
            load = next(load for load in self._loads if load.live is live)
            self._loads.remove(load)
            self._unprotect(load)
        pool.release(live.holding, num_blocks)
        live.holding = None

    def check(self) -> None:
        """Verify the blocks by counting everything again; for tests."""
        if self._blocks is not None:
            self._blocks.check()

    def _load(
        self, now_s: float, live: LiveRequest | None, holding: Holding, num_blocks: int
    ) -> None:
        assert self._blocks is not None
        source = self._blocks.admit(holding.chain, num_blocks, num_blocks)
        assert source is not None and source.hit_blocks == num_blocks, "not in the host"
        new_blocks = num_blocks - holding.hit_blocks
        self._link_free_s = max(now_s, self._link_free_s) + new_blocks * self._block_s
        self._loads.append(_Load(live, holding, source, num_blocks, self._link_free_s))

    def _unprotect(self, load: _Load) -> None:
        assert self._blocks is not None
        self._blocks.release(load.source, load.num_blocks)
