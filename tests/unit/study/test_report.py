"""Reports on made-up results, whose every number is known."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
from study_cells import SMALL

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.study import report
from tao_coordinator.study.cell import CellResult
from tao_coordinator.study.studies import STUDIES
from tao_coordinator.study.study import (
    HOLD_STARTED,
    TASK,
    TOKENS,
    TTFT,
    Claim,
    Column,
    Outcome,
    Study,
    StudyOptions,
    find,
)

ARMS = {"tao": (80.0, 120.0), "slow": (160.0, 60.0), "lost": (1.0, 999.0)}
"""Task latency and tokens per second."""


def outcome() -> Outcome:
    study = Study(
        name="made-up",
        title="Made up",
        asks="Is it?",
        make_cells=lambda options: [],
        columns=(TASK, TOKENS),
        versus=(TASK, TOKENS),
        claims=(
            Claim("latency", "-9 %", "small", "tao", ("slow",), TASK, "because"),
            Claim("elsewhere", "-9 %", "no such panel", "tao", ("slow",), TASK),
        ),
    )
    cells = [replace(SMALL, arm=arm, seed=seed) for arm in ARMS for seed in (1, 2)]
    results = [
        CellResult(
            cell.cell_id,
            {
                "task_s_mean": ARMS[cell.arm][0],
                "output_tokens_per_s": ARMS[cell.arm][1] * cell.seed,
                "unfinished": float(cell.arm == "lost"),
                "ttft_s_mean": float("nan"),
                "hold_started_s_max": 10.0 * cell.seed,
            },
            {str(n): ARMS[cell.arm][0] * n for n in (0.5, 1.5)},
        )
        for cell in cells
    ]
    return Outcome(study, StudyOptions(seeds=(1, 2)), cells, results)


def test_tables_say_what_was_measured_and_who_was_best() -> None:
    text = report.markdown(outcome(), "tao study run made-up", ["picture.png"])
    assert "| **tao** | 80 [40, 120] | 180 [120, 240] |" in text
    # An arm that left sessions unserved is shown, and is nobody to be compared with.
    assert "| lost (2 sessions not finished) |" in text
    assert "task mean s -50.0 % [-50.0, -50.0] against slow" in text
    assert "output tok/s +100.0 % [+100.0, +100.0] against slow" in text
    assert "| latency | -9 % | -50.0 % [-50.0, -50.0] (slow) | because |" in text
    assert "elsewhere" not in text
    assert "![picture.png](picture.png)" in text


def test_sessions_of_a_window_are_those_that_ended_in_it() -> None:
    """A run that is cut leaves others that were served as well: a seed has more than ended."""
    found = outcome()
    for result in found.results:
        result.measures |= {"sessions": 13.0, "workers": 64.0}
    assert "\n13 sessions a seed, 64 workers.\n" in report.markdown(found, "")
    cut = replace(found, cells=[replace(cell, is_window=True) for cell in found.cells])
    assert "\n13 ended a seed under tao, 64 workers.\n" in report.markdown(cut, "")


def test_runs_that_are_cut_on_purpose_may_leave_sessions_and_be_the_best() -> None:
    """Like a window, but all turns count: `cliff` measures one hour."""
    found = outcome()
    for result in found.results:
        result.measures |= {"sessions": 13.0, "unfinished": 5.0}
    claim = Claim("rate", "2x", "small", "tao", ("slow",), TOKENS)
    found = replace(found, study=replace(found.study, claims=(claim,)))
    text = report.markdown(found, "")
    assert "| rate | 2x | no rival finished |" in text
    assert "| slow (10 sessions not finished) |" in text
    cut = replace(found, cells=[replace(cell, has_fixed_end=True) for cell in found.cells])
    text = report.markdown(cut, "")
    assert "| rate | 2x | +100.0 % [+100.0, +100.0] (slow) |" in text
    assert "\n13 ended a seed under tao, open loop.\n" in text
    assert "not finished" not in text


RUN_LIMIT_S = 7_200.0
"""Studies that end a run earlier mean to measure a part of it."""


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_every_claim_about_a_ratio_can_be_computed(study: Study) -> None:
    """Also where a study cuts its runs, which leaves sessions that have not ended."""
    cells = study.make_cells(StudyOptions(seeds=(1,)))
    measures = {claim.column.measure: 2.0 for claim in study.claims}
    results = [
        CellResult(
            cell.cell_id,
            measures | {"unfinished": 3.0 if cell.end_s <= RUN_LIMIT_S else 0.0, "sessions": 8.0},
            {"0": 2.0},
        )
        for cell in cells
    ]
    facts = report.as_json(Outcome(study, StudyOptions(seeds=(1,)), cells, results), "")
    claims = cast("list[dict[str, Any]]", facts["claims"])
    assert len(claims) == len(study.claims)
    assert [c["here"]["value"] for c in claims if c["is_ratio"]] == [
        1.0 for claim in study.claims if claim.rivals
    ]


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_batches_are_compared_by_the_rate_of_the_whole_run(study: Study) -> None:
    """Where all start at once, the other rate is over the first half of each arm's own time."""
    cells = study.make_cells(StudyOptions(seeds=(1,)))
    batches = {cell.panel for cell in cells if cell.workers and cell.workers >= cell.sessions}
    rates = [claim for claim in study.claims if claim.rivals and claim.column == TOKENS]
    assert not [claim.what for claim in rates if claim.panel in batches]
    assert not batches or TOKENS not in study.versus


