"""Interrupt by price: which idle seats may be promised again while somebody is held.

A seat is worth keeping as long as waiting for its session is cheaper than refilling its cache
later. The price R is the time to refill the pool, or to reload it where a host tier keeps a copy
(`core.reserve`); waiting is drawn from what the readiness predictor says of this session now: its
own word (deadline, progress), the harness's time-out, or past durations of the tool given that it
has lasted this long. Ski rental with a known distribution: give up at tau* = argmin E[min(D, tau)]
+ R P(D > tau); 0 = at once. A seat in a host tier is given up by the same rule, after that above.

Releasing evicts nothing: the engine's own LRU decides whose blocks go, and a session that comes
back in time is still resident.
"""

from tao_coordinator.core import host_seats
from tao_coordinator.core.model import Session, SessionKey
from tao_coordinator.core.reserve import Loss, loss_of, price_s
from tao_coordinator.core.state import State
from tao_coordinator.prediction.predictor import ReadinessPredictor

QUESTIONS_MAX = 256
"""Sessions that the predictor is asked about in one go: about 20 ms of the caller's time."""

ASK_AGAIN_S = 30.0
"""An answer is not believed for longer: prices change too."""


class IdleSeats:
    """Asks the predictor about idle sessions, each again only when the answer may be another.

    An answer is a time from now on after which to give up; it stands until that time has come or
    the session has done something. So thousands of idle sessions cost one question each, not one
    per tick.
    """

    def __init__(self, readiness: ReadinessPredictor) -> None:
        """Nothing is known yet."""
        self._readiness = readiness
        self._until: dict[SessionKey, tuple[float, float]] = {}
        """Per session: its last activity when asked, and the time until which it keeps its seat."""

    def not_worth_keeping(self, state: State, now_s: float) -> list[Session]:
        """Idle sessions whose seat is better promised to somebody else."""
        prices: dict[tuple[str, Loss], float] = {}
        if len(self._until) > 2 * len(state.sessions) + QUESTIONS_MAX:
            self._until = {k: v for k, v in self._until.items() if k in state.sessions}
        with_room = {
            b.backend_id
            for b in state.backends.values()
            if b.tier and host_seats.room_tokens(state, b, 0) >= 0
        }
        grace_s = state.parameters.release_grace_s
        found: list[Session] = []
        num_asked = 0
        for session in state.sessions.values():
            seat, idle_since_s = session.seat, session.idle_since_s
            if seat is None or seat.given_up or idle_since_s is None:
                continue
            if now_s - idle_since_s < grace_s or self._is_kept(session, now_s):
                continue
            if num_asked >= QUESTIONS_MAX:
                break  # the others next time: these are remembered
            num_asked += 1
            backend = state.backends[seat.backend_id]
            has_room = seat.backend_id in with_room
            loss = loss_of(state, session, backend, host_has_room=has_room)
            if loss is None:
                found.append(session)
                continue
            remaining = self._readiness.remaining(session.key.session_id, now_s)
            if (seat.backend_id, loss) not in prices:
                prices[seat.backend_id, loss] = price_s(state, backend, loss)
            limit_s = remaining.keep_limit_s(prices[seat.backend_id, loss])
            if limit_s <= 0.0:
                found.append(session)
            else:
                until_s = now_s + min(limit_s, ASK_AGAIN_S)
                self._until[session.key] = (session.last_activity_s, until_s)
        return found

    def _is_kept(self, session: Session, now_s: float) -> bool:
        asked_at, until_s = self._until.get(session.key, (-1.0, 0.0))
        return asked_at == session.last_activity_s and now_s < until_s
