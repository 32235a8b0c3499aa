"""Every change of a seat, a lease or a held turn: the one place that moves tokens between counters.

Life of a turn: `hold` -> `grant` -> `start` -> `finish`, or out of the queue by `drop_held`.
Life of a seat: taken by `grant`, idle after `finish`, `release_seat` when its room may be promised
again, `leave_seat` when it is given up (interrupt), moved by the next `grant`.
All functions keep `core.invariants.check` true.
"""

from tao_coordinator.core.effects import Reject
from tao_coordinator.core.events import LeaseReleased, TurnOutcome
from tao_coordinator.core.evidence import DEPTH_RATIO_MIN, PREDICTED_TOKENS_MIN
from tao_coordinator.core.model import Backend, Lease, Reply, Seat, Session, Turn
from tao_coordinator.core.state import State

_GAIN_OUTPUT = 0.02
_GAIN_GROWTH = 0.02
_GAIN_CONTINUES = 0.01
_GAIN_QUALITY = 0.05
_GAIN_TURNS = 0.02
_GAIN_SESSION = 0.1
_OUTPUT_TOKENS_MAX = 65_536
"""Longer replies count as this long: one wrong report must not make room scarce for all."""


def hold(state: State, turn: Turn) -> None:
    """Put a turn into the queue, last."""
    state.held[turn.request_id] = turn
    turn.session.held_ids.add(turn.request_id)


def drop_held(state: State, turn: Turn, refusal: Reject) -> None:
    """Take a turn out of the queue without a lease; it is never sent to a backend.

    `refusal` is told again to a caller that asks again.
    """
    del state.held[turn.request_id]
    turn.session.held_ids.discard(turn.request_id)
    state.finish_request(turn.request_id, refusal)


def grant(state: State, turn: Turn, backend: Backend, now_s: float) -> Lease:
    """Give the turn a lease, its session a seat there, and take it out of the queue."""
    session = turn.session
    state.held.pop(turn.request_id, None)
    session.held_ids.discard(turn.request_id)
    need = state.need_tokens(turn, backend)
    # Credit and depth are read before the session's home moves here.
    credit = state.predicted_tokens(session, backend)
    caches = state.caches(backend)
    larger, larger_tokens = caches[-1 if backend.tier else 0]
    depth = larger.depth_tokens(session.key)
    is_evidence = (
        session.last_backend_id == backend.backend_id
        and session.completed_s > backend.cache_lost_s
        and not session.lease_ids
    )
    found = max(cache.start(session.key, need, size) for cache, size in caches)
    seat = session.seat
    if seat is not None and seat.backend_id == backend.backend_id and session.lease_ids:
        need = max(need, seat.tokens)  # parallel calls of one session share its seat
    leave_seat(state, session)
    _take_seat(state, session, Seat(backend_id=backend.backend_id, tokens=need))
    state.num_leases += 1
    lease = Lease(
        lease_id=f"{state.lease_prefix}{state.num_leases}",
        request_id=turn.request_id,
        session=session,
        backend_id=backend.backend_id,
        granted_s=now_s,
        expires_s=now_s + state.parameters.start_within_s,
        started=False,
        input_tokens=turn.input_tokens,
        need_tokens=need,
        predicted_tokens=min(found, credit) if credit else 0,
        chain_tokens=credit,
        depth_ratio=depth / max(1, larger_tokens or depth),
        was_first=not session.is_started,
        is_evidence=is_evidence,
    )
    state.leases[lease.lease_id] = lease
    backend.foreign.call_began()
    state.lease_by_request[turn.request_id] = lease.lease_id
    session.lease_ids.add(lease.lease_id)
    session.last_backend_id = backend.backend_id
    if session.idle_since_s is not None:
        # After a longer pause the cache is lost whatever is reserved.
        idle_s = turn.arrived_s - session.idle_since_s
        state.cycle.was_idle(min(state.parameters.refill_s_max, idle_s))
    session.idle_since_s = None
    if session.admitted_s is None:
        session.admitted_s = now_s
    _count_hold(state, turn, now_s)
    return lease


