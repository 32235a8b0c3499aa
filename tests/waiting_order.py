"""Who overtook whom in one step, judged from outside the policy."""

from collections.abc import Sequence

from tao_coordinator.core.effects import Effect, Grant
from tao_coordinator.core.model import Turn
from tao_coordinator.core.state import State

NO_QUEUE = {"resident", "parallel", "pass-through", "forced"}
"""Grants that take no room that the queue waits for, or are owed to a bound."""


def overtaken(held_before: Sequence[Turn], state: State, effects: Sequence[Effect]) -> str | None:
    """A new session that waits on, and a later one of its tenant, of no higher priority, that went.

    Args:
        held_before: who waited before the step.
        state: after it.
        effects: its grants.
    """
    waiting = [
        turn
        for turn in held_before
        if turn.request_id in state.held
        and not turn.session.is_started
        and not turn.session.lease_ids
    ]
    for effect in effects:
        if not isinstance(effect, Grant) or effect.is_repeat:
            continue
        lease = state.leases.get(effect.lease_id)
        if lease is None or not lease.was_first or effect.receipt.reason in NO_QUEUE:
            continue
        gone = next((t for t in held_before if t.request_id == effect.request_id), None)
        # Who was turned away after the longest wait and has come again as told keeps his place.
        kept_s = lease.granted_s if lease.session.queued_s is None else lease.session.queued_s
        queued_s = kept_s if gone is None else gone.queued_s
        for turn in waiting:
            is_rival = turn.session.tenant == lease.session.tenant
            is_equal = turn.session.priority >= lease.session.priority
            fits_alike = state.eligible(turn.session) == state.eligible(lease.session)
            if is_rival and is_equal and fits_alike and turn.queued_s < queued_s:
                return f"{turn.request_id} waits on, {effect.request_id} went ({turn.queued_s} s)"
    return None
