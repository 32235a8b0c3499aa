"""Cost of a turn on each backend in KV blocks, smallest wins.

Original: NVIDIA Dynamo, KV router, `DefaultWorkerScorer` (`lib/kv-router/src/scheduling/selector`)
at its defaults (temperature 0, overlap credit 1, no credit decay, one cache tier, KV events on):

    raw      = (active prefill tokens + prompt tokens) / block
    adjusted = max(0, raw - overlap_credit * overlap blocks)
    cost     = prefill_load_scale * adjusted + active blocks + blocks this turn would add

*Overlap* is what the engine holds of this prompt: from KV events there, from the shadow of the
engine's LRU here, on every backend and not only on the last one. *Active prefill* is charged in
full until a call's first token; we do not see first tokens, so a call counts as prefilling for as
long as its uncached tokens take at the backend's learned rate, one call after the other. *Active
blocks* are the prompts of the calls in flight; generated tokens do not count (`track_output_blocks`
is off by default) and blocks that several calls share count once.
Equal costs are broken at random there, in turn here: decisions repeat exactly.
"""

from dataclasses import dataclass, field

from tao_coordinator.core import intake
from tao_coordinator.core.model import Backend, Lease, SessionKey, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.never_holds import NeverHolds, shared_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoCostParameters:
    """Defaults of Dynamo's router."""

    overlap_credit: float = 1.0
    """`--router-kv-overlap-score-credit`; 0..1."""
    prefill_load_scale: float = 1.0
    """`--router-prefill-load-scale`."""
    block_tokens: int = 16
    """Tokens per KV block: 16 in vLLM, 64 is common elsewhere."""


@dataclass(slots=True)
class Active:
    """What the calls in flight on one backend occupy."""

    leases: list[Lease] = field(default_factory=list[Lease])
    """In the order in which they were granted."""

    def prefill_tokens(self, state: State, backend: Backend, now_s: float) -> int:
        """Uncached tokens of calls that have not reached their first token by estimate."""
        total = 0
        free_s = float("-inf")
        for lease in self.leases:
            shared = shared_tokens(lease.session, backend)
            cold = max(0, lease.input_tokens - shared - lease.predicted_tokens)
            free_s = max(free_s, lease.granted_s) + intake.prefill_s(state, backend, cold)
            if now_s < free_s:
                total += cold
        return total

    def prompts(self, backend: Backend) -> dict[SessionKey, int]:
        """Private prompt tokens per session: parallel calls of one share their prefix."""
        found: dict[SessionKey, int] = {}
        for lease in self.leases:
            session = lease.session
            private = max(0, lease.input_tokens - shared_tokens(session, backend))
            found[session.key] = max(private, found.get(session.key, 0))
        return found


class DynamoCost(NeverHolds):
    """argmin over the backends of prefill still to do plus blocks in use."""

    name = "dynamo-cost"

    def __init__(self, parameters: DynamoCostParameters | None = None) -> None:
        """Decide by `parameters`."""
        self.parameters = parameters or DynamoCostParameters()

    def choose(
        self, state: State, turn: Turn, eligible: list[Backend], now_s: float
    ) -> tuple[Backend, str]:
        """The cheapest backend; of several, the next in turn."""
        active = {b.backend_id: Active() for b in eligible}
        for lease in state.leases.values():
            if lease.backend_id in active:
                active[lease.backend_id].leases.append(lease)
        costs = [self.cost_blocks(state, turn, b, active[b.backend_id], now_s) for b in eligible]
        cheapest = [b for b, cost in zip(eligible, costs, strict=True) if cost == min(costs)]
        return cheapest[state.num_leases % len(cheapest)], "cost"

    def cost_blocks(
        self, state: State, turn: Turn, backend: Backend, active: Active, now_s: float
    ) -> float:
        """Cost of this turn there, in blocks."""
        parameters = self.parameters
        block = parameters.block_tokens
        session = turn.session
        shared = shared_tokens(session, backend)
        cached = min(turn.input_tokens, shared + backend.cache.resident_tokens(session.key))
        raw = (active.prefill_tokens(state, backend, now_s) + turn.input_tokens) / block
        adjusted = max(0.0, raw - parameters.overlap_credit * (cached // block))
        prompts = active.prompts(backend)
        private = max(0, turn.input_tokens - shared)
        prompts[session.key] = max(private, prompts.get(session.key, 0))
        blocks = sum(-(-tokens // block) for tokens in prompts.values()) + shared // block
        return parameters.prefill_load_scale * adjusted + blocks
