"""Builds the immutable views of `core.observation` from the live state."""

from collections.abc import Mapping

from tao_coordinator.core.model import Activity, Backend, Session, Turn
from tao_coordinator.core.observation import (
    BackendView,
    Counters,
    HeldView,
    Observation,
    OpenToolView,
    SessionView,
)
from tao_coordinator.core.plans import PlanLog
from tao_coordinator.core.state import State


def observe(
    state: State, policy: str, plans: PlanLog, now_s: float, started_s: float
) -> Observation:
    """The whole picture at `now_s`."""
    in_flight = dict.fromkeys(state.backends, 0)
    for lease in state.leases.values():
        if lease.backend_id in in_flight:
            in_flight[lease.backend_id] += 1
    backends = tuple(
        _backend(state, b, in_flight[b.backend_id], now_s) for b in state.backends.values()
    )
    held = sorted(state.held.values(), key=lambda t: (not t.session.is_started, t.queued_s))
    because = plans.waiting_because()
    return Observation(
        policy=policy,
        passes_through=state.typical.passes_through,
        uptime_s=now_s - started_s,
        backends=backends,
        sessions=tuple(_session(state, s, now_s) for s in state.sessions.values()),
        held=tuple(_held(state, turn, because, now_s) for turn in held),
        counters=_counters(state),
        plans=plans.totals(),
    )


def phase(state: State, session: Session) -> str:
    """What a session does, derived from its calls in flight and open tools."""
    if session.lease_ids:
        return "inference"
    if session.held_ids:
        return "held"
    if state.blocking_tools(session.key.session_id):
        return "tool"
    activity = state.activities.get(session.key.session_id)
    return "wait" if activity is not None and activity.waiting_for else "idle"


def _backend(state: State, backend: Backend, num_in_flight: int, now_s: float) -> BackendView:
    return BackendView(
        backend_id=backend.backend_id,
        base_url=backend.base_url,
        models=backend.models,
        healthy=backend.healthy,
        draining=backend.draining,
        capacity_tokens=backend.capacity_tokens,
        budget_tokens=state.budget_tokens(backend),
        capacity_factor=backend.capacity_factor,
        committed_tokens=state.committed_tokens(backend),
        released_tokens=state.released_tokens(backend),
        in_flight_tokens=backend.cache.in_flight_tokens,
        num_in_flight=num_in_flight,
        num_seats=backend.num_committed + backend.num_released,
        shared_prefix_tokens=backend.shared_prefix.tokens,
        prefill_tokens_per_s=backend.rates.prefill_tokens_per_s,
        running=backend.running,
        waiting=backend.waiting,
        kv_usage_ratio=backend.kv_usage_ratio,
        num_foreign=backend.foreign.num_requests,
        foreign_tokens=backend.foreign.tokens,
        prefix_cache_queries_tokens=backend.prefix_cache_queries_tokens,
        prefix_cache_hits_tokens=backend.prefix_cache_hits_tokens,
        preemptions=backend.preemptions,
        sample_age_s=None if backend.sampled_s is None else now_s - backend.sampled_s,
    )


def _session(state: State, session: Session, now_s: float) -> SessionView:
    seat = session.seat
    home = state.backends.get(session.last_backend_id or "")
    activity = state.activities.get(session.key.session_id)
    return SessionView(
        session_id=session.key.session_id,
        agent=session.key.agent,
        model=session.key.model,
        root_session_id=session.root_id,
        phase=phase(state, session),
        context_tokens=session.context_tokens,
        turns=session.turns,
        seat_backend_id=None if seat is None else seat.backend_id,
        seat_released=seat is not None and seat.released,
        resident_tokens=0 if home is None else state.resident_tokens(session, home),
        open_tool_calls=() if activity is None else tuple(activity.open_tools),
        open_tools=() if activity is None else _open_tools(activity, now_s),
        idle_s=0.0 if session.idle_since_s is None else now_s - session.idle_since_s,
    )


def _open_tools(activity: Activity, now_s: float) -> tuple[OpenToolView, ...]:
    return tuple(
        OpenToolView(name=call.name, age_s=now_s - call.started_s, background=call.background)
        for call in activity.open_tools.values()
    )


def _held(state: State, turn: Turn, because: Mapping[str, str], now_s: float) -> HeldView:
    hold_s = now_s - turn.arrived_s
    started = turn.session.is_started
    return HeldView(
        request_id=turn.request_id,
        session_id=turn.session.key.session_id,
        input_tokens=turn.input_tokens,
        hold_s=hold_s,
        started=started,
        overdue=started and hold_s >= state.parameters.hold_soft_s,
        because=because.get(turn.request_id, "") if started else "in_order",
    )


def _counters(state: State) -> Counters:
    totals = state.totals
    return Counters(
        granted=dict(totals.granted),
        rejected=dict(totals.rejected),
        released=dict(totals.released),
        abandoned=totals.abandoned,
        seats_released=totals.seats_released,
        tool_starts=totals.tool_starts,
        tool_ends=totals.tool_ends,
        tools_expired=totals.tools_expired,
        hold_s_sum=totals.hold_s_sum,
        hold_started_s_max=totals.hold_started_s_max,
        hold_new_s_max=totals.hold_new_s_max,
        prompt_tokens=totals.prompt_tokens,
        cached_tokens=totals.cached_tokens,
        served_elsewhere=totals.served_elsewhere,
    )
