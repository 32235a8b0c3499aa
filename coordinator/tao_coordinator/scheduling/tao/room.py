"""What is left on the eligible backends while one decision is put together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from tao_coordinator.core import host_seats
from tao_coordinator.core.model import Backend, Turn
from tao_coordinator.core.state import UNLIMITED_TOKENS, State
from tao_coordinator.scheduling.policy import Assignment


class Room:
    """Tokens left by backend, and who may not have them.

    The budgets of all backends are read at their first use: while a plan is being made most
    decisions need none, and a large fleet has many.
    """

    def __init__(self, state: State) -> None:
        """Of this moment: the state may not change before the decision is put together."""
        self.state = state
        self.needs: dict[str, int] = {}
        """Tokens of the assignments so far, by backend."""
        self.waited_for: set[str] = set()
        """Backends that a turn ahead in the queue waits for: nobody behind it takes their room."""
        self._budgets: _Budgets | None = None
        self._left_by_plan: dict[str, int] | None = None
        self._models_waiting: set[str] = set()

    def _read(self) -> "_Budgets":
        if self._budgets is None:
            self._budgets = _Budgets.of(self.state)
        return self._budgets

    @property
    def left(self) -> dict[str, int]:
        """Tokens left of the budgets, by backend."""
        return self._read().left

    @property
    def growth(self) -> int:
        """Tokens reserved beside each seat where there is no host tier."""
        return self._read().growth

    @property
    def smallest_budget(self) -> int:
        """Of the usable backends."""
        return self._read().smallest

    def growth_beside(self, backend: Backend) -> int:
        """Tokens reserved beside each seat of this backend, as `State.growth_beside`."""
        return 0 if backend.tier else self.growth

    def take(self, backend: Backend, need: int, growth: int = 0) -> None:
        """Count an assignment: what it needs, and what is reserved beside it."""
        name = backend.backend_id
        self.left[name] -= need + growth
        self.needs[name] = self.needs.get(name, 0) + need
        if self._left_by_plan is not None:
            self._left_by_plan[name] = self._left_by_plan.get(name, 0) - need - growth

    def keep_for_started(self, left_by_plan: dict[str, int]) -> None:
        """New sessions get no more than a plan has left: room freed since belongs to the next."""
        self._left_by_plan = left_by_plan

    def open_all_to_new(self) -> None:
        """No started session waits for what was freed."""
        self._left_by_plan = None

    def open_to_new(
        self, backends: Iterable[Backend], tokens: int
    ) -> Iterator[tuple[Backend, int]]:
        """Those that have room for so many tokens of a new session, with what is left there.

        Nobody ahead waits for them. A fleet under pressure is full: what is full costs little here.
        """
        left, growth = self.left, self.growth
        by_plan, waited_for = self._left_by_plan, self.waited_for
        for backend in backends:
            name = backend.backend_id
            tokens_left = left[name]
            if by_plan is not None:
                tokens_left = min(tokens_left, by_plan.get(name, 0))
            if tokens_left >= tokens + (0 if backend.tier else growth) and name not in waited_for:
                yield backend, tokens_left

    def fits_host(self, backend: Backend, tokens: int) -> bool:
        """Whether a host tier, where there is one, keeps so many more tokens."""
        return tokens <= self._read().host_left.get(backend.backend_id, UNLIMITED_TOKENS)

    def take_host(self, backend: Backend, tokens: int) -> None:
        """Count a new session in the host tier, where there is one."""
        host_left = self._read().host_left
        if backend.backend_id in host_left:
            host_left[backend.backend_id] -= tokens

    def wait_for(self, turn: Turn) -> None:
        """The turn found no place: what frees up where it could run is for it."""
        session = turn.session
        if not session.lease_ids:
            # All but those with a call in flight may run wherever their model is served.
            if session.key.model in self._models_waiting:
                return
            self._models_waiting.add(session.key.model)
        self.waited_for.update(b.backend_id for b in self.state.eligible_beside_running(session))

    def is_waited_for(self, turn: Turn) -> bool:
        """Whether all room where it could run is for somebody ahead: there is no need to look."""
        session = turn.session
        return not session.lease_ids and session.key.model in self._models_waiting

    def wait_for_nobody(self) -> None:
        """Forget who waits for what."""
        self.waited_for.clear()
        self._models_waiting.clear()

    def is_untouched(self, backend: Backend) -> bool:
        """Nothing was assigned to it yet."""
        return backend.backend_id not in self.needs

    def fits_pool(self, backend: Backend, need: int) -> bool:
        """Beside the calls in flight and what was assigned already, whatever the budget says."""
        pool = self.state.pool_tokens(backend)
        in_flight = backend.cache.in_flight_tokens + self.needs.get(backend.backend_id, 0)
        return pool is None or in_flight + need <= pool


@dataclass(frozen=True, slots=True)
class _Budgets:
    """`State.budget_tokens` and `committed_tokens` of all backends, read once."""

    left: dict[str, int]
    host_left: dict[str, int]
    """Tokens that host tiers can still promise to new sessions, by backend that has one."""
    growth: int
    smallest: int

    @classmethod
    def of(cls, state: State) -> Self:
        """As of now; O(backends)."""
        left: dict[str, int] = {}
        host_left: dict[str, int] = {}
        growth, ratio = state.growth_tokens(), state.parameters.budget_ratio
        smallest = UNLIMITED_TOKENS
        for name, backend in state.backends.items():
            pool = state.pool_tokens(backend)
            if pool is None:
                left[name] = UNLIMITED_TOKENS
                continue
            budget = int(pool * ratio)
            if budget < smallest and backend.usable:
                smallest = budget
            committed = backend.committed_tokens
            if not backend.tier:
                committed += backend.num_committed * growth
            # What runs counts in full, even where a seat has moved on without it.
            running = backend.cache.in_flight_tokens
            # A budget may be set beyond the pool: planned calls still fit beside what runs.
            left[name] = min(
                budget - (committed if committed > running else running), pool - running
            )
            if backend.tier:
                host_left[name] = host_seats.room_tokens(state, backend, state.host_growth_tokens)
        return cls(left, host_left, growth, smallest)


def is_overdue(state: State, turn: Turn, now_s: float) -> bool:
    """A started session held longer than the soft bound."""
    return turn.session.is_started and now_s - turn.arrived_s >= state.parameters.hold_soft_s


def place_alone(state: State, turns: list[Turn], room: Room) -> list[Assignment]:
    """A session that no budget can ever hold gets an empty backend to itself."""
    found: list[Assignment] = []
    for turn in turns:
        # Nearly all turns fit the smallest budget; only the others are looked at closely.
        if turn.input_tokens + turn.output_tokens + room.growth <= room.smallest_budget:
            continue
        if not _is_oversize(state, turn):
            continue
        for backend in state.eligible_for(turn):
            waited_for = backend.backend_id in room.waited_for
            if backend.is_empty and room.is_untouched(backend) and not waited_for:
                room.take(backend, state.need_tokens(turn, backend))
                found.append(Assignment(turn=turn, backend=backend, reason="alone"))
                break
    return found


def _is_oversize(state: State, turn: Turn) -> bool:
    """No eligible backend's budget can ever hold this turn and its growth, though a pool can."""
    for backend in state.eligible_beside_running(turn.session):
        growth = state.growth_beside(backend)
        budget = state.budget_tokens(backend)
        if budget is None or state.need_tokens(turn, backend) + growth <= budget:
            return False
    return True