def start(state: State, lease: Lease, now_s: float) -> None:
    """The caller runs the turn and is alive."""
    lease.started = True
    lease.expires_s = now_s + state.parameters.lease_silence_s
    lease.session.last_activity_s = now_s


def finish(state: State, lease: Lease, report: LeaseReleased, now_s: float) -> None:
    """The turn is over: free what it held in flight, learn from its usage, leave the seat idle."""
    session = lease.session
    del state.leases[lease.lease_id]
    del state.lease_by_request[lease.request_id]
    session.lease_ids.discard(lease.lease_id)
    state.finish_request(lease.request_id)
    state.totals.released[report.outcome.value] += 1
    session.last_activity_s = now_s
    backend = state.backends[lease.backend_id]
    backend.foreign.call_ended()
    served_by = _who_served(state, report) or backend
    if served_by is not backend:
        lease.is_evidence = False  # what it found says nothing about the prediction made here
    if report.outcome is TurnOutcome.COMPLETED:
        _learn(state, lease, report, served_by, now_s)
        state.cycle.ran(now_s - lease.granted_s)
        session.completed_s = now_s
        if served_by.failures:
            served_by.failures = 0  # as good as an answer to a poll
            state.fleet_changed()
    runs_on_here = any(
        state.leases[other].backend_id == lease.backend_id for other in session.lease_ids
    )
    left = 0
    if not runs_on_here:
        # A turn that did not complete added nothing certain; what was there may be there still.
        completed = report.outcome is TurnOutcome.COMPLETED
        left = lease.predicted_tokens
        if completed or session.completed_s >= lease.granted_s:
            left = state.private_tokens(session, backend)
        _leave_chain(state, backend, session, left)
    if session.lease_ids:
        return
    if served_by is not backend and report.outcome is TurnOutcome.COMPLETED:
        _move_home(state, session, lease, served_by)
    session.idle_since_s = now_s
    state.replies_ended.append(session.key.session_id)
    seat = session.seat
    if seat is not None and seat.backend_id == backend.backend_id:
        _resize_seat(state, session, left)
    if session.ended or not session.is_started or not backend.healthy:
        # Nothing to come back for: neither a failed first call nor a dead engine keeps room.
        leave_seat(state, session)
    if session.ended and not session.held_ids:
        state.forget(session)


def release_seat(state: State, session: Session) -> None:
    """The seat's room may be promised again; the session keeps its cache as long as it lasts.

    First its room in the pool; the second time, or where nothing lies below, that in the host too.
    """
    seat = session.seat
    assert seat is not None and not session.lease_ids
    if seat.given_up:
        return
    given_up = seat.released or state.backends[seat.backend_id].tier is None
    state.totals.seats_released += not seat.released
    _drop_seat(state, session)
    _take_seat(state, session, Seat(seat.backend_id, seat.tokens, True, given_up))


def leave_seat(state: State, session: Session) -> None:
    """Give the seat up altogether."""
    if session.seat is not None:
        _drop_seat(state, session)


def came_back(state: State) -> None:
    """A reply was followed by another turn of its session."""
    state.typical.p_continues += _GAIN_CONTINUES * (1.0 - state.typical.p_continues)


def end_session(state: State, session: Session) -> None:
    """No further turn will come. Running calls finish first; their release drops the rest."""
    if session.is_started and not session.ended:
        typical = state.typical
        typical.p_continues -= _GAIN_CONTINUES * typical.p_continues
        state.growth.ended(session.turns)
        typical.turns_mean += _GAIN_TURNS * (session.turns - typical.turns_mean)
        typical.turns_square_mean += _GAIN_TURNS * (session.turns**2 - typical.turns_square_mean)
        if session.admitted_s is not None:
            lasted_s = session.last_activity_s - session.admitted_s
            known_s = lasted_s if typical.session_s is None else typical.session_s
            typical.session_s = known_s + _GAIN_SESSION * (lasted_s - known_s)
    session.ended = True
    if session.lease_ids:
        return
    leave_seat(state, session)
    if not session.held_ids:
        state.forget(session)


