from dataclasses import replace

import pytest
from small_problems import SMALL_BLOCKS_LARGE
from study_cells import SMALL

from tao_coordinator.scheduling.rivals.grid_decision import decide
from tao_coordinator.study.cell import run_cell_fully
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.watches.cost import CostWatch


def test_failed_searches_are_timed_apart() -> None:
    watch = CostWatch()
    timed = watch.decide(decide)
    timed(SMALL_BLOCKS_LARGE, 1, 1_000)
    timed(SMALL_BLOCKS_LARGE, 1, 1)
    timed(SMALL_BLOCKS_LARGE, 1, 1)
    assert (len(watch.solved_s), len(watch.failed_s)) == (1, 2)


@pytest.mark.parametrize("states", ["65536", "30"])
def test_shares_are_sums_over_the_run(states: str) -> None:
    policy = PolicyChoice.parse(f"tao-paper:states_max={states}")
    cell = replace(SMALL, workers=8, pools=(40_000,), policy=policy, watch="cost")
    result, record = run_cell_fully(cell)
    found = result.measures
    plans = record.counters["num_plans"]
    assert found["plan_ms_mean"] * plans / 1e3 == pytest.approx(
        found["plan_share"] * found["makespan_s"]
    )
    failed = found["plan_share"] - found["plan_share_solved"]
    assert (failed > 0.0) == (record.counters["num_fallbacks"] > 0)
    assert found["decision_share"] - found["decision_share_solved"] == pytest.approx(failed)
    assert found["decision_share"] > found["plan_share"]
    assert found["plan_states_mean"] <= float(states)