def test_json_holds_every_seed_and_no_nan() -> None:
    facts = json.loads(json.dumps(report.as_json(outcome(), "c"), allow_nan=False))
    arms = facts["panels"]["small"]["arms"]
    assert arms["slow"]["seeds"]["2"]["output_tokens_per_s"] == 120.0
    assert arms["slow"]["seeds"]["2"]["ttft_s_mean"] is None
    assert facts["panels"]["small"]["versus"]["task_s_mean"]["slow"]["value"] == 0.5


@pytest.mark.parametrize(
    ("column", "rivals", "kept", "missed"),
    [
        (TASK, ("slow",), -50.0, -50.1),  # 80 of 160 s
        (TOKENS, ("slow",), 100.0, 100.1),  # 120 of 60, 240 of 120
        (TOKENS, (), 180.0, 181.0),  # the mean of 120 and 240
        (HOLD_STARTED, (), 20.0, 19.0),  # the longest of 10 and 20, not the mean
    ],
)
def test_floors_are_told_as_met_or_not(
    column: Column, rivals: tuple[str, ...], kept: float, missed: float
) -> None:
    claims = tuple(
        Claim(name, f"{floor:g} (study: more)", "small", "tao", rivals, column, "", floor)
        for name, floor in (("kept", kept), ("missed", missed))
    )
    found = outcome()
    study = replace(found.study, claims=claims, beside="our floors", heads=("what", "floor"))
    text = report.markdown(replace(found, study=study), "")
    assert "## Beside our floors" in text
    assert "| what | floor | here | met? | why they differ |" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| kept |")]
    assert line.endswith("| met |  |")
    (line,) = [line for line in text.splitlines() if line.startswith("| missed |")]
    assert line.endswith("| **NOT met** |  |")
    assert "1 of 2 floors are met." in text
    facts = json.loads(json.dumps(report.as_json(replace(found, study=study), "c")))
    assert [(claim["floor"], claim["is_met"]) for claim in facts["claims"]] == [
        (kept, True),
        (missed, False),
    ]


def test_the_longest_of_all_has_no_interval() -> None:
    """Those of means need not even hold it."""
    found = outcome()
    claim = Claim("hold", "20", "small", "tao", (), HOLD_STARTED)
    facts = report.as_json(replace(found, study=replace(found.study, claims=(claim,))), "")
    (told,) = cast("list[dict[str, Any]]", facts["claims"])
    assert told["here"] == {"value": 20.0, "low": None, "high": None}


def test_floor_is_not_met_where_no_rival_finished() -> None:
    found = outcome()
    claim = Claim("lost", "0", "small", "tao", ("lost",), TOKENS, floor=0.0)
    text = report.markdown(replace(found, study=replace(found.study, claims=(claim,))), "")
    assert "| lost | 0 | no rival finished | **NOT met** |" in text


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_every_difference_is_explained_or_called_open(study: Study) -> None:
    silent = [claim.what for claim in study.claims if not claim.why]
    assert not silent or study.unexplained, silent
    assert study.claims or not study.unexplained


def test_snapshots_tell_how_many_sessions_compete() -> None:
    """Its claims point at the table for that."""
    assert "snapshots_competing" in [c.measure for c in STUDIES["snapshots"].columns]


def test_a_measure_that_nobody_has_has_no_best() -> None:
    assert outcome().best("small", ["tao", "slow"], TTFT) is None


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_every_study_asks_about_arms_and_panels_that_it_has(study: Study) -> None:
    """A claim or a plot that names no cell would silently be left out."""
    cells = study.make_cells(StudyOptions(seeds=(1,)))
    assert cells
    arms = {(cell.panel, cell.arm) for cell in cells}
    panels = {cell.panel for cell in cells}
    for claim in study.claims:
        assert claim.panel in panels, claim.what
        for arm in (claim.arm, *claim.rivals):
            assert (claim.panel, arm) in arms, claim.what
    for plot in study.plots:
        for group in plot.panels:
            assert any(panel.startswith(group) for panel in panels)
    # Equal ids within a panel would compare a run with itself.
    for panel in panels:
        ids = [cell.cell_id for cell in cells if cell.panel == panel]
        assert len(ids) == len(set(ids))


def test_published_strongest_setting_of_tao_is_always_there_too() -> None:
    for study in STUDIES.values():
        arms = {cell.arm for cell in study.make_cells(StudyOptions(seeds=(1,)))}
        has_rivals = "thunderagent" in arms and "tao-paper" in arms
        assert not has_rivals or "tao-paper@0.9" in arms


def test_unknown_study_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="no study 'x'; there are pressure"):
        find(STUDIES, "x")


def test_brackets_say_what_they_are() -> None:
    """Two values resampled are their range; one seed has none, and the ratio no bracket."""
    assert "for the rest the range of the seeds." in report.markdown(outcome(), "")
    many = replace(outcome(), options=StudyOptions(seeds=(1, 2, 3, 4)))
    assert "for the rest 95 %, bootstrap over the seeds." in report.markdown(many, "")
    found = outcome()
    first = [(c, r) for c, r in zip(found.cells, found.results, strict=True) if c.seed == 1]
    cells, results = [c for c, _ in first], [r for _, r in first]
    text = report.markdown(Outcome(found.study, StudyOptions(seeds=(1,)), cells, results), "")
    assert "In brackets" not in text
    assert "output tok/s +100.0 % against slow" in text
