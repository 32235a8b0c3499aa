"""One request inside the modelled engine: what was asked, how far it is, what it reports."""

from dataclasses import dataclass
from enum import Enum

from tao_coordinator.simulation.block_pool import Holding


@dataclass(frozen=True, slots=True, kw_only=True)
class SimRequest:
    """One model call, as the engine sees it: lengths and block hashes, no text.

    Each hash names one *full* block together with everything before it. Hashes may be left out from
    some block on (`()` for none): from there on nothing is hit and nothing is cached.
    """

    request_id: str
    """Unique among the requests that the engine has not finished."""
    prompt_tokens: int
    output_tokens: int
    """Tokens that the request will produce, the first one (from the prefill) included."""
    block_hashes: tuple[int, ...] = ()
    """Of the full blocks of the prompt, in order."""
    output_block_hashes: tuple[int, ...] = ()
    """Of the full blocks that the reply completes (the first of them may begin in the prompt)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOutput:
    """A milestone of one request: its first token, or its last one."""

    request_id: str
    admitted_s: float
    """Start of the step that first computed a part of its prompt: before, it queued."""
    first_token_s: float
    """Engine time of the first token."""
    finished_s: float | None
    """Engine time of the last token; `None`: not finished yet."""
    produced_tokens: int
    """Tokens produced at this milestone."""
    cached_tokens: int
    """Prompt tokens that were in the prefix cache when the request was admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSnapshot:
    """The counts that an engine reports, at one moment."""

    running: int
    waiting: int
    used_blocks: int
    """Referenced blocks only: what is cached for idle sessions looks free, as it does in vLLM."""
    num_blocks: int
    prefix_queries_tokens: int
    """Prompt tokens looked up in the prefix cache, over all admitted requests."""
    prefix_hits_tokens: int
    """Those of them that were there."""
    host_hits_tokens: int = 0
    """Those of the others that lay in the host tier."""
    prompt_tokens: int
    """Prompt tokens of the requests that have produced their first token."""
    generation_tokens: int
    prefilled_tokens: int
    """Tokens computed by prefill, those computed again after a preemption included."""
    preemptions: int
    finished: int
    aborted: int
    busy_s: float
    """Engine time spent in steps that have ended."""


class RequestTooLargeError(ValueError):
    """The request could not fit into the KV pool even if it were alone."""


def check_request(request: SimRequest, block_size: int, num_blocks: int) -> None:
    """Refuse a request that contradicts itself or cannot fit into a pool of `num_blocks` blocks.

    Raises:
        RequestTooLargeError: Prompt and reply together do not fit.
        ValueError: A length below 1, or hashes that do not fit the lengths.
    """
    prompt_tokens, output_tokens = request.prompt_tokens, request.output_tokens
    if prompt_tokens < 1 or output_tokens < 1:
        raise ValueError("a request has at least one prompt token and one output token")
    num_prompt, num_output = len(request.block_hashes), len(request.output_block_hashes)
    if num_prompt > prompt_tokens // block_size:
        raise ValueError("more block hashes than the prompt has full blocks")
    if num_output and num_prompt < prompt_tokens // block_size:
        raise ValueError("hashes of the reply need the hashes of the whole prompt")
    if num_prompt + num_output > (prompt_tokens + output_tokens) // block_size:
        raise ValueError("more block hashes than prompt and reply have full blocks")
    # The last token is produced but never attended to: it takes no room.
    if -(-(prompt_tokens + output_tokens - 1) // block_size) > num_blocks:
        raise RequestTooLargeError(
            f"{prompt_tokens} prompt and {output_tokens} output tokens do not fit into a KV pool "
            f"of {num_blocks * block_size} tokens"
        )


class Phase(Enum):
    """Where a request stands inside the engine."""

    WAITING = "waiting"
    LOADING = "loading"
    """Has its room; its prefix comes from the host tier."""
    PREFILL = "prefill"
    DECODE = "decode"


class LiveRequest:
    """The engine's own record of a request."""

    __slots__ = (
        "admitted_s",
        "cached_tokens",
        "chain",
        "computed_tokens",
        "first_token_s",
        "holding",
        "join_number",
        "joined_tick",
        "phase",
        "produced_tokens",
        "request",
        "target_tokens",
    )

    def __init__(self, request: SimRequest) -> None:
        self.request = request
        self.chain = request.block_hashes + request.output_block_hashes
        self.phase = Phase.WAITING
        self.target_tokens = request.prompt_tokens
        """Tokens to have in the cache before the next one: more than the prompt once preempted."""
        self.computed_tokens = 0
        """Tokens in the cache; while decoding, as of joining the batch."""
        self.produced_tokens = 0
        """Tokens produced; while decoding, as of joining the batch."""
        self.holding: Holding | None = None
        self.admitted_s = 0.0
        """Set with `cached_tokens`."""
        self.cached_tokens: int | None = None
        """Set when the request is admitted for the first time."""
        self.first_token_s: float | None = None
        self.joined_tick = 0
        self.join_number = 0
        """Number of its present membership in the decode batch; 0: none."""
