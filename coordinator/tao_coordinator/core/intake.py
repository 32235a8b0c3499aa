"""The door of the queue: a request for a lease becomes a held turn or a refusal."""

from tao_coordinator.core.effects import Hold, Reject, RejectReason
from tao_coordinator.core.events import TurnRequested
from tao_coordinator.core.model import Backend, Session, SessionKey, Turn
from tao_coordinator.core.state import State

FIRST_INPUT_TOKENS = 4_096
"""Prompt length assumed for a session of which nothing is known."""
RETRY_AFTER_S_MAX = 60.0
"""A refused session is asked back within this time, however long the line.

A wait of an hour is a guess. Who is back too early costs one request, and its place, if it had one,
is kept; who stays away as long as it was told leaves room idle that is free sooner. The openai
package does not ask again at all where it is told more than 120 s; anthropic's sleeps as long as
it is told.
"""
PLACE_KEPT_S = 120.0
"""How much later than told a refused session may come back without losing its place in the line."""


def take_in(state: State, event: TurnRequested, now_s: float) -> Turn | Reject:
    """Make the turn of a first request, or say why there can be none."""
    refusal = _refuse_by_fleet(state, event, now_s)
    if refusal is not None:
        return refusal
    session = state.session(
        SessionKey(event.session_id, event.agent, event.model),
        now_s,
        root_id=event.root_session_id,
        parent_id=event.parent_session_id,
        tenant=event.tenant,
        priority=event.priority,
    )
    session.priority = event.priority
    activity = state.activities.get(event.session_id)
    if activity is not None:
        activity.waiting_for = ""
    if event.shared_prefix_tokens is not None:
        session.shared_prefix_tokens = event.shared_prefix_tokens
    input_tokens = event.input_tokens
    if input_tokens is None:
        input_tokens = session.context_tokens or FIRST_INPUT_TOKENS
    too_large = _too_large(state, event.request_id, session, input_tokens)
    if too_large is not None:
        if not session.is_started and not session.lease_ids and not session.held_ids:
            state.forget(session)
        return too_large
    output_tokens = int(state.typical.output_tokens)
    if event.max_output_tokens is not None:
        output_tokens = min(output_tokens, event.max_output_tokens)
    return Turn(
        request_id=event.request_id,
        session=session,
        arrived_s=now_s,
        queued_s=_place_in_line(session, now_s),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        timeout_s=event.timeout_s,
        poll_deadline_s=now_s + state.parameters.poll_grace_s,
    )


def keep_place(session: Session, back_s: float) -> None:
    """A refused session was told to be back by then: until a little later its place is kept."""
    session.place_kept_until_s = back_s + PLACE_KEPT_S


def _place_in_line(session: Session, now_s: float) -> float:
    """A new session that was told to come again, and does, has not lost its place."""
    if session.is_started or session.held_ids or session.lease_ids:
        return now_s
    if session.queued_s is None or now_s > session.place_kept_until_s:
        session.queued_s = now_s
    return session.queued_s


def queue_order(turn: Turn) -> tuple[bool, float]:
    """Started turns are ahead of new ones, then arrival."""
    return (not turn.session.is_started, turn.queued_s)


def hold_notice(state: State, turn: Turn, position: int, now_s: float) -> Hold:
    """Where a held turn stands; `position` counts from 1 over both queues."""
    is_started = turn.session.is_started
    own = position if is_started else max(1, position - state.num_held_started)
    wait_s = state.estimated_wait_s(own, is_started=is_started)
    if is_started:
        held_s = now_s - turn.arrived_s
        wait_s = max(0.0, min(wait_s, state.parameters.hold_hard_s - held_s))
    return Hold(request_id=turn.request_id, queue_position=position, estimated_wait_s=wait_s)


