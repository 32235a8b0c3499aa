from dataclasses import replace
from pathlib import Path

import pytest
from study_cells import SMALL

from tao_coordinator.study.cell import Cell, run_cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.studies import STUDIES
from tao_coordinator.study.study import TASK, TASK_BARS, Outcome, Plot, Study, StudyOptions

pytest.importorskip("matplotlib", reason='plots need "tao-client[study]"')

PNG = b"\x89PNG\r\n\x1a\n"


def test_one_picture_per_group_and_per_timeline(tmp_path: Path) -> None:
    from tao_coordinator.study.plots import draw

    def cells(options: StudyOptions) -> list[Cell]:
        return [
            replace(SMALL, panel=f"p, {n}", arm=name, policy=PolicyChoice(name), workers=n, x=n)
            for n in (2, 4)
            for name in ("tao", "round-robin")
        ]

    plots = (
        Plot("latency", "lines", "task_s_mean", "Latency", "seconds", ("p,",)),
        Plot("hits", "timeline", "hit_rate", "Hits", "share"),
        Plot("running", "timeline", "running", "Running", "calls", ("p, 4",)),
        replace(TASK_BARS, panels=("p, 4",)),
    )
    study = Study(name="s", title="S", asks="?", make_cells=cells, columns=(TASK,), plots=plots)
    made = cells(StudyOptions())
    outcome = Outcome(study, StudyOptions(), made, [run_cell(cell) for cell in made])
    names = draw(outcome, tmp_path)
    assert names == ["latency-p.png", "hits-p-2.png", "hits-p-4.png", "running.png", "task.png"]
    for name in names:
        data = (tmp_path / name).read_bytes()
        assert data.startswith(PNG)
        assert len(data) > 5_000


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_every_study_has_pictures_of_panels_that_it_has(study: Study) -> None:
    panels = {cell.panel for cell in study.make_cells(StudyOptions(seeds=(1,), share=0.1))}
    assert study.plots
    for plot in study.plots:
        for wanted in plot.panels:
            assert any(panel.startswith(wanted) for panel in panels), wanted


def test_what_a_watch_noted_is_drawn_per_panel(tmp_path: Path) -> None:
    from tao_coordinator.study.plots import draw

    def cells(options: StudyOptions) -> list[Cell]:
        pressed = replace(SMALL, workers=8, pools=(40_000, 40_000), num_backends=2)
        return [
            replace(pressed, panel=watch, arm=name, policy=PolicyChoice(name), watch=watch)
            for watch in ("survival", "snapshots", "asynchrony")
            for name in ("tao", "tao-paper")
        ]

    plots = (
        Plot("kept", "survival", "", "Survival", "share", ("survival",)),
        Plot("one", "snapshot", "", "One snapshot", "", ("snapshots",), ("tao-paper",)),
        Plot("gains", "gains", "", "Gains", "%", ("snapshots",)),
        Plot("terms", "terms", "", "Plans", "tokens", ("asynchrony", "survival")),
    )
    study = Study(name="s", title="S", asks="?", make_cells=cells, columns=(TASK,), plots=plots)
    made = cells(StudyOptions())
    outcome = Outcome(study, StudyOptions(), made, [run_cell(cell) for cell in made])
    names = draw(outcome, tmp_path)
    assert names == [
        "kept.png",
        "one.png",
        "gains.png",
        "terms-asynchrony.png",
        "terms-survival.png",
    ]
    for name in names:
        assert (tmp_path / name).read_bytes().startswith(PNG)
