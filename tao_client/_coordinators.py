"""Which coordinator is asked, where a connection names several.

All goes to one of them, leases and events alike: the one that another has named as the leader, else
the first in the order given. Whoever does not answer, or says that it is not the leader, steps
aside behind its breaker until it answers a probe; then it has its place in the order again, so that
agents which were started at different times end up at the same coordinator. Only URLs of the list
are ever followed: the key goes to nobody else.
"""

import logging
from collections.abc import Sequence

from tao_client._breaker import Breaker

logger = logging.getLogger("tao_client")

HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"


class Coordinators:
    """The coordinators of one connection. Safe to use from any thread."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._breakers = {endpoint: Breaker() for endpoint in endpoints}
        self._leader: str | None = None
        """Named by another one; unlocked, because a lost update costs one more question."""
        # One that is alive but leads nothing is no use where there is another.
        self.probe_path: str = HEALTH_PATH if len(self._breakers) == 1 else READY_PATH

    @property
    def are_away(self) -> bool:
        """True while none of them is asked: calls pass through with no wait at all."""
        return all(breaker.is_open for breaker in self._breakers.values())

    def is_away(self, endpoint: str) -> bool:
        """Whether this one is not asked at present."""
        return self._breakers[endpoint].is_open

    def present(self) -> list[str]:
        """Those that may be asked, the best first."""
        present = [one for one, breaker in self._breakers.items() if not breaker.is_open]
        leader = self._leader
        return sorted(present, key=lambda one: one != leader)

    def in_charge(self) -> str | None:
        """The one to ask; None while all are away."""
        return next(iter(self.present()), None)

    def record_no_answer(
        self, endpoint: str, reason: str, *, leader: str | None = None, is_planned: bool = False
    ) -> bool:
        """Ask it no more; True if that is news, so that the caller can start the probing.

        Args:
            endpoint: Which one.
            reason: What was heard instead, for the log.
            leader: Whom it named as the leader.
            is_planned: It has said itself that it does not lead, or is not ready: no trouble while
                there is another.
        """
        if leader is not None or self._leader == endpoint:
            self._leader = leader if leader in self._breakers else None
        if not self._breakers[endpoint].record_no_answer():
            return False
        instead = self.in_charge()
        if instead is not None:
            consequence = f": calls are scheduled by {instead}"
        elif len(self._breakers) == 1:
            consequence = ": calls pass through until it does"
        else:
            consequence = " and no other does: calls pass through until one does"
        logger.log(
            logging.INFO if is_planned and instead is not None else logging.WARNING,
            "the coordinator at %s does not answer (%s)%s",
            endpoint,
            reason,
            consequence,
        )
        return True

    def record_answer(self, endpoint: str) -> None:
        """A lease request was answered."""
        self._breakers[endpoint].record_answer()

    def record_probe_answered(self, endpoint: str) -> None:
        """It may be asked again."""
        if not self._breakers[endpoint].record_probe_answered():
            return
        if self._leader != endpoint:
            self._leader = None
        logger.info("the coordinator at %s answers again: calls are scheduled", endpoint)

    def next_pause_s(self, endpoint: str) -> float:
        """Seconds until its next probe; each call doubles the one after."""
        return self._breakers[endpoint].next_pause_s()
