"""Block hashes of a growing prompt, as an engine's prefix cache sees it.

A hash names one full block and everything before it, so content never needs to be made up: a block
that is kept from the previous context keeps its number, everything behind it gets a fresh one, and
the shared prefix has the same numbers in all sessions of a family.
"""

from itertools import count


class PromptBlocks:
    """The blocks of one session's context, turn by turn."""

    def __init__(self, shared: tuple[int, ...], numbers: "count[int]", block_size: int) -> None:
        """Begin with nothing but the family's shared prefix.

        Args:
            shared: hashes of the full blocks of the shared prefix.
            numbers: source of fresh hashes, one for all sessions of a run.
            block_size: tokens per block.
        """
        self._shared = shared
        self._numbers = numbers
        self._block_size = block_size
        self._chain: list[int] = list(shared)

    def turn(
        self, kept_tokens: int, input_tokens: int, output_tokens: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Hashes of the full blocks of the next prompt, and of those that its reply completes.

        Args:
            kept_tokens: leading tokens in common with the previous context.
            input_tokens: whole prompt.
            output_tokens: whole reply.
        """
        size, chain = self._block_size, self._chain
        num_prompt = input_tokens // size
        num_total = (input_tokens + output_tokens) // size
        if len(chain) < len(self._shared):
            chain[:] = self._shared
        # What is shared stays shared, however much of the rest was rewritten.
        kept = max(min(kept_tokens // size, len(chain)), min(len(self._shared), num_prompt))
        del chain[min(kept, num_prompt) :]
        fresh = self._numbers
        chain.extend(next(fresh) for _ in range(num_total - len(chain)))
        return tuple(chain[:num_prompt]), tuple(chain[num_prompt:])


class Families:
    """Hands out the contexts of a run's sessions; each family's prefix is the same for all."""

    def __init__(self, block_size: int) -> None:
        """No session yet."""
        self._block_size = block_size
        self._numbers = count(1)
        self._prefixes: dict[str, tuple[int, ...]] = {}

    def context(self, family: str, shared_tokens: int) -> PromptBlocks:
        """The context of a new session that shares `shared_tokens` with its family."""
        num_blocks = shared_tokens // self._block_size
        prefix = self._prefixes.get(family, ())
        if len(prefix) < num_blocks:
            more = (next(self._numbers) for _ in range(num_blocks - len(prefix)))
            prefix = self._prefixes[family] = (*prefix, *more)
        return PromptBlocks(prefix[:num_blocks], self._numbers, self._block_size)
