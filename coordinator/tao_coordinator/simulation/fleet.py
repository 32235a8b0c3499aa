"""A fleet in virtual time: the production Engine in front of modelled backends, and its agents.

The engine object is the one that `tao coordinator` runs; only its clock is a number here. Backends
are polled once a second as the service does it. Everything that happens is an entry of one queue,
ordered by time and, at equal times, by who came first: same input, same run, to the last bit.

Nothing here sleeps, reads a clock or draws a random number.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from math import inf
from typing import Final

from tao_coordinator.core.effects import Effect, Grant, Reject, SolvePlan
from tao_coordinator.core.events import (
    BackendAdded,
    BackendDrained,
    BackendSampled,
    BackendUnreachable,
    Event,
    PlanSolved,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.plans import PlanLog
from tao_coordinator.engine import Engine
from tao_coordinator.scheduling.placement import LOOP, PlacementProblem, solve
from tao_coordinator.scheduling.policy import KeepsPlans, Policy
from tao_coordinator.scheduling.rivals.tao_paper import TaoPaper
from tao_coordinator.simulation.agent_script import SessionScript
from tao_coordinator.simulation.agents import Agents, Sent
from tao_coordinator.simulation.backend_model import MAX_SEQUENCES, BackendModel
from tao_coordinator.simulation.engine_constants import EngineConstants
from tao_coordinator.simulation.host_tier import HostTierSpec
from tao_coordinator.simulation.load import Load
from tao_coordinator.simulation.request import BackendSnapshot, RequestTooLargeError, SimRequest
from tao_coordinator.simulation.run_record import Moment, RunRecord
from tao_coordinator.simulation.tool_offload import ToolOffload

BLOCK_SIZE: Final = 64
"""Tokens per KV block: the traces' own; engines use 16 to 128, and hits differ by one block."""
POLL_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """One modelled backend."""

    constants: EngineConstants
    capacity_tokens: int | None = None
    """KV pool; the preset's own by default."""
    told_tokens: int | None = None
    """What it reports; the truth by default."""
    host_tier: HostTierSpec | None = None
    """Host memory below the pool."""
    tells_host_tier: bool = True
    """Whether the coordinator is told of it."""
    max_sequences: int = MAX_SEQUENCES
    """Requests that run at the same time at most."""
    evicts_whole: bool = False
    """Under pressure idle sessions lose all of their cache (`BlockPool`)."""

    @property
    def pool_tokens(self) -> int:
        """KV pool in tokens."""
        return self.capacity_tokens or self.constants.kv_capacity_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """Something happens to a backend at a time."""

    at_s: float
    backend: int
    """Number of the backend."""
    what: str
    """`fail` (calls and cache are lost), `add` (it joins, or comes back empty) or `drain`."""

    def __post_init__(self) -> None:
        """Know what happens."""
        if self.what not in ("fail", "add", "drain"):
            raise ValueError(f"a backend can fail, be added or be drained, not {self.what!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """What is simulated, apart from the sessions and the policy."""

    backends: tuple[BackendSpec, ...]
    load: Load
    parameters: Parameters = field(default_factory=Parameters)
    capacity_scale: float = 1.0
    """The operator's factor on what backends report."""
    changes: tuple[FleetChange, ...] = ()
    end_s: float = 1e6
    """The run is cut here."""
    block_size: int = BLOCK_SIZE
    poll_interval_s: float = POLL_INTERVAL_S
    timeline_s: float = 10.0
    """Between two moments of the timeline."""
    reports_cached: bool = True
    """False: engines whose usage never tells cached tokens."""
    plan_s: float | None = 0.1
    """How long a plan takes that is made beside the loop, which large ones are where the policy is
    given by its name; `None`: every plan is made within its step."""
    offloads_in_tools: bool = False
    """Engines move caches to their host tiers during tools (`tool_offload`)."""
    check_every: int = 0
    """Steps between two checks of all the engine's invariants; 0: never, they cost more than the
    step itself."""


class Fleet:
    """Runs scripted sessions to their ends under one policy."""

    def __init__(
        self,
        settings: FleetSettings,
        sessions: Sequence[SessionScript],
        policy: str | Policy,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Build the fleet; nothing has happened yet.

        Args:
            settings: backends, load, faults.
            sessions: in the order in which the load starts them.
            policy: a name of `scheduling.catalogue`, or a policy.
            clock: seconds that pass in the real world, to time decisions with.
        """
        self.settings = settings
        self.engine = Engine(
            settings.parameters, policy, makes_plans_aside=settings.plan_s is not None
        )
        self.record = RunRecord()
        self.now_s = 0.0
        self.watch: Callable[[float, Sequence[Event], Sequence[Effect]], None] | None = None
        """Called after each step of the engine: (now_s, events, effects)."""
        self._clock = clock
        self._queue: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = count()
        self._models = [self._new_model(spec) for spec in settings.backends]
        self._alive = [True] * len(self._models)
        self._gone: list[BackendSnapshot] = []  # what dead backends have counted
        self._model_queue: list[tuple[float, int]] = []
        self._wakeup_s: float | None = None
        self._next_moment_s = 0.0
        joining = {change.backend for change in settings.changes if change.what == "add"}
        failing = {change.backend for change in settings.changes if change.what == "fail"}
        for index in range(len(self._models)):
            self._alive[index] = index in failing or index not in joining
            if self._alive[index]:
                self._join(index)
        self.tool_offload = ToolOffload(self) if settings.offloads_in_tools else None
        self.agents = Agents(self, sessions, settings.load)
        for change in settings.changes:
            self.at(change.at_s, self._change, change)
        self.at(settings.poll_interval_s, self._poll)

    # --- what the agents use ---------------------------------------------------------------------

    def at(self, time_s: float, action: Callable[..., None], *arguments: object) -> None:
        """Do something later."""
        heapq.heappush(self._queue, (time_s, next(self._order), action, arguments))

    def step(self, *events: Event) -> None:
        """Tell the engine what has happened and carry out what it orders."""
        clock, record = self._clock, self.record
        if clock is None:
            effects, self._wakeup_s = self.engine.step(self.now_s, events)
        else:
            began_s = clock()
            effects, self._wakeup_s = self.engine.step(self.now_s, events)
            record.decision_s.append(clock() - began_s)
        record.num_steps += 1
        every = self.settings.check_every
        if every and record.num_steps % every == 0:
            self.engine.check()
        if self.watch is not None:
            self.watch(self.now_s, events, effects)
        for effect in effects:
            if isinstance(effect, Grant):
                self.agents.granted(effect)
            elif isinstance(effect, Reject):
                self.agents.refused(effect)
            elif isinstance(effect, SolvePlan):
                assert isinstance(effect.problem, PlacementProblem)
                solved = PlanSolved(plan_id=effect.plan_id, plan=solve(effect.problem, LOOP))
                self.at(self.now_s + (self.settings.plan_s or 0.0), self.step, solved)

    def submit(self, backend: int, request: SimRequest) -> Sent:
        """Send a call."""
        if not self._alive[backend]:
            return Sent.NOBODY
        try:
            self._models[backend].submit(self.now_s, request)
        except RequestTooLargeError:
            return Sent.TOO_LARGE
        self._schedule(backend)
        return Sent.ACCEPTED

    def transfer_s(self, backend: int, tokens: int) -> float:
        """How long so many tokens take between a backend's pool and its host tier."""
        tier = self.settings.backends[backend].host_tier
        return inf if tier is None else tokens / tier.reload_tokens_per_s

    def move(self, backend: int, chain: Sequence[int], *, to_host: bool) -> None:
        """Move an idle session's cache to the host tier, or back."""
        if self._alive[backend]:
            self._models[backend].move(self.now_s, chain, to_host=to_host)
            self._schedule(backend)

    # --- time ------------------------------------------------------------------------------------

    def run(self) -> RunRecord:
        """Let time pass until every session has ended, or the run is cut."""
        end_s = self.settings.end_s
        while not self.agents.are_done:
            now_s = self._next_time_s()
            if now_s > end_s:
                break
            self.now_s = now_s
            self._advance_models(now_s)
            queue = self._queue
            while queue and queue[0][0] <= now_s:
                _, _, action, arguments = heapq.heappop(queue)
                action(*arguments)
            if self._wakeup_s is not None and self._wakeup_s <= now_s:
                self.step()
        self._close()
        return self.record

    def _next_time_s(self) -> float:
        found = self._queue[0][0]  # the poll is always there
        if self._wakeup_s is not None and self._wakeup_s < found:
            found = self._wakeup_s
        models = self._model_queue
        while models and self._models[models[0][1]].next_event_s() != models[0][0]:
            heapq.heappop(models)  # it was rescheduled since
        if models and models[0][0] < found:
            found = models[0][0]
        return max(found, self.now_s)

    def _advance_models(self, now_s: float) -> None:
        due: list[int] = []
        models = self._model_queue
        while models and models[0][0] <= now_s:
            index = heapq.heappop(models)[1]
            if index not in due:
                due.append(index)
        for index in sorted(due):
            if not self._alive[index]:
                continue
            for output in self._models[index].advance(now_s):
                if output.finished_s is not None:
                    self.agents.replied(output)
            self._schedule(index)

    def _schedule(self, index: int) -> None:
        if (time_s := self._models[index].next_event_s()) is not None:
            heapq.heappush(self._model_queue, (time_s, index))

    # --- backends --------------------------------------------------------------------------------

    def _new_model(self, spec: BackendSpec) -> BackendModel:
        return BackendModel(
            spec.constants,
            block_size=self.settings.block_size,
            capacity_tokens=spec.pool_tokens,
            max_sequences=spec.max_sequences,
            host_tier=spec.host_tier,
            evicts_whole=spec.evicts_whole,
        )

    def _join(self, index: int) -> None:
        name, spec = backend_name(index), self.settings.backends[index]
        told = spec.host_tier if spec.tells_host_tier else None
        self._alive[index] = True
        self.step(
            BackendAdded(
                backend_id=name,
                base_url=f"http://{name}",
                capacity_scale=self.settings.capacity_scale,
                host_tier_tokens=None if told is None else told.tokens,
                host_reload_tokens_per_s=None if told is None else told.reload_tokens_per_s,
            ),
            self._sample(index),
        )

    def _change(self, change: FleetChange) -> None:
        index = change.backend
        if change.what == "drain":
            self.step(BackendDrained(backend_id=backend_name(index)))
        elif change.what == "add":
            if not self._alive[index]:
                self._models[index] = self._new_model(self.settings.backends[index])
            self._join(index)
        elif self._alive[index]:
            self._alive[index] = False
            self._count(index)
            self.agents.lost(index)

    def _poll(self) -> None:
        self.step(
            *(
                self._sample(index)
                if alive
                else BackendUnreachable(backend_id=backend_name(index), reason="refused")
                for index, alive in enumerate(self._alive)
                if backend_name(index) in self.engine.state.backends
            )
        )
        if self.now_s >= self._next_moment_s:
            self._next_moment_s = self.now_s + self.settings.timeline_s
            self.record.timeline.append(self._moment())
        self.at(self.now_s + self.settings.poll_interval_s, self._poll)

    def _sample(self, index: int) -> BackendSampled:
        spec = self.settings.backends[index]
        seen = self._models[index].snapshot(self.now_s)
        return BackendSampled(
            backend_id=backend_name(index),
            capacity_tokens=spec.told_tokens or spec.pool_tokens,
            running=seen.running,
            waiting=seen.waiting,
            kv_usage_ratio=seen.used_blocks / seen.num_blocks,
            prefix_cache_queries_tokens=seen.prefix_queries_tokens,
            prefix_cache_hits_tokens=seen.prefix_hits_tokens,
        )

    def _moment(self) -> Moment:
        seen = [model.snapshot(self.now_s) for model in compress(self._models, self._alive)]
        ever = [*seen, *self._gone]
        return Moment(
            time_s=self.now_s,
            running=sum(one.running for one in seen),
            waiting=sum(one.waiting for one in seen),
            held=len(self.engine.state.held),
            live_sessions=self.agents.num_live,
            context_tokens=self.agents.context_tokens,
            kv_used=max((one.used_blocks / one.num_blocks for one in seen), default=0.0),
            prompt_tokens=sum(one.prefix_queries_tokens for one in ever),
            cached_tokens=sum(one.prefix_hits_tokens + one.host_hits_tokens for one in ever),
            generated_tokens=sum(one.generation_tokens for one in ever),
        )

    # --- the end ---------------------------------------------------------------------------------

    def _count(self, index: int) -> None:
        """Add what one backend has done to the record: its model is over."""
        seen = self._models[index].snapshot(self.now_s)
        self._gone.append(seen)
        self.record.prefilled_tokens += seen.prefilled_tokens
        self.record.busy_s += seen.busy_s
        self.record.preemptions += seen.preemptions

    def _close(self) -> None:
        record, state = self.record, self.engine.state
        for index, alive in enumerate(self._alive):
            if alive:
                self._count(index)
        record.end_s = self.now_s
        record.num_unfinished = self.agents.num_unfinished
        totals = state.totals
        record.counters = {
            **{f"granted_{reason}": number for reason, number in totals.granted.items()},
            **{f"rejected_{reason}": number for reason, number in totals.rejected.items()},
            "seats_released": totals.seats_released,
        }
        policy = self.engine.policy
        if isinstance(policy, KeepsPlans):
            record.counters["num_plans"] = policy.plans.num_ids
            record.certificates = _certificates(policy.plans)
        elif isinstance(policy, TaoPaper):
            record.counters["num_plans"] = policy.num_plans
            record.counters["num_fallbacks"] = policy.num_fallbacks
            record.counters["num_states"] = policy.num_states
        seen = self.engine.honesty()
        record.readiness = {"brier": seen.brier, "coverage": seen.interval_coverage}
        record.capacity_factors = [b.capacity_factor for b in state.backends.values()]


def _certificates(plans: PlanLog) -> dict[str, float]:
    totals = plans.totals()
    if not totals.num_rated:
        return {}
    return {
        "certified_share": totals.num_certified / totals.num_rated,
        "plan_gap_mean": totals.gap_sum / totals.num_rated,
        "plan_gap_max": totals.gap_max,
        "plan_work_mean": totals.work / totals.num_rated,
    }


def backend_name(index: int) -> str:
    """Id of a backend by its number."""
    return f"b{index}"
