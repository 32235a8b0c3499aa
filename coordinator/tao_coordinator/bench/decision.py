"""How fast and how good placement is: the ladder beside the published grid and a MILP solver.

Every line is a group of random instances (`decision_problems`). The ladder gets a time budget and
stops earlier where it has proved its plan; HiGHS (through scipy, if installed) and the published
dense grid solve the same instances in the same run. Times are wall clock and, since machines are
shared, CPU time of this process beside it.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Final

import numpy as np

from tao_coordinator.bench import decision_references, process_use
from tao_coordinator.bench.decision_problems import dense, sparse
from tao_coordinator.scheduling.placement import (
    FULL,
    INSTANT,
    Effort,
    PlacementProblem,
    Plan,
    SparsePlacementProblem,
    dense_grid,
    solve,
)

GROUPS: Final = (
    ("base", False),
    ("multi3", False),
    ("product", False),
    ("card", False),
    ("aged", False),
    ("prefix", False),
    ("base", True),
    ("allnew", False),
)
"""Families and whether backends are empty."""
SIZES: Final = ((5, 30, (2, 4)), (31, 80, (4, 8)), (81, 200, (4, 8)))
"""Sessions from and to, backends."""
LARGE_SIZES: Final = ((1_000, 64), (10_000, 1_000))
LARGE_FEATURES: Final[dict[str, dict[str, object]]] = {
    "loaded": {},
    "empty": {"is_empty": True},
    "multi-home": {"home_shares": (1.0, 0.9, 0.36), "new_share": 0.1},
    "all new": {"new_share": 1.0},
    "session limits 1-4": {"sessions_per_backend_max": 4},
    "2 % overdue": {"overdue_share": 0.02},
    "2 % overdue, limits": {"overdue_share": 0.02, "sessions_per_backend_max": 4},
}
CURVE_S: Final = (0.1, 0.25, 0.5, 1.0, 1.5)
_GRID_QUANTUM_TOKENS = 256
_GRID_STATES_MAX = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Distribution over instances, milliseconds."""

    p50_ms: float
    p95_ms: float
    max_ms: float

    @staticmethod
    def of(times_s: list[float]) -> "Times":
        """Summarise at least one sample."""
        p50, p95 = np.percentile(times_s, [50, 95])
        return Times(p50_ms=float(p50) * 1e3, p95_ms=float(p95) * 1e3, max_ms=max(times_s) * 1e3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One line of the table of small and medium problems."""

    family: str
    is_empty: bool
    sessions: str
    backends: str
    num_instances: int
    wall: Times
    cpu: Times
    overrun_ms: float
    """Largest CPU time beyond the budget."""
    num_certified: int
    """Whole objective proved."""
    open_gaps: dict[str, float]
    """Largest gap of the first open coordinate, by coordinate."""
    rungs: dict[str, int]
    """Where the plans were found."""
    milp: Times | None
    """HiGHS, all five coordinates, one after the other."""
    num_milp_proved: int
    num_milp_equal: int
    """Of those, how many the ladder equals."""
    num_milp_better: int
    """Instances on which the MILP's plan is better, proved or not."""
    grid: Times | None
    """The published grid, where it has few enough states (two backends)."""
    grid_credit_loss: float | None
    """Median share of credit that the grid loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRun:
    """One large problem."""

    features: str
    num_sessions: int
    num_backends: int
    instant_wall_s: float
    full_wall_s: float
    full_cpu_s: float
    objective: tuple[int, ...]
    bound: tuple[int, ...]
    num_proved: int
    gap: float
    credit_gap_after: dict[str, float | None]
    """Certified credit gap of a run limited to so many seconds; None: class not proved."""
    extra_memory_mb: float
    """Largest allocation during one solution."""
    milp_s: float | None
    milp_credit: int | None
    milp_proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionResult:
    """Figures of one run."""

    budget_s: float
    groups: list[Group] = field(default_factory=list[Group])
    large: list[LargeRun] = field(default_factory=list[LargeRun])
    resident_mb: float | None = None
    """Largest resident set of the process, references included."""

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to measure."""

    num_instances: int = 18
    budget_s: float = 0.25
    families: tuple[str, ...] | None = None
    """None: the groups above; else these, loaded and empty."""
    with_large: bool = True
    with_milp: bool = True
    milp_limit_s: float = 10.0
    seed: int = 1000


def run(settings: Settings, on_progress: Callable[[str], None]) -> DecisionResult:
    """Measure.

    Args:
        settings: what.
        on_progress: told what happens, in words.
    """
    milp = settings.with_milp and decision_references.is_available()
    if settings.with_milp and not milp:
        on_progress("scipy is not installed: no MILP beside it")
    solve(dense("base", 0, 20, 2), INSTANT)  # imports and first calls
    groups: list[Group] = []
    chosen = GROUPS
    if settings.families is not None:
        chosen = tuple((family, empty) for family in settings.families for empty in (False, True))
    for family, is_empty in chosen:
        for low, high, backends in SIZES:
            state = "empty" if is_empty else "loaded"
            on_progress(f"{family}, {state}, {low}-{high} sessions")
            problems = list(_problems(family, is_empty, low, high, backends, settings))
            groups.append(_group((family, is_empty, low, high, backends), problems, settings, milp))
    large: list[LargeRun] = []
    if settings.with_large:
        for num_sessions, num_backends in LARGE_SIZES:
            for features in LARGE_FEATURES:
                on_progress(f"{num_sessions} x {num_backends}, {features}")
                large.append(_large(features, num_sessions, num_backends, settings, milp))
    return DecisionResult(
        budget_s=settings.budget_s,
        groups=groups,
        large=large,
        resident_mb=process_use.resident_mb(),
    )


def _problems(
    family: str,
    is_empty: bool,
    low: int,
    high: int,
    backends: tuple[int, ...],
    settings: Settings,
) -> Iterator[PlacementProblem]:
    draw = np.random.default_rng(5)
    for number in range(settings.num_instances):
        num_sessions = int(draw.integers(low, high + 1))
        num_backends = int(draw.choice(backends))
        seed = settings.seed + number
        yield dense(family, seed, num_sessions, num_backends, is_empty=is_empty)


def _timed(problem: PlacementProblem, budget_s: float) -> tuple[Plan, float, float]:
    """Plan, wall and CPU seconds."""
    start_s, cpu_s = time.perf_counter(), time.process_time()
    effort = Effort(work=1 << 40).timed(lambda: time.process_time() - cpu_s, budget_s)
    plan = solve(problem, effort)
    return plan, time.perf_counter() - start_s, time.process_time() - cpu_s


def _group(
    what: tuple[str, bool, int, int, tuple[int, ...]],
    problems: list[PlacementProblem],
    settings: Settings,
    milp: bool,
) -> Group:
    family, is_empty, low, high, backends = what
    plans: list[Plan] = []
    walls: list[float] = []
    cpus: list[float] = []
    for problem in problems:
        plan, wall_s, cpu_s = _timed(problem, settings.budget_s)
        plan.check(problem)
        plans.append(plan)
        walls.append(wall_s)
        cpus.append(cpu_s)
    open_gaps: dict[str, float] = {}
    rungs: dict[str, int] = {}
    for plan in plans:
        rungs[plan.rung.name.lower()] = rungs.get(plan.rung.name.lower(), 0) + 1
        certificate = plan.certificate
        if not certificate.is_optimal:
            name = plan.objective._fields[certificate.num_proved]
            open_gaps[name] = max(open_gaps.get(name, 0.0), certificate.gap)
    times, num_proved, num_equal, num_better = None, 0, 0, 0
    if milp:
        times, num_proved, num_equal, num_better = _milp(problems, plans, settings)
    grid, loss = _grid(problems, plans)
    return Group(
        family=family,
        is_empty=is_empty,
        sessions=f"{low}-{high}",
        backends="/".join(map(str, backends)),
        num_instances=len(plans),
        wall=Times.of(walls),
        cpu=Times.of(cpus),
        overrun_ms=max(0.0, max(cpus) - settings.budget_s) * 1e3,
        num_certified=sum(plan.certificate.is_optimal for plan in plans),
        open_gaps=open_gaps,
        rungs=rungs,
        milp=times,
        num_milp_proved=num_proved,
        num_milp_equal=num_equal,
        num_milp_better=num_better,
        grid=grid,
        grid_credit_loss=loss,
    )


def _milp(
    problems: list[PlacementProblem], plans: list[Plan], settings: Settings
) -> tuple[Times, int, int, int]:
    times: list[float] = []
    num_proved = num_equal = num_better = 0
    for problem, plan in zip(problems, plans, strict=True):
        reference = decision_references.mixed_integer(problem, settings.milp_limit_s)
        times.append(reference.elapsed_s)
        num_proved += reference.is_proved
        num_equal += reference.is_proved and plan.objective == reference.sums
        num_better += reference.sums > plan.objective[: len(reference.sums)]
    return Times.of(times), num_proved, num_equal, num_better


def _grid(problems: list[PlacementProblem], plans: list[Plan]) -> tuple[Times | None, float | None]:
    """The published grid on the instances with two backends."""
    times: list[float] = []
    losses: list[float] = []
    for problem, plan in zip(problems, plans, strict=True):
        if problem.num_backends != 2:
            continue
        start_s = time.perf_counter()
        answer = dense_grid.solve(problem, _GRID_QUANTUM_TOKENS, _GRID_STATES_MAX)
        if answer.used_fallback:
            continue
        times.append(time.perf_counter() - start_s)
        if plan.objective.credit:
            losses.append(1 - answer.plan.objective.credit / plan.objective.credit)
    return (Times.of(times) if times else None), (median(losses) if losses else None)


def _large(
    features: str, num_sessions: int, num_backends: int, settings: Settings, milp: bool
) -> LargeRun:
    arguments = LARGE_FEATURES[features]
    problem = sparse(settings.seed, num_sessions, num_backends, **arguments)  # pyright: ignore[reportArgumentType]
    start_s = time.perf_counter()
    solve(problem, INSTANT).check(problem)
    instant_s = time.perf_counter() - start_s
    start_s, cpu_s = time.perf_counter(), time.process_time()
    plan = solve(problem, FULL)
    full_s, full_cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    plan.check(problem)
    tracemalloc.start()
    solve(problem, FULL)
    peak_mb = tracemalloc.get_traced_memory()[1] / (1 << 20)
    tracemalloc.stop()
    certificate = plan.certificate
    reference = None
    if milp and not problem.classes.any():
        reference = decision_references.credit(problem, 6 * settings.milp_limit_s)
    return LargeRun(
        features=features,
        num_sessions=num_sessions,
        num_backends=num_backends,
        instant_wall_s=instant_s,
        full_wall_s=full_s,
        full_cpu_s=full_cpu_s,
        objective=tuple(plan.objective),
        bound=certificate.bound,
        num_proved=certificate.num_proved,
        gap=certificate.gap,
        credit_gap_after={str(limit_s): _credit_gap(problem, limit_s) for limit_s in CURVE_S},
        extra_memory_mb=peak_mb,
        milp_s=None if reference is None else reference.elapsed_s,
        milp_credit=None if reference is None else reference.sums[-1],
        milp_proved=reference is not None and reference.is_proved,
    )


def _credit_gap(problem: SparsePlacementProblem, limit_s: float) -> float | None:
    start_s = time.perf_counter()
    effort = FULL.timed(lambda: time.perf_counter() - start_s, limit_s)
    certificate = solve(problem, effort).certificate
    if certificate.num_proved == 0:
        return None
    return certificate.gap if certificate.num_proved == 1 else 0.0
