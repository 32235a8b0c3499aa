"""What a study is: cells, the columns of its tables, its plots, and what was published about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.study.cell import HIT_RATE_MIDDLE, Cell, CellResult
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.statistics import Interval, mean_interval, ratio_interval
from tao_coordinator.study.workload_choice import WorkloadChoice

OURS = "tao"
"""The arm that is compared with the best of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What the caller may choose."""

    seeds: tuple[int, ...] = (101, 102, 103)
    """None of these was used to tune anything: the policy study tuned on 1-3 and held out 11-14."""
    traces: Mapping[str, str] = field(default_factory=dict[str, str])
    """Recorded sessions to use for a workload of this name instead of synthetic ones."""
    trace_digests: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of their content."""
    share: float = 1.0
    """Of the sessions of each cell; less is quicker and noisier."""

    def workload(self, name: str, **changes: object) -> WorkloadChoice:
        """The workload of this name, recorded where the caller has a trace for it."""
        return WorkloadChoice(
            name=name,
            trace=self.traces.get(name),
            trace_digest=self.trace_digests.get(name, ""),
            trace_shared_tokens=12_000 if name == "swe" else 0,
            **changes,  # pyright: ignore[reportArgumentType]
        )

    def sessions(self, number: int) -> int:
        """How many of `number` sessions are run."""
        return max(8, round(number * self.share))


@dataclass(frozen=True, slots=True)
class Column:
    """One measure in a table."""

    measure: str
    title: str
    digits: int = 1
    scale: float = 1.0
    """Factor from the measure's unit to that of the title."""
    higher_is_better: bool | None = None
    """`None`: neither."""