def retry_after_s(state: State, position: int | None = None) -> float:
    """When a new session that was turned away should ask again.

    Args:
        state: as of now.
        position: in the queue of new sessions, from 1; `None`: behind its end.
    """
    if position is None:
        position = len(state.held) - state.num_held_started + 1
    return min(RETRY_AFTER_S_MAX, state.estimated_wait_s(position, is_started=False))


def abandoned(request_id: str) -> Reject:
    """What a caller hears that took its turn back, or stopped asking, and asks again."""
    return Reject(
        request_id=request_id,
        reason=RejectReason.ABANDONED,
        message="this turn was taken back by its caller; a new turn needs a new request_id",
    )


def prefill_s(state: State, backend: Backend, tokens: int) -> float:
    """Seconds that prefilling `tokens` takes there, by the learned rate or the prior."""
    rate = backend.rates.prefill_tokens_per_s
    if rate is None:
        pool = state.pool_tokens(backend)
        if not pool:
            return 0.0
        rate = pool / state.parameters.refill_s_prior
    return tokens / rate


def assert_budget(state: State, turn: Turn, backend: Backend) -> None:
    """A planned grant keeps the budget, growth included."""
    budget = state.budget_tokens(backend)
    if budget is None:
        return
    need = state.need_tokens(turn, backend) + state.growth_beside(backend)
    committed = state.committed_tokens(backend)
    assert committed + need <= budget, (
        f"{turn.request_id} would commit {committed + need} of {budget} tokens "
        f"on {backend.backend_id}"
    )


def assert_pool(state: State, backend: Backend) -> None:
    """What is in flight fits the pool: a bypass may exceed the budget, never that."""
    pool = state.pool_tokens(backend)
    assert pool is None or backend.cache.in_flight_tokens <= pool, (
        f"{backend.cache.in_flight_tokens} tokens in flight in a pool of {pool} "
        f"on {backend.backend_id}"
    )


def refuse_stranded(state: State, turn: Turn) -> Reject | None:
    """Refusal for a held turn that no backend could take any more; `None`: one could."""
    session = turn.session
    if not state.eligible(session):
        return _no_healthy(turn.request_id, session.key.model)
    return _too_large(state, turn.request_id, session, turn.input_tokens)


def _refuse_by_fleet(state: State, event: TurnRequested, now_s: float) -> Reject | None:
    if len(state.held) >= state.parameters.queue_limit:
        retry_s = retry_after_s(state)
        session = state.sessions.get(SessionKey(event.session_id, event.agent, event.model))
        if session is not None and now_s <= session.place_kept_until_s:
            # It came in time: that the queue is full is not its fault.
            keep_place(session, now_s + retry_s)
        return Reject(
            request_id=event.request_id,
            reason=RejectReason.QUEUE_FULL,
            message=f"{len(state.held)} turns are held already",
            retry_after_s=retry_s,
        )
    if state.eligibility.of(event.model).backends:
        return None
    if not state.backends or any(b.serves(event.model) for b in state.backends.values()):
        return _no_healthy(event.request_id, event.model)
    served = sorted({model for b in state.backends.values() for model in b.models})
    return Reject(
        request_id=event.request_id,
        reason=RejectReason.MODEL_NOT_SERVED,
        message=f"no backend serves {event.model!r}; served: {', '.join(served)}",
    )


def _too_large(state: State, request_id: str, session: Session, input_tokens: int) -> Reject | None:
    largest = state.eligibility.of(session.key.model).pool_tokens_max
    # One token of output must fit beside the prompt.
    if largest is None or input_tokens + 1 <= largest:
        return None
    return Reject(
        request_id=request_id,
        reason=RejectReason.TOO_LARGE,
        message=f"{input_tokens} prompt tokens do not fit the largest pool of {largest} tokens",
    )


def _no_healthy(request_id: str, model: str) -> Reject:
    what = f"backend that serves {model!r}" if model else "backend"
    return Reject(
        request_id=request_id,
        reason=RejectReason.NO_HEALTHY_BACKEND,
        message=f"no healthy {what} at the moment",
        retry_after_s=1.0,
    )
