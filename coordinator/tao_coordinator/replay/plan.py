"""Which runs answer the question, for a trace, a fleet and a list of policies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.replay.as_recorded import AsRecorded, as_recorded
from tao_coordinator.simulation.agent_script import SessionScript
from tao_coordinator.simulation.engine_constants import EngineConstants
from tao_coordinator.simulation.fleet import BLOCK_SIZE
from tao_coordinator.simulation.trace_sessions import TURNS_MIN
from tao_coordinator.study.cell import Cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.quiet import without_quiet
from tao_coordinator.study.workload_choice import WorkloadChoice
from tao_coordinator.traces.records import MalformedTrace, Skipped

DEFAULT_POLICIES: Final = (
    "tao",
    "sticky-least-loaded",
    "cache-aware",
    "thunderagent",
    "tao-paper@0.9",
)
DEFAULT_PRESSURE: Final = 1.2
FLEETS_MAX: Final = 4
"""Sizes of the fleet that are tried to see how many backends could be saved."""

END_AFTER_ARRIVAL_S: Final = 5e5
"""Modelled time that the last session to arrive has at least; a trace may span months."""
QUIET_S_MAX: Final = 6 * 3600.0
"""Sessions as they arrived: longer stretches without an arrival are cut to this, or to the longest
pause that a session may make. Few fleets are busy for longer with nobody new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What is asked of a trace."""

    trace: str
    trace_digest: str
    """Of its content, so that kept results of another trace do not count."""
    trace_format: str | None = None
    policies: tuple[PolicyChoice, ...]
    engine: EngineConstants
    num_backends: int = 1
    capacity_tokens: int | None = None
    """KV pool of each backend; the engine's own by default."""
    workers: int | None = None
    """Sessions at a time; `None`: from the pressure."""
    pressure: float = DEFAULT_PRESSURE
    as_arrived: bool = False
    """Sessions start when they did, instead of when an earlier one ends."""
    sessions: int | None = None
    """How many are run, drawn at random; `None`: each recorded one once."""
    shared_tokens: int = 0
    gap_s_max: float = 60.0
    turns_max: int = 1_000
    context_tokens_max: int = 200_000
    """A session is cut before the turn that needs more."""
    seeds: tuple[int, ...] = (1,)
    with_fewer_backends: bool = True

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        if not 1 <= self.num_backends <= 1_000:
            raise ConfigurationError("--backends must be 1 to 1000")
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError("--workers must be at least 1")
        if not 0.01 <= self.pressure <= 100.0:
            raise ConfigurationError("--pressure must be between 0.01 and 100")
        if self.capacity_tokens is not None and self.capacity_tokens < 1_024:
            raise ConfigurationError("--capacity-tokens must be at least 1024")
        if self.sessions is not None and self.sessions < 1:
            raise ConfigurationError("--sessions must be at least 1")
        if self.as_arrived and (self.sessions or self.workers):
            raise ConfigurationError("--as-arrived goes with neither --workers nor --sessions")
        if self.shared_tokens < 0:
            raise ConfigurationError("--shared-tokens must not be negative")
        if not self.gap_s_max >= 0.0:
            raise ConfigurationError("--gap-max must not be negative")
        if self.context_tokens_max < 1:
            raise ConfigurationError("--context-max must be at least 1")
        if self.turns_max < TURNS_MIN:
            raise ConfigurationError(f"--turns-max must be at least {TURNS_MIN}")
        if not self.policies or not self.seeds:
            raise ConfigurationError("a replay needs a policy and a seed")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The runs, and what they have in common."""

    settings: ReplaySettings
    cells: tuple[Cell, ...]
    sessions: int
    """Such as each run starts."""
    workers: int
    """Sessions at a time; 0: they start as they arrived."""
    workers_wanted: int
    """The same before it was cut to the number of sessions."""
    pressure: float
    """Mean working set of all workers over all pools; 0: it follows from the arrivals."""
    footprint_tokens: float
    recorded_sessions: int
    """Such as can be run."""
    short_sessions: int
    """Such as cannot: too few model calls with a known prompt."""
    cut_sessions: int
    """Such as outgrow a pool: they end before the model call that no backend could take."""
    quiet_s_max: float
    """What longer stretches without an arrival are cut to."""
    quiet_stretches: int
    """So many were cut."""
    as_recorded: AsRecorded | None
    """How the sessions fared; `None`: the trace does not tell."""
    skipped: Skipped
    """Rows of the trace that could not be read."""


def make_plan(settings: ReplaySettings) -> ReplayPlan:
    """Put the runs together.

    Raises:
        ConfigurationError: the pools hold no session, or arrivals are wanted that nobody knows.
        MalformedTrace: nothing in the trace can be run.
        OSError: it cannot be read.
    """
    pool = settings.capacity_tokens or settings.engine.kv_capacity_tokens
    workload, cut_sessions = _fitting(_workload(settings), settings.policies, pool)
    scripts = workload.recorded()
    recorded = len(scripts)
    number = recorded if settings.sessions is None else settings.sessions
    base = Cell(
        panel="",
        arm="",
        policy=settings.policies[0],
        workload=workload,
        seed=settings.seeds[0],
        sessions=number,
        engine=settings.engine,
        num_backends=settings.num_backends,
        pools=(pool,) * settings.num_backends,
        workers=settings.workers,
        pressure=settings.pressure,
    )
    workers_wanted = 0 if settings.as_arrived else base.num_workers()
    workers = min(workers_wanted, number)
    base = replace(base, workers=workers or None, pressure=None)
    quiet_s_max, quiet_stretches = max(QUIET_S_MAX, settings.gap_s_max), 0
    if settings.as_arrived:
        base, quiet_stretches = _as_arrived(base, scripts, quiet_s_max)
    room = settings.num_backends * max(1, pool - workload.shared_tokens())
    footprint = workload.footprint_tokens()
    trace = workload.trace_read()
    return ReplayPlan(
        settings,
        tuple(_cells(settings, base, pool)),
        sessions=number,
        workers=workers,
        workers_wanted=workers_wanted,
        pressure=workers * footprint / room,
        footprint_tokens=footprint,
        recorded_sessions=recorded,
        short_sessions=len(trace.sessions) - recorded,
        cut_sessions=cut_sessions,
        quiet_s_max=quiet_s_max,
        quiet_stretches=quiet_stretches,
        as_recorded=as_recorded(trace.sessions, TURNS_MIN, settings.gap_s_max),
        skipped=trace.skipped,
    )


def _workload(settings: ReplaySettings) -> WorkloadChoice:
    return WorkloadChoice(
        name="trace",
        trace=settings.trace,
        trace_digest=settings.trace_digest,
        trace_format=settings.trace_format,
        trace_shared_tokens=settings.shared_tokens,
        gap_s_max=settings.gap_s_max,
        turns_max=settings.turns_max,
        context_tokens_max=settings.context_tokens_max,
        as_recorded=settings.sessions is None,
    )


def _as_arrived(
    base: Cell, scripts: Sequence[SessionScript], quiet_s_max: float
) -> tuple[Cell, int]:
    """Sessions start by the clock of the trace; how many of its stretches are cut, too."""
    arrivals_s = [script.arrival_s for script in scripts if script.arrival_s is not None]
    if len(arrivals_s) < len(scripts):
        raise ConfigurationError("--as-arrived: the trace does not tell when its sessions arrived")
    starts_s, cut = without_quiet(arrivals_s, quiet_s_max)
    cell = replace(base, as_arrived=True, quiet_s_max=quiet_s_max if cut else math.inf)
    if starts_s[-1] > END_AFTER_ARRIVAL_S:
        cell = replace(cell, end_s=starts_s[-1] + END_AFTER_ARRIVAL_S)
    return cell, cut


def _fitting(
    workload: WorkloadChoice, policies: Sequence[PolicyChoice], pool_tokens: int
) -> tuple[WorkloadChoice, int]:
    """The sessions as far as the smallest pool that a policy is told can hold them."""
    told_tokens = int(pool_tokens * min(1.0, *(policy.capacity_scale for policy in policies)))
    # An engine's pool is whole blocks.
    told_tokens -= told_tokens % BLOCK_SIZE
    if told_tokens >= workload.context_tokens_max:
        return workload, 0
    whole = workload.recorded()
    fitting = replace(workload, context_tokens_max=told_tokens)
    try:
        num_turns = {script.session_id: len(script.turns) for script in fitting.recorded()}
    except MalformedTrace:
        raise ConfigurationError(
            f"a pool of {told_tokens:,} tokens does not hold {TURNS_MIN} model calls of any session"
        ) from None
    return fitting, sum(num_turns.get(one.session_id, 0) < len(one.turns) for one in whole)


def _cells(settings: ReplaySettings, base: Cell, pool_tokens: int) -> list[Cell]:
    return [
        replace(
            base,
            panel=panel_name(size),
            num_backends=size,
            pools=(pool_tokens,) * size,
            arm=policy.text,
            policy=policy,
            seed=seed,
            x=float(size),
        )
        for size in fleet_sizes(settings)
        for policy in settings.policies
        for seed in settings.seeds
    ]


def fleet_sizes(settings: ReplaySettings) -> Sequence[int]:
    """The fleet as it is first, then smaller ones."""
    full = settings.num_backends
    if not settings.with_fewer_backends or full == 1:
        return (full,)
    if full <= FLEETS_MAX:
        return tuple(range(full, 0, -1))
    sizes = {round(full * part / FLEETS_MAX) for part in range(1, FLEETS_MAX + 1)}
    return tuple(sorted(sizes, reverse=True))


def panel_name(num_backends: int) -> str:
    """What runs on a fleet of this size are called."""
    return f"{num_backends} backend{'s' * (num_backends > 1)}"
