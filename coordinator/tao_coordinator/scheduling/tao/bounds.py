"""Bounds on waiting: who has waited too long is forced in.

An overdue session that found no place by plan may be forced in beyond the budget, never beyond the
pool, at most a share phi of a backend's time (`forced_share`). Past the hard bound it goes whatever
the pool says; the engine queues it.
"""

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.tao.room import Room


def force(
    state: State, overdue: list[Turn], room: Room, now_s: float, *, only_hard: bool = False
) -> list[Assignment]:
    """Forced grants among overdue turns that no plan has placed.

    Args:
        state: as of now.
        overdue: in the order in which they arrived.
        room: what is left; forced grants are taken off it.
        now_s: monotonic seconds.
        only_hard: a plan is being made that may place the others.
    """
    found: list[Assignment] = []
    taken: set[str] = set()
    emptiest: dict[str, Backend] = {}
    for turn in overdue:
        past_hard = now_s - turn.arrived_s >= state.parameters.hold_hard_s
        if only_hard and not past_hard:
            continue
        backend = _home_or_emptiest(state, turn, room, emptiest)
        if backend is None:
            continue
        if not past_hard:
            fits = room.fits_pool(backend, state.need_tokens(turn, backend))
            if not fits or now_s < backend.next_forced_s or backend.backend_id in taken:
                continue
            taken.add(backend.backend_id)
        room.take(backend, state.need_tokens(turn, backend), room.growth_beside(backend))
        emptiest.clear()
        found.append(
            Assignment(turn=turn, backend=backend, reason="forced", keeps_pool=not past_hard)
        )
    return found


def _home_or_emptiest(
    state: State, turn: Turn, room: Room, emptiest: dict[str, Backend]
) -> Backend | None:
    """Where it is resident, else where most is left; `emptiest` remembers the latter by model."""
    session = turn.session
    eligible = state.eligible_for(turn)
    if len(eligible) <= 1:
        return eligible[0] if eligible else None
    model = session.key.model
    home = state.backends.get(session.last_backend_id or "")
    if home is not None and state.is_resident(session, home) and any(b is home for b in eligible):
        return home
    if eligible is not state.eligible(session):  # too long a prompt for some: an answer of its own
        return max(eligible, key=lambda b: room.left[b.backend_id])
    if model not in emptiest:
        emptiest[model] = max(eligible, key=lambda b: room.left[b.backend_id])
    return emptiest[model]
