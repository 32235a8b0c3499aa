"""Cached chains that nobody references, oldest first, with sums over the newer ones.

A Fenwick tree over the order of arrival: each operation is O(log n), amortised where the places are
numbered anew. A list walked from its end would cost every lease half a millisecond at a thousand
sessions.
"""

from collections import OrderedDict
from collections.abc import Hashable

_PLACES_MIN = 64


class IdleChains:
    """Tokens by key, in order of arrival."""

    __slots__ = ("_next", "_places", "_tokens", "_tree", "total_tokens")

    def __init__(self) -> None:
        self._tokens: OrderedDict[Hashable, int] = OrderedDict()
        self._places: dict[Hashable, int] = {}
        self._tree = [0] * (_PLACES_MIN + 1)
        self._next = 1
        self.total_tokens = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def tokens(self, key: Hashable) -> int:
        """Of this chain; 0 where there is none."""
        return self._tokens.get(key, 0)

    def put(self, key: Hashable, tokens: int) -> None:
        """Append a chain that is not there yet; `tokens` > 0."""
        if self._next == len(self._tree):
            self._number_anew()
        self._tokens[key] = tokens
        self._places[key] = self._next
        self._next += 1
        self._add(key, tokens)

    def take(self, key: Hashable) -> int:
        """Remove a chain; its tokens, 0 where there was none."""
        tokens = self._tokens.get(key, 0)
        if tokens:
            self._add(key, -tokens)
            del self._tokens[key], self._places[key]
        return tokens

    def cut_oldest(self, tokens_max: int) -> int:
        """Shorten the oldest chain by at most so much, to nothing if need be; how much it was."""
        key, tokens = next(iter(self._tokens.items()))
        if tokens <= tokens_max:
            return self.take(key)
        self._add(key, -tokens_max)
        self._tokens[key] = tokens - tokens_max
        return tokens_max

    def newer_tokens(self, key: Hashable) -> int:
        """Sum over chains that arrived after this one, which must be there."""
        place = self._places[key]
        up_to = 0
        while place:
            up_to += self._tree[place]
            place &= place - 1
        return self.total_tokens - up_to

    def clear(self) -> None:
        """Remove all."""
        self._tokens.clear()
        self._number_anew()

    def check(self) -> None:
        """Assert that sums and entries agree."""
        assert self.total_tokens == sum(self._tokens.values())
        assert self._tokens.keys() == self._places.keys()
        assert all(tokens > 0 for tokens in self._tokens.values())
        newer = 0
        for key in reversed(self._tokens):
            assert self.newer_tokens(key) == newer
            newer += self._tokens[key]

    def _add(self, key: Hashable, tokens: int) -> None:
        self.total_tokens += tokens
        place, size = self._places[key], len(self._tree)
        while place < size:
            self._tree[place] += tokens
            place += place & -place

    def _number_anew(self) -> None:
        """Close the gaps that removed chains have left; twice the places that are needed."""
        chains = list(self._tokens.items())
        self._tree = [0] * (max(_PLACES_MIN, 2 * len(chains)) + 1)
        self._places = {}
        self.total_tokens = 0
        for place, (key, tokens) in enumerate(chains, start=1):
            self._places[key] = place
            self._add(key, tokens)
        self._next = len(chains) + 1
