"""The published hit-rate cliff (four pods of two H100s, Weka replay), on the modelled fleet."""

import pytest
import recorded_sessions

from tao_coordinator.study.cell import run_cell
from tao_coordinator.study.studies.cliff import cliff_cells
from tao_coordinator.study.studies.grid import cross
from tao_coordinator.study.study import StudyOptions, arms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PUBLISHED = {0.45: 0.932, 0.75: 0.725, 0.87: 0.336, 1.18: 0.043, 1.48: 0.002, 1.85: 0.002}
"""Hit rate without control, by working set over pools."""
SEED = 211


def test_hit_rates_without_control_fall_where_the_published_ones_do() -> None:
    options = StudyOptions(seeds=(SEED,), traces=recorded_sessions.traces("agentx"), share=0.5)
    cells = cross(options, cliff_cells(options), arms("dynamo-cost"))
    found = {cell.x: run_cell(cell).measures["hit_rate_loaded"] for cell in cells}
    print({x: round(hit_rate, 3) for x, hit_rate in found.items()})
    assert found.keys() == PUBLISHED.keys()
    distances = [abs(found[x] - PUBLISHED[x]) for x in PUBLISHED]
    assert sum(distances) / len(distances) <= 0.12
    # A flat line through the middle is no cliff.
    assert found[0.45] > 0.6
    assert max(found[x] for x in (1.18, 1.48, 1.85)) < 0.15
