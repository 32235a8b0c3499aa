"""Drives a real Engine by hand; every step asserts the invariants."""

from collections.abc import Iterable

from tao_coordinator.core import ledger
from tao_coordinator.core.effects import Effect, Grant, Hold, Reject, SolvePlan, Warn
from tao_coordinator.core.events import (
    BackendAdded,
    BackendSampled,
    Event,
    LeaseReleased,
    LeaseRenewed,
    SessionEnded,
    ToolEnded,
    ToolStarted,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.scheduling.policy import Policy


class EngineDriver:
    """An engine with backends of a given pool, and a clock that only goes forward."""

    def __init__(
        self,
        *pools: int | None,
        policy: str | Policy = "tao",
        parameters: Parameters | None = None,
        models: tuple[str, ...] = (),
    ) -> None:
        self.engine = Engine(parameters or Parameters(), policy)
        self.now_s = 0.0
        self.grants: dict[str, Grant] = {}
        self.rejects: dict[str, Reject] = {}
        self.holds: dict[str, Hold] = {}
        self.warnings: list[Warn] = []
        self.plans_wanted: list[SolvePlan] = []
        self.wakeup_s: float | None = None
        self._num = 0
        for index, pool in enumerate(pools):
            name = f"b{index}"
            self.step(BackendAdded(backend_id=name, base_url=f"http://{name}"))
            self.step(BackendSampled(backend_id=name, capacity_tokens=pool, models=models))

    def step(self, *events: Event, after_s: float = 0.0) -> list[Effect]:
        """One step `after_s` later, with the invariants checked."""
        self.now_s += after_s
        effects, self.wakeup_s = self.engine.step(self.now_s, events)
        self.engine.check()
        self._note(effects)
        return effects

    def idle(self, seconds: float) -> list[Effect]:
        """Let time pass, waking the engine as its service would, callers polling all the while."""
        end_s = self.now_s + seconds
        seen: list[Effect] = []
        while self.wakeup_s is not None and self.wakeup_s <= end_s:
            self.now_s = max(self.now_s, self.wakeup_s)
            seen += self.step(*self._keep_alive())
        self.now_s = end_s
        return seen + self.step()

    def ask(
        self,
        session_id: str,
        input_tokens: int | None = 10_000,
        *,
        after_s: float = 0.0,
        **fields: object,
    ) -> str:
        """Request a lease; returns the request id."""
        self._num += 1
        request_id = str(fields.pop("request_id", f"r{self._num}"))
        self.step(
            TurnRequested(
                request_id=request_id,
                session_id=session_id,
                input_tokens=input_tokens,
                **fields,  # pyright: ignore[reportArgumentType]
            ),
            after_s=after_s,
        )
        return request_id

    def done(
        self,
        request_id: str,
        *,
        input_tokens: int | None = 10_000,
        cached_tokens: int | None = None,
        output_tokens: int | None = 100,
        ttft_s: float | None = None,
        duration_s: float | None = None,
        outcome: TurnOutcome = TurnOutcome.COMPLETED,
        after_s: float = 1.0,
    ) -> list[Effect]:
        """Release the request's lease."""
        return self.step(
            LeaseReleased(
                lease_id=self.grants[request_id].lease_id,
                outcome=outcome,
                input_tokens=input_tokens,
                cached_tokens=cached_tokens,
                output_tokens=output_tokens,
                ttft_s=ttft_s,
                duration_s=duration_s,
            ),
            after_s=after_s,
        )

    def turn(self, session_id: str, input_tokens: int = 10_000, output_tokens: int = 100) -> str:
        """A whole turn that is expected to be granted at once; returns the backend's id."""
        request_id = self.ask(session_id, input_tokens)
        assert request_id in self.grants, f"{request_id} of {session_id} was not granted at once"
        self.done(request_id, input_tokens=input_tokens, output_tokens=output_tokens)
        return self.grants[request_id].backend_id

    def tool(self, session_id: str, call_id: str = "c", **fields: object) -> None:
        """A tool call starts."""
        self.step(
            ToolStarted(
                session_id=session_id,
                call_id=call_id,
                name=str(fields.pop("name", "bash")),
                **fields,  # pyright: ignore[reportArgumentType]
            )
        )

    def tool_end(self, session_id: str, call_id: str = "c") -> None:
        """A tool call ends."""
        self.step(ToolEnded(session_id=session_id, call_id=call_id))

    def evict(self, *names: str) -> None:
        """These sessions lose seat and cache, as if many others had come."""
        state = self.engine.state
        for session in state.sessions.values():
            if session.key.session_id in names:
                ledger.leave_seat(state, session)
                for backend in state.backends.values():
                    backend.cache.end(session.key, 0, None)

    def abandon(self, request_id: str) -> None:
        """The caller takes its turn back."""
        self.step(TurnAbandoned(request_id=request_id))

    def resample(self, backend_id: str = "b0", *, capacity_tokens: int) -> None:
        """The engine reports another pool."""
        self.step(BackendSampled(backend_id=backend_id, capacity_tokens=capacity_tokens))

    def end(self, session_id: str) -> list[Effect]:
        """The session ends."""
        return self.step(SessionEnded(session_id=session_id))

    def backend_of(self, request_id: str) -> str:
        """Where the request was granted."""
        return self.grants[request_id].backend_id

    def reason_of(self, request_id: str) -> str:
        """Why the request was granted."""
        return self.grants[request_id].receipt.reason

    def held_ids(self) -> list[str]:
        """Requests waiting, in the order of the queue."""
        return [held.request_id for held in self.engine.observe(self.now_s).held]

    def _keep_alive(self) -> Iterable[Event]:
        state = self.engine.state
        for lease_id in list(state.leases):
            yield LeaseRenewed(lease_id=lease_id)
        for turn in state.held.values():
            turn.poll_deadline_s = None  # its caller is connected

    def _note(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Grant):
                self.grants.setdefault(effect.request_id, effect)
            elif isinstance(effect, Reject):
                self.rejects[effect.request_id] = effect
            elif isinstance(effect, Hold):
                self.holds[effect.request_id] = effect
            elif isinstance(effect, SolvePlan):
                self.plans_wanted.append(effect)
            elif isinstance(effect, Warn):
                self.warnings.append(effect)
