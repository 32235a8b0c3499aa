"""What ends because time passes: leases, held turns whose caller went away, tool calls, sessions.

Called once per tick. Everything here is O(live objects) and touches nothing that is still alive.
"""

from tao_coordinator.core import intake, ledger
from tao_coordinator.core.effects import Effect, Reject, RejectReason
from tao_coordinator.core.events import LeaseReleased, TurnOutcome
from tao_coordinator.core.model import Turn
from tao_coordinator.core.state import State


def sweep(state: State, now_s: float) -> list[Effect]:
    """End what is over at `now_s`."""
    effects: list[Effect] = []
    for lease in [x for x in state.leases.values() if x.expires_s <= now_s]:
        report = LeaseReleased(lease_id=lease.lease_id, outcome=TurnOutcome.LOST)
        ledger.finish(state, lease, report, now_s)
    for turn in list(state.held.values()):
        if turn.poll_deadline_s is not None and turn.poll_deadline_s <= now_s:
            state.totals.abandoned += 1
            ledger.drop_held(state, turn, intake.abandoned(turn.request_id))
        elif now_s - turn.arrived_s >= wait_limit_s(state, turn):
            effects.append(_waited_too_long(state, turn, now_s))
    for activity in state.activities.values():
        for call in [c for c in activity.open_tools.values() if c.expires_s <= now_s]:
            del activity.open_tools[call.call_id]
            state.totals.tools_expired += 1
    _sweep_sessions(state, now_s)
    return effects


def wait_limit_s(state: State, turn: Turn) -> float:
    """How long this turn may be held before it is rejected; `inf` for started sessions.

    Started sessions are never rejected: the hard bound grants them. New ones wait in order, but not
    past the point where their caller gives up anyway: a short time-out keeps half of itself.
    """
    if turn.session.is_started:
        return float("inf")
    parameters = state.parameters
    limit_s = parameters.new_wait_s_max
    if turn.timeout_s is not None:
        own_s = max(turn.timeout_s - parameters.timeout_margin_s, 0.5 * turn.timeout_s)
        limit_s = min(limit_s, own_s)
    return limit_s


def _waited_too_long(state: State, turn: Turn, now_s: float) -> Reject:
    held_s = now_s - turn.arrived_s
    ahead = sum(
        not other.session.is_started and other.queued_s < turn.queued_s
        for other in state.held.values()
    )
    # It does not go to the end of the line: else, with a line longer than the limit, those who wait
    # longest would be turned away for ever while later ones are served.
    retry_s = intake.retry_after_s(state, ahead + 1)
    intake.keep_place(turn.session, now_s + retry_s)
    num_held = len(state.held) - 1
    refusal = Reject(
        request_id=turn.request_id,
        reason=RejectReason.WAITED_TOO_LONG,
        message=(
            f"the fleet is overloaded: no room for a new session in {held_s:.0f} s "
            f"({num_held} turns are still waiting); add a backend or start fewer sessions"
        ),
        retry_after_s=retry_s,
    )
    ledger.drop_held(state, turn, refusal)
    state.totals.rejected[RejectReason.WAITED_TOO_LONG.value] += 1
    return refusal


def _sweep_sessions(state: State, now_s: float) -> None:
    oldest_s = now_s - state.parameters.seat_idle_s_max
    for session in list(state.sessions.values()):
        if session.lease_ids or session.held_ids:
            continue
        if not session.ended and (
            session.last_activity_s > oldest_s or state.blocking_tools(session.key.session_id)
        ):
            continue
        ledger.end_session(state, session)