TASK = Column("task_s_mean", "task mean s", 0, higher_is_better=False)
TASK_P99 = Column("task_s_p99", "task p99 s", 0, higher_is_better=False)
TTFT = Column("ttft_s_mean", "TTFT mean s", 2, higher_is_better=False)
TTFT_P50 = Column("ttft_s_p50", "TTFT p50 s", 2, higher_is_better=False)
TTFT_P99 = Column("ttft_s_p99", "TTFT p99 s", 1, higher_is_better=False)
TOOL_TO_TOKEN = Column("tool_to_token_s_mean", "tool end to token s", 2, higher_is_better=False)
TOOL_TO_TOKEN_P50 = Column(
    "tool_to_token_s_p50", "tool end to token p50 s", 2, higher_is_better=False
)
TOOL_TO_TOKEN_P99 = Column(
    "tool_to_token_s_p99", "tool end to token p99 s", 1, higher_is_better=False
)
TOKENS = Column("output_tokens_per_s", "output tok/s", 0, higher_is_better=True)
TOKENS_RUN = Column("output_tokens_per_s_all", "whole run tok/s", 0, higher_is_better=True)
TOTAL_TOKENS = Column("total_tokens_per_s", "total tok/s", 0, higher_is_better=True)
HIT_RATE = Column("hit_rate", "hit rate", 3, higher_is_better=True)
HIT_MIDDLE = Column(HIT_RATE_MIDDLE, "hit rate, middle third", 3, higher_is_better=True)
HOLD_STARTED = Column("hold_started_s_max", "longest hold, started s", 0, higher_is_better=False)
HOLD_ANY = Column("hold_s_max", "longest hold s", 0, higher_is_better=False)
GOOD_5 = Column("goodput_5s", "TTFT <= 5 s %", 1, 100.0, higher_is_better=True)
GOOD_30 = Column("goodput_30s", "TTFT <= 30 s %", 1, 100.0, higher_is_better=True)
TPOT_P99 = Column("tpot_ms_p99", "per token p99 ms", 0, higher_is_better=False)
MAKESPAN = Column("makespan_s", "makespan s", 0, higher_is_better=False)
MOVED = Column("moved_ratio", "moved %", 1, 100.0)
WORKING_SET = Column("working_set", "measured working set / pools", 2)
CREDIT_ERROR = Column("credit_error", "credit error %", 1, 100.0, higher_is_better=False)
KV_PEAK = Column("kv_peak", "peak KV %", 0, 100.0)
FALLBACKS = Column("fallback_share", "fallbacks %", 1, 100.0)
DECISION = Column("decision_ms_mean", "decision mean ms", 3, higher_is_better=False)
DECISION_P50 = Column("decision_ms_p50", "decision p50 ms", 3, higher_is_better=False)
CERTIFIED = Column("certified_share", "plans certified %", 1, 100.0, higher_is_better=True)
PLAN_GAP = Column("plan_gap_mean", "plan gap mean %", 2, 100.0, higher_is_better=False)
PLAN_GAP_MAX = Column("plan_gap_max", "plan gap max %", 1, 100.0, higher_is_better=False)
DECISION_P99 = Column("decision_ms_p99", "decision p99 ms", 2, higher_is_better=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """One published figure and what it becomes here."""

    what: str
    published: str
    panel: str
    arm: str
    rivals: tuple[str, ...]
    """The best of these by the measure; none: the arm's own value is shown."""
    column: Column
    why: str = ""
    """In plain words, where the two differ; `open: ...` where that is not known."""
    floor: float | None = None
    """The worst that is accepted: percent of change against the rival, or the column's unit."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture."""

    name: str
    kind: str
    """`lines`: the measure over the cells' x; `bars`: its mean by arm, with the range of the seeds;
    `timeline`: a moment's field over time; `survival`,
    `snapshot`, `gains` and `terms`: what the cells' watch has noted (`decision_plots`)."""
    measure: str
    """Empty where the kind says it all."""
    title: str
    y_title: str
    panels: tuple[str, ...] = ()
    """Of lines: one picture of the panels whose names begin so; else one picture per panel."""
    arms: tuple[str, ...] = ()
    """Only these; none: all."""
    x_title: str = ""


TASK_BARS = Plot("task", "bars", "task_s_mean", "Task latency", "seconds, mean")
"""Where the cells of a study stand on no axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question, asked of many runs."""

    name: str
    title: str
    asks: str
    """The question, in a sentence or two."""
    make_cells: Callable[[StudyOptions], list[Cell]]
    columns: tuple[Column, ...]
    versus: tuple[Column, ...] = (TASK, TTFT, TOKENS)
    """Measures of `tao` shown relative to the best other arm."""
    claims: tuple[Claim, ...] = ()
    beside: str = "the published figures"
    """What the claims hold, as the title of their table."""
    heads: tuple[str, str] = ("published", "there")
    """Of the columns that say what is claimed, and the figure."""
    unexplained: str = ""
    """Why claims may have no `why` here."""
    plots: tuple[Plot, ...] = ()
    reading: str = ""
    """What a reader must know: assumptions, and where figures cannot be compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A study's cells with their results."""

    study: Study
    options: StudyOptions
    cells: Sequence[Cell]
    results: Sequence[CellResult]
    num_failed: int = 0
    """Cells that should be here and have no result."""

    def panels(self) -> list[str]:
        """In the order of the cells."""
        return list(dict.fromkeys(cell.panel for cell in self.cells))

    def arms(self, panel: str) -> list[str]:
        """In the order of the cells."""
        return list(dict.fromkeys(cell.arm for cell in self.cells if cell.panel == panel))

    def rivals(self, panel: str) -> list[str]:
        """The arms that ours is compared with."""
        return [arm for arm in self.arms(panel) if arm != OURS]

    def of(self, panel: str, arm: str) -> list[tuple[Cell, CellResult]]:
        """All seeds of one arm in one panel."""
        pairs = zip(self.cells, self.results, strict=True)
        return [(cell, r) for cell, r in pairs if (cell.panel, cell.arm) == (panel, arm)]

    def values(self, panel: str, arm: str, measure: str) -> dict[str, float]:
        """One measure by seed; seeds where it is missing are left out."""
        return {
            str(cell.seed): value
            for cell, result in self.of(panel, arm)
            if (value := result.value(measure)) is not None
        }

    def interval(self, panel: str, arm: str, column: Column) -> Interval:
        """Mean over seeds; of the task latency over all sessions of all seeds."""
        if column.measure == "task_s_mean":
            found = mean_interval(list(self.tasks(panel, arm).values()))
        else:
            found = mean_interval(list(self.values(panel, arm, column.measure).values()))
        scale = column.scale
        return Interval(found.value * scale, found.low * scale, found.high * scale)

    def tasks(self, panel: str, arm: str) -> dict[str, float]:
        """Task latency by (seed, session)."""
        return {
            f"{cell.seed}/{session}": seconds
            for cell, result in self.of(panel, arm)
            for session, seconds in result.tasks_s.items()
        }

    def ratio(self, panel: str, arm: str, other: str, column: Column) -> Interval:
        """One arm over another, paired by session where sessions have the measure, else by seed."""
        if column.measure == "task_s_mean":
            return ratio_interval(self.tasks(panel, arm), self.tasks(panel, other))
        return ratio_interval(
            self.values(panel, arm, column.measure), self.values(panel, other, column.measure)
        )

    def best(self, panel: str, arms: Sequence[str], column: Column) -> str | None:
        """The arm with the best mean of a measure; arms that left sessions unserved are out.

        Runs that are cut on purpose leave some in every arm.
        """
        served = [
            arm
            for arm in arms
            if all(
                cell.is_cut or not result.measures.get("unfinished", 0.0)
                for cell, result in self.of(panel, arm)
            )
        ]
        scored = [(self.interval(panel, arm, column).value, arm) for arm in served]
        scored = [(value, arm) for value, arm in scored if value == value]
        if not scored:
            return None
        return (max if column.higher_is_better else min)(scored)[1]


def arms(*texts: str) -> list[tuple[str, PolicyChoice]]:
    """Policies by their text form; each is called by it."""
    return [(text, PolicyChoice.parse(text)) for text in texts]


def find(studies: Mapping[str, Study], name: str) -> Study:
    """The study of this name.

    Raises:
        ConfigurationError: there is none.
    """
    if name not in studies:
        raise ConfigurationError(f"no study {name!r}; there are {', '.join(studies)}")
    return studies[name]
