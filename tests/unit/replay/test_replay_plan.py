import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest
from replay_traces import settings, write_trace

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.replay.plan import ReplayPlan, fleet_sizes, make_plan
from tao_coordinator.simulation.load import OpenLoop
from tao_coordinator.study.cell import Cell
from tao_coordinator.traces.records import MalformedTrace


@pytest.mark.parametrize(
    ("backends", "sizes"),
    [(1, (1,)), (2, (2, 1)), (4, (4, 3, 2, 1)), (16, (16, 12, 8, 4)), (5, (5, 4, 2, 1))],
)
def test_smaller_fleets_are_tried_too(backends: int, sizes: tuple[int, ...]) -> None:
    assert fleet_sizes(settings(Path("t"), num_backends=backends)) == sizes
    same = settings(Path("t"), num_backends=backends, with_fewer_backends=False)
    assert fleet_sizes(same) == (backends,)


def test_all_fleets_get_the_same_work(tmp_path: Path) -> None:
    plan = make_plan(settings(write_trace(tmp_path / "t.jsonl"), num_backends=2, workers=3))
    assert len(plan.cells) == 4
    assert {cell.workers for cell in plan.cells} == {3}
    assert {cell.sessions for cell in plan.cells} == {4}
    assert [cell.num_backends for cell in plan.cells] == [2, 2, 1, 1]
    # Contexts of 4,100, 6,100, ... 12,100 tokens, 8,100 on average.
    assert plan.footprint_tokens == 8_100
    assert plan.pressure == pytest.approx(3 * 8_100 / (2 * 307_000))


def test_no_more_workers_than_sessions(tmp_path: Path) -> None:
    plan = make_plan(settings(write_trace(tmp_path / "t.jsonl"), pressure=50.0))
    assert plan.workers == 4


def test_drawn_sessions_may_be_more_than_were_recorded(tmp_path: Path) -> None:
    plan = make_plan(settings(write_trace(tmp_path / "t.jsonl"), sessions=11, workers=2))
    cell = plan.cells[0]
    assert len(cell.workload.sessions(cell.sessions, 1)) == 11


def test_sessions_that_outgrow_a_pool_are_cut_and_counted(tmp_path: Path) -> None:
    """Contexts of 4,100, 6,100, ... 12,100 tokens in blocks of 64; `tao-paper` is told 0.9."""
    trace = write_trace(tmp_path / "t.jsonl")
    assert make_plan(settings(trace, capacity_tokens=13_512)).cut_sessions == 0
    plan = make_plan(settings(trace, capacity_tokens=13_511))
    assert plan.cut_sessions == 4
    assert {len(one.turns) for one in plan.cells[0].workload.recorded()} == {4}
    with pytest.raises(ConfigurationError, match="a pool of 7,360 tokens does not hold 3 model"):
        make_plan(settings(trace, capacity_tokens=8_200))


def test_arrivals_that_nobody_knows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--as-arrived"):
        make_plan(settings(write_trace(tmp_path / "t.jsonl"), as_arrived=True))


def test_arrivals_take_the_place_of_workers(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    trace.write_text("".join(json.dumps(row | {"timestamp": 7}) + "\n" for row in rows))
    plan = make_plan(settings(trace, as_arrived=True))
    assert (plan.workers, plan.pressure) == (0, 0.0)
    assert all(cell.as_arrived and cell.workers is None for cell in plan.cells)


UNIX_S = 1_770_415_920
HOUR_S = 3_600


def write_arrivals(path: Path, *arrivals_s: float) -> Path:
    """A session for each."""
    trace = write_trace(path, sessions=len(arrivals_s))
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    told = [
        row | {"timestamp": 1_000 * arrivals_s[int(row["session_id"].removeprefix("s"))]}
        for row in rows
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in told))
    return trace


def starts_s(plan: ReplayPlan) -> tuple[float, ...]:
    cell = plan.cells[0]
    load = cell.load(cell.workload.sessions(cell.sessions, cell.seed))
    assert isinstance(load, OpenLoop)
    return load.arrivals_s


@pytest.mark.parametrize("zero_s", [0, UNIX_S])
def test_an_hour_is_run_as_it_always_was_whatever_its_clock(tmp_path: Path, zero_s: int) -> None:
    trace = write_arrivals(tmp_path / "t.jsonl", zero_s, zero_s + HOUR_S)
    plan = make_plan(settings(trace, as_arrived=True))
    assert starts_s(plan) == (0.0, HOUR_S)
    assert plan.quiet_stretches == 0
    (end_s,) = (field.default for field in fields(Cell) if field.name == "end_s")
    assert {(cell.end_s, cell.quiet_s_max) for cell in plan.cells} == {(end_s, math.inf)}


def test_quiet_stretches_are_cut_and_counted(tmp_path: Path) -> None:
    """1970 beside 2026, then 6 h, which is not cut, and 4 days."""
    late_s = UNIX_S + 6 * HOUR_S
    trace = write_arrivals(tmp_path / "t.jsonl", 0, UNIX_S, late_s, late_s + 96 * HOUR_S)
    plan = make_plan(settings(trace, as_arrived=True))
    assert (plan.quiet_stretches, plan.quiet_s_max) == (2, 6 * HOUR_S)
    assert starts_s(plan) == (0.0, 6 * HOUR_S, 12 * HOUR_S, 18 * HOUR_S)
    whole = replace(plan.cells[0], quiet_s_max=math.inf)
    assert plan.cells[0].cell_id != whole.cell_id


def test_stretches_within_what_a_session_may_pause_are_kept(tmp_path: Path) -> None:
    trace = write_arrivals(tmp_path / "t.jsonl", 0, 20 * HOUR_S, 50 * HOUR_S)
    plan = make_plan(settings(trace, as_arrived=True, gap_s_max=24.0 * HOUR_S))
    assert starts_s(plan) == (0.0, 20 * HOUR_S, 44 * HOUR_S)
    assert make_plan(settings(trace, as_arrived=True, gap_s_max=math.inf)).quiet_stretches == 0


def test_quiet_counts_for_nothing_with_workers(tmp_path: Path) -> None:
    trace = write_arrivals(tmp_path / "t.jsonl", 0, UNIX_S)
    plan = make_plan(settings(trace, workers=1))
    assert plan.quiet_stretches == 0
    assert {cell.quiet_s_max for cell in plan.cells} == {math.inf}


def test_last_session_of_a_trace_that_spans_months_is_run_too(tmp_path: Path) -> None:
    """One session each five hours, which is not quiet."""
    arrivals_s = [UNIX_S + 5 * HOUR_S * number for number in range(200)]
    trace = write_arrivals(tmp_path / "t.jsonl", *arrivals_s)
    plan = make_plan(settings(trace, as_arrived=True))
    assert starts_s(plan)[-1] == 5 * HOUR_S * 199
    assert all(cell.end_s > 5 * HOUR_S * 199 + 24 * HOUR_S for cell in plan.cells)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_backends": 0},
        {"workers": 0},
        {"pressure": 0.0},
        {"capacity_tokens": 10},
        {"sessions": 0},
        {"shared_tokens": -1},
        {"gap_s_max": -1.0},
        {"gap_s_max": float("nan")},
        {"turns_max": 2},
        {"context_tokens_max": 0},
        {"policies": ()},
        {"as_arrived": True, "workers": 3},
    ],
)
def test_what_cannot_be_run_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        settings(Path("t"), **wrong)


def test_a_trace_without_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"request_id": "r", "session_id": "s", "turn": 0}) + "\n")
    with pytest.raises(MalformedTrace, match="known prompt lengths"):
        make_plan(settings(path))
