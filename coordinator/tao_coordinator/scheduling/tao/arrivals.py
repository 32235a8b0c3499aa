"""New sessions: strictly in arrival order, tenants taking turns, priority inside a tenant.

The first turn of a tenant that finds no place ends that tenant's round, and nobody behind it takes
the room that it waits for; who can run elsewhere may.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.tao.room import Room, place_alone


def admit(state: State, new: list[Turn], room: Room) -> list[Assignment]:
    """New sessions that go now, in order."""
    queues: defaultdict[str, deque[Turn]] = defaultdict(deque)
    for turn in sorted(new, key=lambda t: (-t.session.priority, t.queued_s)):
        queues[turn.session.tenant].append(turn)
    active = _active_roots(state, queues) if len(queues) > 1 else {}
    # Only a tenant's own admission changes its claim; equal ones go by who is first in the line.
    claims = [
        (_claim(state, tenant, active, queue[0]), number, tenant)
        for number, (tenant, queue) in enumerate(queues.items())
    ]
    heapq.heapify(claims)
    found: list[Assignment] = []
    while claims:
        _, number, tenant = claims[0]
        queue = queues[tenant]
        turn = queue[0]
        assignment = None if room.is_waited_for(turn) else _place(state, turn, room)
        if assignment is None:
            room.wait_for(turn)
            heapq.heappop(claims)
            continue
        found.append(assignment)
        active.setdefault(tenant, set()).add(turn.session.root_id)
        queue.popleft()
        if queue:
            claim = _claim(state, tenant, active, queue[0])
            heapq.heapreplace(claims, (claim, number, tenant))
        else:
            heapq.heappop(claims)
    return found


def _place(state: State, turn: Turn, room: Room) -> Assignment | None:
    """Near the parent where it fits, else where most room is left."""
    weight = state.parameters.released_weight
    session = turn.session
    may_have_credit = session.last_backend_id is not None or session.parent_id is not None
    best: tuple[tuple[int, int], Backend] | None = None
    # Whatever is shared, the reply needs room.
    for backend, left in room.open_to_new(state.eligible_for(turn), turn.output_tokens):
        growth = room.growth_beside(backend)
        coming_back = int(weight * (backend.released_tokens + backend.num_released * growth))
        need = state.need_tokens(turn, backend)
        if need + growth + coming_back > left:
            continue
        if not room.fits_host(backend, need + state.host_growth_tokens):
            continue
        rank = (state.credit_tokens(session, backend) if may_have_credit else 0, left)
        if best is None or rank > best[0]:
            best = (rank, backend)
    if best is not None:
        need = state.need_tokens(turn, best[1])
        room.take(best[1], need, room.growth_beside(best[1]))
        room.take_host(best[1], need + state.host_growth_tokens)
        return Assignment(
            turn=turn, backend=best[1], reason="planned", keeps_pool=True, keeps_budget=True
        )
    alone = place_alone(state, [turn], room)
    return alone[0] if alone else None


def _claim(
    state: State, tenant: str, active: Mapping[str, set[str]], first: Turn
) -> tuple[float, float]:
    """Smallest goes first: seated root sessions over weight, then who has waited longest."""
    num_roots = len(active.get(tenant, ()))
    return (num_roots / state.tenant_weight(tenant), first.queued_s)


def _active_roots(state: State, tenants: Mapping[str, deque[Turn]]) -> dict[str, set[str]]:
    """Root sessions with an unreleased seat, by tenant."""
    roots: defaultdict[str, set[str]] = defaultdict(set)
    for session in state.sessions.values():
        seat = session.seat
        if session.tenant in tenants and seat is not None and not seat.released:
            roots[session.tenant].add(session.root_id)
    return roots
