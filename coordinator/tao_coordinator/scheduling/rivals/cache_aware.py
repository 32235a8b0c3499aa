"""Longest known prefix while the fleet is balanced, least load otherwise.

Original: `cache_aware` of the SGLang router / SMG (`policies/cache_aware.rs`) and, with the same
law, of the vLLM router:

    imbalanced = (max load - min load > balance_abs) and (max load > balance_rel * min load)
    imbalanced                           -> least load
    matched / prompt > cache_threshold   -> the backend with the longest match
    otherwise                            -> least load (sglang #14650; before: smallest tree)

Load is the number of calls in flight. The original remembers the *text* it sent to each backend in
a radix tree and is never told what the engines evicted; here prompts of one session are known to
extend each other, so the longest prompt a session sent to a backend stands for its branch of the
tree, and the learned shared prefix for the trunk. Among backends with the same match the least
loaded is taken (SMG #2161).
"""

from dataclasses import dataclass

from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.never_holds import (
    NeverHolds,
    calls_in_flight,
    shared_tokens,
)
from tao_coordinator.scheduling.rivals.notes import SessionNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAwareParameters:
    """Defaults of the command lines of SMG and the vLLM router."""

    cache_threshold: float = 0.3
    """Share of the prompt that must match; (0, 1)."""
    balance_abs: int = 64
    """Calls in flight by which the fullest backend must exceed the emptiest ..."""
    balance_rel: float = 1.5
    """... and the factor, before cache is ignored."""


class CacheAware(NeverHolds):
    """Affinity by prefix, dropped while the loads differ too much."""

    name = "cache-aware"

    def __init__(self, parameters: CacheAwareParameters | None = None) -> None:
        """Start with empty trees."""
        self.parameters = parameters or CacheAwareParameters()
        self._sent: SessionNotes[dict[str, int]] = SessionNotes()
        """Longest prompt in tokens per session and backend id."""

    def choose(
        self, state: State, turn: Turn, eligible: list[Backend], now_s: float
    ) -> tuple[Backend, str]:
        """One backend by prefix or by load; remembers what it sent there."""
        parameters = self.parameters
        load = calls_in_flight(state)
        loads = [load[b.backend_id] for b in eligible]
        emptiest = eligible[loads.index(min(loads))]
        sent = self._sent.get(turn.session)
        if sent is None:
            sent = self._sent.put(turn.session, {})
        spread = max(loads) - min(loads)
        if spread > parameters.balance_abs and max(loads) > parameters.balance_rel * min(loads):
            backend, reason = emptiest, "imbalanced"
        else:
            matched = {
                b.backend_id: max(sent.get(b.backend_id, 0), shared_tokens(turn.session, b))
                for b in eligible
            }
            best = max(eligible, key=lambda b: (matched[b.backend_id], -load[b.backend_id]))
            found = min(turn.input_tokens, matched[best.backend_id])
            if found > parameters.cache_threshold * turn.input_tokens:
                backend, reason = best, "cache-affinity"
            else:
                backend, reason = emptiest, "least-load"
        before = sent.get(backend.backend_id, 0)
        sent[backend.backend_id] = max(before, turn.input_tokens)
        return backend, reason

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """None; forgets the prefixes of sessions that are gone."""
        self._sent.sweep(state)
        return []
