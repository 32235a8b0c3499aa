"""The tables of `tao bench decision`."""

from collections.abc import Iterator

from tao_coordinator.bench.decision import CURVE_S, DecisionResult, Group, LargeRun, Times


def lines(result: DecisionResult) -> Iterator[str]:
    """Human-readable."""
    if result.groups:
        yield f"budget {result.budget_s * 1e3:.0f} ms of CPU time per problem; times in ms"
        yield _row(
            "family", "sessions", "m", "CPU p50/p95/max", "wall p50/p95", "certified",
            "open (largest gap)", "MILP p50/p95", "equal", "grid p50", "loss",
        )  # fmt: skip
        for group in result.groups:
            yield _group(group)
    if result.large:
        yield ""
        curve = " ".join(f"{limit_s:g}s" for limit_s in CURVE_S)
        yield f"large problems; certified credit gap after {curve}"
        for run in result.large:
            yield _large(run)
    if result.resident_mb is not None:
        yield f"resident {result.resident_mb:.0f} MB"


def _row(*cells: str) -> str:
    widths = (14, 9, 4, 19, 15, 9, 24, 15, 7, 9, 7)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _pair(times: Times | None) -> str:
    return "-" if times is None else f"{times.p50_ms:.1f}/{times.p95_ms:.0f}"


def _group(group: Group) -> str:
    gaps = ", ".join(f"{name} {gap:.2%}" for name, gap in group.open_gaps.items())
    equal = "-"
    if group.milp is not None:
        equal = f"{group.num_milp_equal}/{group.num_milp_proved}"
    return _row(
        group.family + (" empty" if group.is_empty else ""),
        group.sessions,
        group.backends,
        f"{_pair(group.cpu)}/{group.cpu.max_ms:.0f}",
        _pair(group.wall),
        f"{group.num_certified}/{group.num_instances}",
        gaps or "-",
        _pair(group.milp),
        equal,
        "-" if group.grid is None else f"{group.grid.p50_ms:.0f}",
        "-" if group.grid_credit_loss is None else f"{group.grid_credit_loss:.2%}",
    )


def _large(run: LargeRun) -> str:
    gaps = " ".join("-" if gap is None else f"{gap:.4%}" for gap in run.credit_gap_after.values())
    milp = ""
    if run.milp_s is not None:
        proved = "proved" if run.milp_proved else "not proved"
        milp = f" | MILP credit {run.milp_credit} ({proved}) {run.milp_s:.1f} s"
    names = ("class", "credit", "ready", "tokens", "count")
    first_open = "all proved"
    if run.num_proved < len(names):
        first_open = f"{names[run.num_proved]} gap {run.gap:.4%}"
    return (
        f"{run.num_sessions} x {run.num_backends} {run.features}: first plan "
        f"{run.instant_wall_s * 1e3:.0f} ms, full {run.full_wall_s:.2f} s "
        f"(CPU {run.full_cpu_s:.2f}), {first_open}, after {gaps}; objective {run.objective}, "
        f"bound {run.bound}, {run.extra_memory_mb:.0f} MB{milp}"
    )
