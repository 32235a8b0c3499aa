"""Errors by hand; decisions that readiness does and does not change, one of each."""

from dataclasses import replace

import pytest
from small_problems import problem
from study_cells import SMALL

from tao_coordinator.core.events import ToolEnded, ToolStarted
from tao_coordinator.prediction.paper import PaperPredictor
from tao_coordinator.scheduling.rivals.grid_decision import decide
from tao_coordinator.simulation.run_record import RunRecord
from tao_coordinator.study.cell import run_cell
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.watches.readiness import ReadinessWatch

NO_RUN = RunRecord()


def test_errors_are_those_of_what_was_said_at_the_start() -> None:
    """5 s by default, then the mean of the one call seen: off by 4.5 s, then by 3.5 s."""
    watch = ReadinessWatch()
    heard = watch.readiness(PaperPredictor())
    for number, (start_s, end_s) in enumerate(((0.0, 0.5), (10.0, 14.0))):
        call_id = str(number)
        heard.observe(ToolStarted(session_id="s", call_id=call_id, name="bash"), start_s)
        heard.observe(ToolEnded(session_id="s", call_id=call_id, name="bash"), end_s)
    heard.observe(ToolEnded(session_id="s", call_id="9", name="bash", duration_s=1.0), 20.0)
    found = watch.measures(NO_RUN)
    assert found["predictions"] == 2
    assert found["prediction_error_s_mean"] == pytest.approx((4.5 + 3.5) / 2)
    assert found["prediction_close"] == 0.0
    # "Not within a second" was wrong about the first, "within" about the second.
    assert found["prediction_brier"] == pytest.approx(1.0)


def test_a_decision_is_changed_where_it_would_have_been_worth_something_else() -> None:
    watch = ReadinessWatch()
    watched = watch.decide(decide)
    one_place = [[0], [0]]
    watched(
        problem([4, 5], one_place, [5], ready=[1, 0]), 1, 1_000
    )  # the ready one, not the larger
    watched(problem([4, 5], one_place, [5], ready=[0, 1]), 1, 1_000)  # the larger one either way
    watched(problem([4, 5], one_place, [9], ready=[1, 0]), 1, 1_000)  # both
    watched(problem([4, 5], one_place, [5], ready=[0, 0]), 1, 1_000)  # nobody is ready
    watched(problem([4, 4], one_place, [4], ready=[1, 1]), 1, 1_000)  # a tie
    watched(problem([4, 5], one_place, [5], ready=[1, 0]), 1, 1)  # by size alone
    assert watch.measures(NO_RUN) == {"decisions_changed": pytest.approx(1 / 6)}


def test_only_an_oracle_is_never_wrong_and_watching_changes_nothing() -> None:
    cell = replace(SMALL, workers=8, pools=(40_000,))
    for name in ("tao", "tao-paper"):
        arm = replace(cell, policy=PolicyChoice.parse(f"{name}:readiness=oracle"))
        oracle = run_cell(replace(arm, watch="readiness"))
        assert oracle.measures["prediction_error_s_mean"] < 1e-9
        assert oracle.measures["prediction_brier"] == 0.0
        assert oracle.tasks_s == run_cell(arm).tasks_s
        history = run_cell(replace(cell, policy=PolicyChoice(name), watch="readiness"))
        assert history.measures["predictions"] == oracle.measures["predictions"] > 20
        assert history.measures["prediction_error_s_mean"] > 0.1


def test_without_readiness_nothing_is_changed_by_it() -> None:
    policy = PolicyChoice.parse("tao-paper:uses_readiness=false")
    cell = replace(SMALL, workers=8, pools=(40_000,), policy=policy, watch="readiness")
    assert run_cell(cell).measures["decisions_changed"] == 0.0
