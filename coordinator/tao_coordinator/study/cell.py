"""One run of a study: everything that determines it, and what came out.

A cell is a value. Its id is a digest of what determines the run, so a result that is on disk
already is found again, and a cell whose settings changed is run anew.
"""

import gc
import hashlib
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from tao_coordinator.core.parameters import Parameters
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.simulation.agent_script import SessionScript
from tao_coordinator.simulation.backend_model import MAX_SEQUENCES
from tao_coordinator.simulation.engine_constants import PRESETS, EngineConstants
from tao_coordinator.simulation.fleet import BackendSpec, Fleet, FleetChange, FleetSettings
from tao_coordinator.simulation.host_tier import HostTierSpec
from tao_coordinator.simulation.load import ClosedLoop, Load, OpenLoop
from tao_coordinator.simulation.run_record import Moment, RunRecord
from tao_coordinator.simulation.synthetic import poisson_arrivals
from tao_coordinator.study.measures import hit_rate_middle, measure
from tao_coordinator.study.policy_choice import PolicyChoice, Scene
from tao_coordinator.study.quiet import without_quiet
from tao_coordinator.study.recovery import recovery_s
from tao_coordinator.study.watches import WATCHES
from tao_coordinator.study.watches.watch import Series
from tao_coordinator.study.workload_choice import WorkloadChoice

