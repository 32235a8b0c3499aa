"""The book-keeping invariants of the engine's state, all of them, by counting everything again."""

from collections import Counter

from tao_coordinator.core.state import State


def check(state: State) -> None:
    """Assert the book-keeping invariants of DESIGN section 6; O(sessions + leases)."""
    committed: Counter[str] = Counter()
    released: Counter[str] = Counter()
    counts: Counter[tuple[str, bool]] = Counter()
    given_up: Counter[str] = Counter()
    num_given_up: Counter[str] = Counter()
    in_flight = Counter(lease.backend_id for lease in state.leases.values())
    for session in state.sessions.values():
        assert session.key in state.keys_by_id[session.key.session_id]
        for lease_id in session.lease_ids:
            assert state.leases[lease_id].session is session
        for request_id in session.held_ids:
            assert state.held[request_id].session is session
        seat = session.seat
        if seat is None:
            continue
        assert seat.backend_id in state.backends and seat.tokens >= 0
        assert seat.released or not seat.given_up
        (released if seat.released else committed)[seat.backend_id] += seat.tokens
        counts[seat.backend_id, seat.released] += 1
        if seat.given_up:
            given_up[seat.backend_id] += seat.tokens
            num_given_up[seat.backend_id] += 1
    for backend in state.backends.values():
        name = backend.backend_id
        assert backend.committed_tokens == committed[name]
        assert backend.released_tokens == released[name]
        assert backend.num_committed == counts[name, False]
        assert backend.num_released == counts[name, True]
        assert backend.given_up_tokens == given_up[name]
        assert backend.num_given_up == num_given_up[name]
        assert backend.foreign.num_own == in_flight[name]
        for cache, _ in state.caches(backend):
            cache.check()
    state.eligibility.check()
    for lease_id, lease in state.leases.items():
        assert lease_id in lease.session.lease_ids
        assert state.lease_by_request[lease.request_id] == lease_id
        assert lease.request_id not in state.held and lease.request_id not in state.finished
    assert len(state.lease_by_request) == len(state.leases)
    for request_id, turn in state.held.items():
        assert request_id in turn.session.held_ids
    if not state.leases:
        for backend in state.backends.values():
            assert all(cache.in_flight_tokens == 0 for cache, _ in state.caches(backend))
