"""Cells of the studies of placement: that they ask what their names say."""

from dataclasses import replace

import pytest

from tao_coordinator.simulation.fleet import Fleet, FleetSettings
from tao_coordinator.simulation.load import ClosedLoop
from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies import STUDIES
from tao_coordinator.study.study import OURS, StudyOptions


def cells(study: str, share: float) -> list[Cell]:
    return STUDIES[study].make_cells(StudyOptions(seeds=(1,), share=share))


def cell_of(panel: str) -> Cell:
    return next(c for c in cells("joint-vs-greedy", 1.0) if (c.panel, c.arm) == (panel, OURS))


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_many_backends_have_sessions_that_wait_for_a_worker_at_every_share(share: float) -> None:
    for cell in cells("many-backends", share):
        assert cell.sessions >= 2 * cell.num_workers(), cell.panel


def test_long_contexts_have_sessions_that_wait_for_a_worker_at_every_share() -> None:
    found = [c for c in cells("joint-vs-greedy", 0.05) if c.panel.startswith("long contexts")]
    assert len({cell.panel for cell in found}) == 4
    for cell in found:
        assert cell.sessions >= 2 * cell.num_workers(), cell.panel


@pytest.mark.parametrize(
    ("panel", "before", "after"),
    [
        ("eight of 32 small pools fail at once", 32, 24),
        ("eight small pools are added to 24", 24, 32),
    ],
)
def test_a_quarter_of_the_fleet_goes_or_comes(panel: str, before: int, after: int) -> None:
    cell = cell_of(panel)
    scripts = cell.workload.sessions(8, 1)
    changes = tuple(replace(change, at_s=5.0) for change in cell.changes)  # as soon as all are up
    seen: list[int] = []
    for end_s in (4.0, 25.0):
        settings = FleetSettings(
            backends=cell.specs, load=ClosedLoop(workers=4), changes=changes, end_s=end_s
        )
        fleet = Fleet(settings, scripts, "tao")
        fleet.run()
        assert fleet.now_s > end_s - 2.0
        seen.append(sum(b.healthy for b in fleet.engine.state.backends.values()))
    assert seen == [before, after]
    assert cell.num_workers() >= 200, "hundreds of sessions to place"


def test_sub_agents_share_what_their_parents_have_and_load_as_much_as_the_rest() -> None:
    forked = cell_of("long contexts, sub-agents with a common prefix")
    scripts = forked.workload.sessions(8, 1)
    assert [s.parent_session_id is None for s in scripts] == [True, False, False, False] * 2
    assert forked.num_workers() == cell_of("long contexts, four equal pools").num_workers()