_CELL_ID: Final = re.compile("[0-9a-f]{20}")
REVISION: Final = 1
"""Part of every id: raise it when the simulation changes so that old results no longer count."""
MOMENTS_MAX: Final = 240
"""Moments of the timeline that are kept of a run."""
HIT_RATE_MIDDLE: Final = "hit_rate_middle"
"""A measure that older results have too: it follows from the timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run."""

    panel: str
    """Cells of one panel differ in policy, seed and the engine's own rules (`max_sequences`,
    `evicts_whole`) only, and are compared with each other."""
    arm: str
    """How the policy is called in tables."""
    policy: PolicyChoice
    workload: WorkloadChoice
    seed: int
    sessions: int
    engine: str | EngineConstants
    """A preset's name, or an engine of one's own."""
    num_backends: int = 1
    pools: tuple[int, ...] | None = None
    """KV tokens per backend, where they differ from the preset's."""
    workers: int | None = None
    pressure: float | None = None
    """Working set over pool, from which the number of workers follows."""
    arrivals_per_s: float | None = None
    """Open loop instead."""
    as_arrived: bool = False
    """Open loop by the arrival times that the trace has recorded."""
    quiet_s_max: float = math.inf
    """Of these, longer stretches without an arrival are cut to this."""
    worker_changes: tuple[tuple[float, int], ...] = ()
    told_ratio: float = 1.0
    """Reported capacity over true capacity."""
    host_ratio: float = 0.0
    """Host tier over pool; 0: there is none."""
    tells_host_tier: bool = True
    """Whether the coordinator is told of the host tier."""
    offloads_in_tools: bool = False
    """The engine moves caches to the host during tools, as TokenCake does."""
    max_sequences: int = MAX_SEQUENCES
    """Requests that an engine runs at the same time (vLLM's `max_num_seqs`)."""
    evicts_whole: bool = False
    """The engine evicts idle sessions, but what they share, whole instead of block by block."""
    changes: tuple[FleetChange, ...] = ()
    end_s: float = 1e6
    warm_s: float = 0.0
    """Rates under load are taken from then on."""
    plan_s: float = 0.1
    """How long a plan takes that is made beside the loop."""
    watch: str = ""
    """One of `watches.WATCHES`: what is noted of the decisions beside the usual measures."""
    is_window: bool = False
    """Measured are the turns asked for from `warm_s` to `end_s`; what runs still at the end is no
    failure."""
    has_fixed_end: bool = False
    """Cut at `end_s` on purpose as well, but all turns count. Changes nothing of the run."""
    x: float = 0.0
    """Where the cell stands on the axis of its study's plot."""

    @property
    def cell_id(self) -> str:
        """Digest of everything that determines the run."""
        facts = asdict(self)
        for name in ("panel", "arm", "has_fixed_end", "x"):
            del facts[name]
        if isinstance(self.engine, EngineConstants):
            if PRESETS.get(self.engine.name) == self.engine:
                facts["engine"] = self.engine.name
            else:
                del facts["engine"]["name"], facts["engine"]["provenance"]
        if not self.host_ratio:  # as before there were tiers: older results count still
            for name in ("host_ratio", "tells_host_tier", "offloads_in_tools"):
                del facts[name]
        if not self.workload.children:  # as before there were sub-agents
            del facts["workload"]["children"]
        if self.max_sequences == MAX_SEQUENCES:  # likewise
            del facts["max_sequences"]
        if not self.evicts_whole:
            del facts["evicts_whole"]
        if math.isinf(self.quiet_s_max):  # as before stretches were cut
            del facts["quiet_s_max"]
        text = json.dumps([REVISION, facts], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    @property
    def is_cut(self) -> bool:
        """Whether sessions that have not ended at `end_s` are what was wanted."""
        return self.is_window or self.has_fixed_end

    @property
    def specs(self) -> tuple[BackendSpec, ...]:
        """The backends."""
        constants = constants_of(self.engine)
        pools = self.pools or (constants.kv_capacity_tokens,) * self.num_backends
        return tuple(
            BackendSpec(
                constants=constants,
                capacity_tokens=pool,
                told_tokens=int(self.told_ratio * pool),
                host_tier=self._host_tier(constants, pool),
                tells_host_tier=self.tells_host_tier,
                max_sequences=self.max_sequences,
                evicts_whole=self.evicts_whole,
            )
            for pool in pools
        )

    def _host_tier(self, constants: EngineConstants, pool_tokens: int) -> HostTierSpec | None:
        if not self.host_ratio:
            return None
        return HostTierSpec(
            tokens=int(self.host_ratio * pool_tokens),
            reload_tokens_per_s=constants.reload_tokens_per_s,
            is_written_through=not self.offloads_in_tools,
        )

    def num_workers(self) -> int:
        """Given, or from the pressure: N x footprint = pressure x (pools without the prefix)."""
        if self.workers is not None:
            return self.workers
        if self.pressure is None:
            raise ConfigurationError("a closed loop needs workers or a pressure")
        shared = self.workload.shared_tokens()
        room = sum(max(1, spec.pool_tokens - shared) for spec in self.specs)
        return max(2, round(self.pressure * room / self.workload.footprint_tokens()))

    @property
    def is_open(self) -> bool:
        """Sessions start by the clock."""
        return self.as_arrived or self.arrivals_per_s is not None

    def load(self, sessions: Sequence[SessionScript]) -> Load:
        """Who starts when; `sessions` are in the order in which they start.

        Raises:
            ConfigurationError: arrivals are wanted that the trace does not tell.
        """
        if self.as_arrived:
            times = [session.arrival_s for session in sessions]
            known = [time_s for time_s in times if time_s is not None]
            if len(known) < len(times):
                raise ConfigurationError("the trace does not tell when its sessions arrived")
            return OpenLoop(arrivals_s=without_quiet(known, self.quiet_s_max)[0])
        if self.arrivals_per_s is not None:
            return OpenLoop(
                arrivals_s=poisson_arrivals(self.arrivals_per_s, self.sessions, self.seed)
            )
        return ClosedLoop(workers=self.num_workers(), changes=self.worker_changes)


@dataclass(slots=True)
class CellResult:
    """What came out of one run."""

    cell_id: str
    measures: dict[str, float]
    tasks_s: dict[str, float] = field(default_factory=dict[str, float])
    """Task latency by session, to pair sessions of two arms."""
    timeline: Series = field(default_factory=list[list[float]])
    """Moments, thinned; the fields of `simulation.run_record.Moment`."""
    series: dict[str, Series] = field(default_factory=dict[str, Series])
    """What the cell's watch has to draw."""
    wall_s: float = 0.0

    def value(self, name: str) -> float | None:
        """One measure; `None`: it is missing. What the timeline tells is in no file of results."""
        if name == HIT_RATE_MIDDLE:
            found = hit_rate_middle(self.timeline)
            return None if math.isnan(found) else found
        return self.measures.get(name)

    def to_json(self) -> str:
        """One line."""
        facts = asdict(self)
        facts["measures"] = {
            name: None if math.isnan(value) else value for name, value in self.measures.items()
        }
        return json.dumps(facts)

    @staticmethod
    def from_json(line: str) -> "CellResult":
        """Read it back.

        Raises:
            ValueError: the line is damaged.
        """
        try:
            facts = cast("dict[str, Any]", json.loads(line))
            if not _CELL_ID.fullmatch(facts["cell_id"]):
                raise TypeError("it has no cell's id")
            facts["measures"] = {
                name: math.nan if value is None else _number(value)
                for name, value in facts["measures"].items()
            }
            tasks_s, series = facts.get("tasks_s", {}), facts.get("series", {})  # older ones: none
            facts["tasks_s"] = {session: _number(time_s) for session, time_s in tasks_s.items()}
            facts["series"] = {name: _rows(rows) for name, rows in series.items()}
            facts["timeline"] = _rows(facts.get("timeline", []), len(Moment._fields))
            facts["wall_s"] = _number(facts.get("wall_s", 0.0))
            result = CellResult(**facts)
        except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"no cell result: {error}") from error
        return result


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number is needed, not {value!r:.40}")
    return float(value)


