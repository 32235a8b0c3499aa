"""The arms of CONCUR's comparison are what they are called."""

import pytest

from tao_coordinator.study.cell import Cell
from tao_coordinator.study.studies import STUDIES
from tao_coordinator.study.study import StudyOptions


@pytest.mark.parametrize("name", ["concur", "cliff"])
def test_every_published_figure_comes_with_a_sentence(name: str) -> None:
    for claim in STUDIES[name].claims:
        assert len(claim.why.split()) > 3, claim.what


def test_arms_of_the_engine_differ_from_no_control_in_one_rule() -> None:
    cells = STUDIES["concur"].make_cells(StudyOptions(seeds=(1,)))

    def rules(cell: Cell) -> tuple[str, int, bool]:
        return cell.policy.text, cell.max_sequences, cell.evicts_whole

    for panel in ("Qwen3-32B", "DeepSeek-V3"):
        of = {cell.arm: rules(cell) for cell in cells if cell.panel == panel}
        assert of["round-robin"] == ("round-robin", 256, False)
        assert of["engine max_num_seqs 8"] == ("round-robin", 8, False)
        assert of["engine max_num_seqs 16"] == ("round-robin", 16, False)
        assert of["reactive eviction"] == ("round-robin", 256, True)


def test_host_tier_is_a_panel_of_its_own() -> None:
    """More memory is no policy: whoever has it is compared with those that have it too."""
    cells = STUDIES["concur"].make_cells(StudyOptions(seeds=(1,)))
    ratios = {
        panel: {cell.host_ratio for cell in cells if cell.panel == panel}
        for panel in {cell.panel for cell in cells}
    }
    assert {panel: r for panel, r in ratios.items() if r != {0.0}} == {
        "Qwen3-32B above a host tier of 2x": {2.0}
    }
