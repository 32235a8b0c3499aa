"""The KV cache of one engine: reference-counted blocks, prefix hits, and vLLM's order of eviction.

The rules are those of vLLM (0.24 and later): a full block whose content is known can be hit by a
later prompt; a block that nobody references stays cached until its room is needed; room is taken
from blocks without content first, then from the block that has been unreferenced longest, and of a
chain that was released together the tail goes first.

Blocks are not kept one by one. Consecutive blocks of one prompt that have the same holders form a
*segment*, segments form a tree, and the queue of eviction candidates holds segments that shrink
from their end. So every operation costs the number of segments (two or three in an agent's chain),
not the number of blocks, and the outcome is the same as block by block; a test holds it to that.

One deliberate difference: two requests that compute the same content at the same time end up
sharing the blocks, where vLLM keeps the copies until eviction.
"""

from collections import OrderedDict
from collections.abc import Sequence


class _Segment:
    """Blocks `[start, stop)` of a chain of hashes, held and released together."""

    __slots__ = ("chain", "children", "num_holders", "parent", "start", "stop")

    def __init__(
        self, chain: Sequence[int], start: int, stop: int, parent: "_Segment | None"
    ) -> None:
        self.chain = chain
        self.start = start
        self.stop = stop
        self.parent = parent
        self.children: dict[int, _Segment] = {}
        self.num_holders = 0

    def common(self, chain: Sequence[int], limit: int) -> int:
        """Return up to which block `chain` agrees, given that it agrees on the first one.

        A hash names its block and everything before it, so agreement is a prefix: one comparison
        settles the usual case, bisection the rest.
        """
        end = min(self.stop, limit)
        own = self.chain
        if chain[end - 1] == own[end - 1]:
            return end
        low, high = self.start + 1, end - 1
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] == own[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low


class Holding:
    """What one admitted request holds: cached blocks by its place in the tree, and blank ones."""

    __slots__ = ("chain", "hit_blocks", "segment")

    def __init__(self, chain: Sequence[int], segment: _Segment, hit_blocks: int) -> None:
        self.chain = chain
        self.segment = segment
        """The deepest segment held; its ancestors are held too."""
        self.hit_blocks = hit_blocks
        """Leading blocks that were cached already when the request was admitted."""


class BlockPool:
    """A fixed number of KV blocks; see the module's text for the rules.

    Chains are sequences of integers, one per full block, where each names its block *and* all
    blocks before it. A blank block is one without content that could be hit: never used, partly
    filled, or given back before it was full.

    Args:
        num_blocks: How many there are.
        evicts_whole: Not vLLM's rule: who loses a block loses at once all blocks down to the last
            place where another chain turned off or was held apart. What is before it goes later, at
            once again, also where nothing but this chain is left of it. Chains of agents are unheld
            between their turns.
    """

    def __init__(self, num_blocks: int, *, evicts_whole: bool = False) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {num_blocks}")
        self.num_blocks = num_blocks
        self._evicts_whole = evicts_whole
        self._num_blank = num_blocks
        self._num_evictable = 0
        self._num_private = 0
        self._root = _Segment((), 0, 0, None)
        self._queue: OrderedDict[_Segment, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that can be taken: blank ones and cached ones that nobody references."""
        return self._num_blank + self._num_evictable

    @property
    def num_cached_free(self) -> int:
        """Blocks that can be hit and that nobody references."""
        return self._num_evictable

    @property
    def num_referenced(self) -> int:
        """Blocks that at least one request holds; a shared block counts once."""
        return self.num_blocks - self._num_blank - self._num_evictable

    def match(self, chain: Sequence[int], limit: int) -> int:
        """Return how many leading blocks of `chain`, at most `limit`, are cached."""
        return self._walk(chain, limit)[1]

    def admit(self, chain: Sequence[int], hit_limit: int, num_blocks: int) -> Holding | None:
        """Take `num_blocks` blocks for a request: its cached prefix and blank ones for the rest.

        Args:
            chain: Hashes of the request's full blocks, prompt and reply.
            hit_limit: The most leading blocks that may be taken from the cache.
            num_blocks: Blocks that the request needs in all; at least as many as it can hit.

        Returns:
            The holding, or `None` (and nothing changed) when too few blocks are free.
        """
        segment, hit_blocks = self._walk(chain, hit_limit)
        fresh = num_blocks - hit_blocks
        # Cached blocks that nobody holds stop being free when they are hit.
        unheld, above = 0, segment
        while above.num_holders == 0 and above.parent is not None:
            unheld += min(above.stop, hit_blocks) - above.start
            above = above.parent
        if fresh + unheld > self.num_free:
            return None
        segment = self._hold(segment, hit_blocks)
        self.take(fresh)
        return Holding(chain, segment, hit_blocks)

    def take(self, num_blocks: int) -> None:
        """Take blank blocks, evicting as needed. The caller knows that so many are free."""
        assert num_blocks <= self.num_free, "more blocks taken than are free"
        self._num_private += num_blocks
        blank = min(num_blocks, self._num_blank)
        self._num_blank -= blank
        missing = num_blocks - blank
        while missing > 0:
            segment = next(iter(self._queue))
            assert not segment.children, "a block is evicted before the blocks that build on it"
            gone = segment.stop - segment.start
            if not self._evicts_whole:
                gone = min(missing, gone)
            segment.stop -= gone
            missing -= gone
            self._num_evictable -= gone
            if segment.stop == segment.start:
                del self._queue[segment]
                parent = segment.parent
                assert parent is not None
                del parent.children[segment.chain[segment.start]]
        self._num_blank -= missing  # what went beyond the need is blank now

    def publish(self, holding: Holding, num_blocks: int) -> None:
        """Make the first `num_blocks` blocks of a holding, computed by now, available to others."""
        chain, segment = holding.chain, holding.segment
        while segment.stop < num_blocks:
            start = segment.stop
            known = segment.children.get(chain[start])
            if known is not None:
                # Somebody else computed the same content: share that copy, give ours back.
                stop = known.common(chain, num_blocks)
                segment = self._hold_one(known, stop)
                self._num_blank += stop - start
                self._num_private -= stop - start
                continue
            if segment.num_holders == 1 and not segment.children:
                segment.chain = chain
                segment.stop = num_blocks
            else:
                grown = _Segment(chain, start, num_blocks, segment)
                grown.num_holders = 1
                segment.children[chain[start]] = grown
                segment = grown
            self._num_private -= num_blocks - start
        holding.segment = segment

    def release(self, holding: Holding, num_blocks: int) -> None:
        """Give back all blocks of a holding; what was published stays cached until it is evicted.

        Args:
            holding: What `admit` returned; not to be used again.
            num_blocks: Blocks held in all, those taken since by `take` included.
        """
        segment = holding.segment
        private = num_blocks - segment.stop
        assert 0 <= private <= self._num_private, "blocks were given back that were not taken"
        self._num_private -= private
        self._num_blank += private
        below: _Segment | None = None
        while segment.parent is not None:
            parent = segment.parent
            segment.num_holders -= 1
            if segment.num_holders == 0:
                self._num_evictable += segment.stop - segment.start
                if below is not None and len(segment.children) == 1:
                    # Nobody else builds on it: one segment from now on, in the same queue order.
                    below.start = segment.start
                    below.parent = parent
                    parent.children[segment.chain[segment.start]] = below
                else:
                    self._queue[segment] = None
                    below = segment
            segment = parent

    def drop(self, chain: Sequence[int]) -> int:
        """Evict the cached tail of a chain now, as far as nobody holds it or builds on it.

        Returns:
            Blocks that are blank now.
        """
        segment, depth = self._walk(chain, len(chain))
        dropped = 0
        while segment in self._queue and not segment.children and segment.stop == depth:
            parent = segment.parent
            assert parent is not None
            depth = segment.start
            dropped += segment.stop - depth
            del self._queue[segment]
            del parent.children[segment.chain[depth]]
            segment = parent
        self._num_evictable -= dropped
        self._num_blank += dropped
        return dropped

    def check(self) -> None:
        """Verify conservation and the tree by counting everything again; for tests."""
        held = free = 0
        pending = list(self._root.children.values())
        while pending:
            segment = pending.pop()
            parent = segment.parent
            assert parent is not None
            assert segment.start == parent.stop, "a hole in a chain"
            assert segment.stop > segment.start, "an empty segment"
            assert (segment.num_holders == 0) == (segment in self._queue), "queue and holders"
            assert parent is self._root or parent.num_holders >= segment.num_holders
            if segment.num_holders:
                held += segment.stop - segment.start
            else:
                free += segment.stop - segment.start
            pending.extend(segment.children.values())
        assert free == self._num_evictable
        assert self._num_blank >= 0
        assert self._num_private >= 0
        assert self._num_blank + free + held + self._num_private == self.num_blocks

    def _walk(self, chain: Sequence[int], limit: int) -> tuple[_Segment, int]:
        """Return the deepest cached segment along `chain` and how many blocks agree."""
        segment, depth = self._root, 0
        while depth < limit:
            child = segment.children.get(chain[depth])
            if child is None:
                break
            segment, depth = child, child.common(chain, limit)
            if depth < child.stop:
                break
        return segment, depth

    def _hold(self, segment: _Segment, stop: int) -> _Segment:
        """Hold a segment up to block `stop`, and its ancestors; return the one that ends there."""
        if segment.parent is None:
            return segment
        deepest = self._hold_one(segment, stop)
        above = deepest.parent
        assert above is not None
        while above.parent is not None:
            self._hold_one(above, above.stop)
            above = above.parent
        return deepest

    def _hold_one(self, segment: _Segment, stop: int) -> _Segment:
        """Add a holder to the part of a segment before block `stop`; split it there if need be."""
        if stop < segment.stop:
            parent = segment.parent
            assert parent is not None
            head = _Segment(segment.chain, segment.start, stop, parent)
            head.num_holders = segment.num_holders
            parent.children[segment.chain[segment.start]] = head
            # The rear part keeps the object: its holders and its place in the queue.
            head.children[segment.chain[stop]] = segment
            segment.start = stop
            segment.parent = head
            if head.num_holders == 0:
                self._num_evictable -= stop - head.start
            head.num_holders += 1
            return head
        if segment.num_holders == 0:
            del self._queue[segment]
            self._num_evictable -= segment.stop - segment.start
        segment.num_holders += 1
        return segment
