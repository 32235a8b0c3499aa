"""Every turn to the next backend in turn: what a plain load balancer does."""

from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.never_holds import NeverHolds


class RoundRobin(NeverHolds):
    """Sessions lose their cache to every other backend."""

    name = "round-robin"

    def choose(
        self, state: State, turn: Turn, eligible: list[Backend], now_s: float
    ) -> tuple[Backend, str]:
        """The next eligible backend; the count of leases so far is the pointer."""
        return eligible[state.num_leases % len(eligible)], "round-robin"