def _rows(value: object, width: int | None = None) -> Series:
    """Rows of one width, each of which is read by its place."""
    rows = [[_number(part) for part in row] for row in cast("list[list[object]]", value)]
    widths = {len(row) for row in rows}
    if not isinstance(value, list) or len(widths) > 1 or (width and widths - {width}):
        raise TypeError("rows of numbers are needed, all as long as they should be")
    return rows


def constants_of(engine: str | EngineConstants) -> EngineConstants:
    """The preset of this name, or the engine itself.

    Raises:
        ConfigurationError: there is no such preset.
    """
    if isinstance(engine, EngineConstants):
        return engine
    if engine not in PRESETS:
        raise ConfigurationError(f"unknown engine {engine!r}; choose one of {', '.join(PRESETS)}")
    return PRESETS[engine]


def run_cell(cell: Cell) -> CellResult:
    """Run one cell from its beginning to its end."""
    return run_cell_fully(cell)[0]


def run_cell_fully(cell: Cell) -> tuple[CellResult, RunRecord]:
    """The same, with every turn."""
    began_s = time.perf_counter()
    sessions = cell.workload.sessions(cell.sessions, cell.seed)
    if cell.as_arrived:
        sessions.sort(key=lambda session: session.arrival_s or 0.0)
    watch = WATCHES[cell.watch]()
    parameters, policy = cell.policy.build(Parameters(), Scene(sessions=sessions, watch=watch))
    settings = FleetSettings(
        backends=cell.specs,
        load=cell.load(sessions),
        parameters=parameters,
        capacity_scale=cell.policy.capacity_scale,
        changes=cell.changes,
        end_s=cell.end_s,
        plan_s=cell.plan_s,
        offloads_in_tools=cell.offloads_in_tools,
    )
    fleet = Fleet(settings, sessions, policy, clock=time.perf_counter)
    # Scripts and traces are a million objects that stay: looking through them for garbage again and
    # again stalls the run, and counts as deciding where it strikes there.
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)
    try:
        record = fleet.run()
    finally:
        gc.set_threshold(young, middle, old)
    measures = measure(record, settings, cell.warm_s, is_window=cell.is_window)
    measures |= watch.measures(record)
    if cell.worker_changes:
        measures["recovery_s"] = recovery_s(record.timeline, cell.worker_changes[-1][0])
    measures["workers"] = 0.0 if cell.is_open else float(cell.num_workers())
    step = max(1, math.ceil(len(record.timeline) / MOMENTS_MAX))
    result = CellResult(
        cell_id=cell.cell_id,
        measures=measures,
        tasks_s={
            str(row.session): row.ended_s - row.started_s
            for row in record.sessions
            if not row.failed
        },
        timeline=[[float(value) for value in moment] for moment in record.timeline[::step]],
        series=watch.series(record),
        wall_s=time.perf_counter() - began_s,
    )
    return result, record
