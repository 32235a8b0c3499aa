"""A held or arriving turn gets its lease: budget and pool asserted, receipt written."""

from tao_coordinator.core import intake, ledger
from tao_coordinator.core.effects import Grant, Receipt
from tao_coordinator.core.model import Backend, Lease, Turn
from tao_coordinator.core.state import State


def grant(
    state: State,
    turn: Turn,
    backend: Backend,
    now_s: float,
    *,
    policy: str,
    reason: str,
    plan_id: int | None,
    keeps_pool: bool,
    keeps_budget: bool,
) -> Grant:
    """Carry out one assignment.

    Args:
        state: written to, through the ledger.
        turn: gets the lease.
        backend: where.
        now_s: monotonic seconds.
        policy: name for the receipt.
        reason: for the receipt; `forced` also paces the next forced grant there.
        plan_id: plan it came out of.
        keeps_pool: the policy claims that calls in flight fit the pool afterwards.
        keeps_budget: the policy claims that the budget is kept.

    Raises:
        AssertionError: a claim is false.
    """
    if keeps_budget:
        intake.assert_budget(state, turn, backend)
    hold_s = max(0.0, now_s - turn.arrived_s)
    lease = ledger.grant(state, turn, backend, now_s)
    if keeps_pool:
        intake.assert_pool(state, backend)
    if reason == "forced":
        cold = max(0, lease.need_tokens - lease.predicted_tokens)
        pause_s = intake.prefill_s(state, backend, cold) / state.parameters.forced_share
        # One past the hard bound does not wait for the pause, but never shortens it either.
        backend.next_forced_s = max(backend.next_forced_s, now_s + pause_s)
    state.totals.granted[reason] += 1
    lease.receipt = Receipt(
        policy=policy,
        reason=reason,
        hold_s=hold_s,
        cache_credit_tokens=lease.predicted_tokens,
        plan_id=plan_id,
    )
    return order_of(state, lease)


def order_of(state: State, lease: Lease, *, is_repeat: bool = False) -> Grant:
    """What the caller of a live lease is told; the same again when it asks again."""
    assert lease.receipt is not None
    backend = state.backends[lease.backend_id]
    return Grant(
        request_id=lease.request_id,
        session_id=lease.session.key.session_id,
        lease_id=lease.lease_id,
        backend_id=lease.backend_id,
        base_url=backend.base_url,
        affinity_headers=backend.affinity_headers,
        served_by_names=tuple(dict.fromkeys(name for name, _ in backend.served_by)),
        start_within_s=state.parameters.start_within_s,
        strength="hard" if lease.predicted_tokens else "soft",
        receipt=lease.receipt,
        is_repeat=is_repeat,
    )
