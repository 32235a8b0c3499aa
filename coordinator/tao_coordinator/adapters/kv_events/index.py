"""Which blocks an engine holds, and so how much of each session's prompt.

A session is a chain of blocks: the last one stored for it, its parent, and so on to the start of
the prompt. What is cached of it is the chain's length. Evicted from its end, a chain gets shorter;
what lies behind a hole in its middle is of no use and does not count; where its start was stored
before anybody listened, nothing certain can be said and nothing is.

Sessions are known by the id that came with the request (`X-Session-ID`). Engines that do not tell
it with their events still tell when the whole cache is emptied. A block that an engine holds twice
and evicts once counts as gone.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from tao_coordinator.adapters.kv_events.wire import BlocksRemoved, BlocksStored, KvEvent

BLOCKS_MAX: Final = 1_000_000
"""More blocks than this: nothing is claimed any more."""
SESSIONS_MAX: Final = 16_384
HOLE_WALKS_MAX: Final = 1_024
"""With more sessions than this a hole makes everything unknown instead of being looked for."""


@dataclass(slots=True)
class _Block:
    parent: Hashable | None
    depth_tokens: int | None
    """Tokens from the start of the prompt to its end; `None`: its start is not known."""
    num_children: int = 0


class BlockIndex:
    """The cached blocks of one engine."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, _Block] = {}
        self._leaf_of: OrderedDict[str, Hashable | None] = OrderedDict()
        """By session id: its last block that is there; `None`: not even its first one is. Least
        recently stored first."""
        self._sessions_at: dict[Hashable, set[str]] = {}
        """Sessions whose last block this is."""
        self._changed: set[str] = set()
        self.was_cleared = False
        """The whole cache was emptied since `take_changes`."""

    @property
    def num_blocks(self) -> int:
        """Blocks known to be cached."""
        return len(self._blocks)

    def apply(self, event: KvEvent) -> None:
        """Take in one event."""
        if isinstance(event, BlocksStored):
            self._store(event)
        elif isinstance(event, BlocksRemoved):
            for each in event.hashes:
                self._remove(each)
        else:
            self.forget()
            self.was_cleared = True
        if len(self._blocks) > BLOCKS_MAX:
            self.forget()

    def forget(self) -> None:
        """Nothing is known any more."""
        self._changed.update(self._leaf_of)
        self._blocks.clear()
        self._leaf_of.clear()
        self._sessions_at.clear()

    def tokens(self, session_id: str) -> int | None:
        """Tokens of the session's prompt that are cached; `None`: that cannot be said."""
        if session_id not in self._leaf_of:
            return None
        leaf = self._leaf_of[session_id]
        return 0 if leaf is None else self._blocks[leaf].depth_tokens

    def take_changes(self) -> dict[str, int | None]:
        """By session: what `tokens` says now, where it may have changed since the last time."""
        changes = {session_id: self.tokens(session_id) for session_id in self._changed}
        self._changed.clear()
        self.was_cleared = False
        return changes

    def _store(self, event: BlocksStored) -> None:
        parent = event.parent
        above = None if parent is None else self._blocks.get(parent)
        depth = 0 if parent is None else None if above is None else above.depth_tokens
        for each in event.hashes:
            depth = None if depth is None else depth + event.block_size_tokens
            block = self._blocks.get(each)
            if block is None:
                block = self._blocks[each] = _Block(parent, depth)
                if above is not None:
                    above.num_children += 1
            elif depth is not None:
                block.depth_tokens = depth
            parent, above = each, block
        if event.session_id is not None and event.hashes:
            self._move(event.session_id, event.hashes[-1])

    def _remove(self, removed: Hashable) -> None:
        block = self._blocks.pop(removed, None)
        if block is None:
            return
        above = None if block.parent is None else self._blocks.get(block.parent)
        if above is not None:
            above.num_children -= 1
        cut_off = set(self._sessions_at.get(removed, ()))
        if block.num_children:
            # Blocks behind a hole are there and of no use.
            if len(self._leaf_of) > HOLE_WALKS_MAX:
                self.forget()
                return
            cut_off.update(s for s in self._leaf_of if self._passes(s, removed))
        for session_id in cut_off:
            if block.parent is None or above is not None:
                self._move(session_id, block.parent)
            else:
                self._leave(session_id)

    def _passes(self, session_id: str, wanted: Hashable) -> bool:
        """Whether a session's chain goes through a block, which is gone already."""
        at = self._leaf_of[session_id]
        while at is not None and at in self._blocks:
            at = self._blocks[at].parent
        return at == wanted

    def _move(self, session_id: str, leaf: Hashable | None) -> None:
        self._leave(session_id)
        self._leaf_of[session_id] = leaf
        if leaf is not None:
            self._sessions_at.setdefault(leaf, set()).add(session_id)
        if len(self._leaf_of) > SESSIONS_MAX:
            self._leave(next(iter(self._leaf_of)))

    def _leave(self, session_id: str) -> None:
        self._changed.add(session_id)
        leaf = self._leaf_of.pop(session_id, None)
        at = self._sessions_at.get(leaf)
        if at is not None:
            at.discard(session_id)
            if not at:
                del self._sessions_at[leaf]
