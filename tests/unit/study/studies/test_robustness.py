"""The open loop: arrivals by the clock, at the rates that its panels name."""

import pytest

from tao_coordinator.simulation.load import OpenLoop
from tao_coordinator.study.studies import STUDIES
from tao_coordinator.study.studies.robustness import CLOSED_PER_S
from tao_coordinator.study.study import StudyOptions


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_arrivals_have_the_rate_that_the_panel_names_and_outlast_the_start(share: float) -> None:
    cells = STUDIES["open-loop"].make_cells(StudyOptions(seeds=tuple(range(1, 9)), share=share))
    for x in (0.7, 0.9, 1.1):
        found = [cell for cell in cells if cell.x == x]
        assert {cell.panel for cell in found} == {
            f"swe, 4 backends, {x:g} of the closed loop's rate"
        }
        lasts: list[float] = []
        for cell in found:
            load = cell.load(cell.workload.sessions(1, 1))
            assert isinstance(load, OpenLoop)
            assert len(load.arrivals_s) == cell.sessions
            lasts.append(load.arrivals_s[-1])
            assert cell.warm_s < load.arrivals_s[-1] < cell.end_s / 2
        rate_per_s = found[0].sessions / (sum(lasts) / len(lasts))
        assert rate_per_s == pytest.approx(x * CLOSED_PER_S, rel=0.1)