def lose_backend(state: State, backend: Backend, now_s: float) -> None:
    """The engine died or was restarted: its cache is gone and nobody may wait for it."""
    for cache, _ in state.caches(backend):
        cache.clear()
    backend.seen_tokens.clear()
    backend.prefix_cached_s = None
    backend.cache_lost_s = now_s
    backend.foreign.forget()
    for session in state.sessions.values():
        seat = session.seat
        if seat is None or seat.backend_id != backend.backend_id:
            continue
        if not session.lease_ids:
            leave_seat(state, session)


def fit_caches(state: State, backend: Backend) -> None:
    """Its tiers hold less than was thought, or more: what does not fit is gone."""
    for cache, size in state.caches(backend):
        cache.evict(size)


def forget_backend(state: State, backend: Backend) -> None:
    """Nothing runs there any more and nothing will: drop it, and the seats that are left."""
    assert backend.foreign.num_own == 0
    for session in state.sessions.values():
        seat = session.seat
        if seat is not None and seat.backend_id == backend.backend_id:
            leave_seat(state, session)
        if session.last_backend_id == backend.backend_id:
            session.last_backend_id = None
    del state.backends[backend.backend_id]


def _who_served(state: State, report: LeaseReleased) -> Backend | None:
    """The backend that the response's own headers name; `None`: they name none that is known."""
    if not report.served_by:
        return None
    seen = set(report.served_by)
    return next((b for b in state.backends.values() if seen.intersection(b.served_by)), None)


def _move_home(state: State, session: Session, lease: Lease, actual: Backend) -> None:
    """A gateway sent the turn to another backend: the cache that it left is there."""
    planned = state.backends[lease.backend_id]
    _leave_chain(state, planned, session, lease.predicted_tokens)
    left = state.private_tokens(session, actual)
    _leave_chain(state, actual, session, left)
    session.last_backend_id = actual.backend_id
    if session.seat is not None:
        leave_seat(state, session)
        _take_seat(state, session, Seat(actual.backend_id, left))
    state.totals.served_elsewhere += 1


def _leave_chain(state: State, backend: Backend, session: Session, tokens: int) -> None:
    """The session's last call there is over and leaves `tokens` in each tier."""
    for cache, size in state.caches(backend):
        cache.end(session.key, tokens, size)


def _count_hold(state: State, turn: Turn, now_s: float) -> None:
    hold_s = max(0.0, now_s - turn.arrived_s)
    totals = state.totals
    totals.hold_s_sum += hold_s
    if turn.session.is_started:
        totals.hold_started_s_max = max(totals.hold_started_s_max, hold_s)
    else:
        totals.hold_new_s_max = max(totals.hold_new_s_max, hold_s)
    if hold_s > 0.0:
        pace = state.pace_started if turn.session.is_started else state.pace_new
        pace.left(now_s, len(state.held))


def _learn(
    state: State, lease: Lease, report: LeaseReleased, backend: Backend, now_s: float
) -> None:
    session, typical = lease.session, state.typical
    if not _is_possible(state, backend, report):
        session.context_tokens = lease.input_tokens  # as was expected; the rest teaches nothing
        session.turns += 1
        return
    prompt = report.input_tokens if report.input_tokens is not None else lease.input_tokens
    output = report.output_tokens if report.output_tokens is not None else 0
    if report.output_tokens is not None:
        known = min(output, _OUTPUT_TOKENS_MAX)
        typical.output_tokens += _GAIN_OUTPUT * (known - typical.output_tokens)
    context = prompt + output
    if session.is_started:
        growth = context - session.context_tokens
        state.growth.grew(growth)
        clipped = max(0, min(state.parameters.growth_tokens_max, growth))
        typical.growth_tokens += _GAIN_GROWTH * (clipped - typical.growth_tokens)
    reply = Reply(lease, prompt, prompt >= session.context_tokens, report.ttft_s, now_s)
    session.context_tokens = context
    session.turns += 1
    backend.rates.learn_decoding(
        output_tokens=report.output_tokens, ttft_s=report.ttft_s, duration_s=report.duration_s
    )
    told = report.cached_tokens
    is_certain = _is_hit_certain(backend, reply)
    for known, cached in backend.reports.take(reply, told, is_hit_certain=is_certain):
        _learn_from_cache(state, backend, known, min(cached, known.prompt_tokens))


def _is_possible(state: State, backend: Backend, report: LeaseReleased) -> bool:
    """Whether a pool could hold what the reply tells, however wrong the pool's own report."""
    prompt, cached = report.input_tokens or 0, report.cached_tokens or 0
    pools = (backend.capacity_override_tokens, backend.capacity_reported_tokens)
    most = state.parameters.capacity_factor_max * max(pool or 0 for pool in pools)
    return not most or max(prompt, cached) + (report.output_tokens or 0) <= most


def _is_hit_certain(backend: Backend, reply: Reply) -> bool:
    """An engine that tells cached tokens would have some to tell."""
    if backend.shared_prefix.tokens > PREDICTED_TOKENS_MIN:
        return True
    lease = reply.lease
    was_just_used = lease.depth_ratio < DEPTH_RATIO_MIN
    is_there = lease.is_evidence and was_just_used and reply.grew
    return is_there and lease.predicted_tokens > PREDICTED_TOKENS_MIN


def _learn_from_cache(state: State, backend: Backend, reply: Reply, cached: int) -> None:
    lease, prompt = reply.lease, reply.prompt_tokens
    state.totals.prompt_tokens += prompt
    state.totals.cached_tokens += cached
    backend.prompt_tokens += prompt
    backend.cached_tokens += cached
    backend.rates.learn_prefill(uncached_tokens=prompt - cached, ttft_s=reply.ttft_s)
    if lease.was_first:
        _learn_shared_prefix(backend, reply, cached)
    elif lease.is_evidence and reply.grew:
        _compare(state, lease, backend, prompt, cached)
    elif lease.is_evidence:
        # A prompt that shrank was rewritten: what it misses was not evicted, it lies there unused.
        left = lease.chain_tokens - max(0, cached - backend.shared_prefix.tokens)
        for cache, size in state.caches(backend):
            cache.rewrite(lease.session.key, left, size)


def _learn_shared_prefix(backend: Backend, reply: Reply, cached: int) -> None:
    """What a first call finds cached is shared, once some first call has put it there."""
    if backend.prefix_cached_s is None:
        backend.prefix_cached_s = reply.ended_s
    if reply.lease.granted_s >= backend.prefix_cached_s:
        backend.shared_prefix.found(cached)


def _compare(state: State, lease: Lease, backend: Backend, prompt: int, cached: int) -> None:
    """Hold the prediction of the grant against what the engine found."""
    shared = backend.shared_prefix.tokens
    found = max(0, cached - shared)
    predicted = min(lease.predicted_tokens, max(0, prompt - shared))
    backend.evidence.record(
        prompt_tokens=max(0, prompt - shared),
        predicted_tokens=predicted,
        cached_tokens=found,
        depth_ratio=lease.depth_ratio,
    )
    if predicted > PREDICTED_TOKENS_MIN and lease.depth_ratio < DEPTH_RATIO_MIN:
        quality = min(1.0, found / predicted)
        typical = state.typical
        typical.prediction_quality += _GAIN_QUALITY * (quality - typical.prediction_quality)


def _take_seat(state: State, session: Session, seat: Seat) -> None:
    assert session.seat is None
    session.seat = seat
    backend = state.backends[seat.backend_id]
    if seat.released:
        backend.released_tokens += seat.tokens
        backend.num_released += 1
        backend.given_up_tokens += seat.tokens * seat.given_up
        backend.num_given_up += seat.given_up
    else:
        backend.committed_tokens += seat.tokens
        backend.num_committed += 1


def _drop_seat(state: State, session: Session) -> None:
    seat = session.seat
    assert seat is not None
    session.seat = None
    backend = state.backends[seat.backend_id]
    if seat.released:
        backend.released_tokens -= seat.tokens
        backend.num_released -= 1
        backend.given_up_tokens -= seat.tokens * seat.given_up
        backend.num_given_up -= seat.given_up
    else:
        backend.committed_tokens -= seat.tokens
        backend.num_committed -= 1


def _resize_seat(state: State, session: Session, tokens: int) -> None:
    seat = session.seat
    assert seat is not None
    _drop_seat(state, session)
    _take_seat(state, session, Seat(seat.backend_id, tokens, seat.released, seat.given_up))
