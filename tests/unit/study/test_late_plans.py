"""Plans that meet a later state: what is dropped, what is cut, what a run of them looks like."""

from dataclasses import replace

import numpy as np
import pytest
from study_cells import SMALL

from tao_coordinator.core.events import BackendAdded, BackendSampled, SessionEnded, TurnRequested
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.prediction.paper import PaperPredictor
from tao_coordinator.scheduling.rivals.grid_decision import decide
from tao_coordinator.scheduling.rivals.tao_paper import TaoPaperParameters
from tao_coordinator.study.cell import run_cell
from tao_coordinator.study.late_plans import LateTaoPaper
from tao_coordinator.study.policy_choice import PolicyChoice
from tao_coordinator.study.watches.watch import BoundedPlan, LatePlan

PRESSED = replace(SMALL, workers=8, pools=(40_000,))


class Bench:
    """One backend that holds one session; the first runs, the others are paused."""

    def __init__(self, *prompts: int) -> None:
        self.seen: list[LatePlan | BoundedPlan] = []
        self.policy = LateTaoPaper(
            PaperPredictor(), TaoPaperParameters(), decide, plan_s=0.5, told=self.seen.append
        )
        self.engine = Engine(Parameters(), self.policy)
        added = BackendAdded(backend_id="b0", base_url="http://b0", capacity_scale=1.0)
        self.engine.step(0.0, [added, sample(20_000)])
        for number, tokens in enumerate(prompts):
            asked = TurnRequested(
                request_id=f"r{number}", session_id=f"s{number}", input_tokens=tokens
            )
            self.engine.step(0.0, [asked])

    @property
    def late(self) -> LatePlan:
        (plan,) = self.seen
        assert isinstance(plan, LatePlan)
        return plan


def sample(capacity_tokens: int) -> BackendSampled:
    return BackendSampled(
        backend_id="b0", capacity_tokens=capacity_tokens, running=0, waiting=0, kv_usage_ratio=0.0
    )


def test_a_plan_is_carried_out_when_it_is_ready_and_not_before() -> None:
    bench = Bench(15_000, 9_000, 8_000)
    bench.engine.step(1.1, [SessionEnded(session_id="s0")])  # a tick: both fit now
    assert not bench.seen and len(bench.engine.state.held) == 2
    bench.engine.step(1.3, [sample(20_000)])
    assert not bench.seen
    bench.engine.step(1.7, [sample(20_000)])
    assert bench.late.planned.tolist() == bench.late.carried_out.tolist() == [0, 0]
    assert not bench.engine.state.held


def test_the_longest_prefix_that_still_fits_goes_the_most_valuable_first() -> None:
    bench = Bench(15_000, 9_000, 8_000)
    bench.engine.step(1.1, [SessionEnded(session_id="s0")])
    bench.engine.step(1.7, [sample(12_000)])
    assert bench.late.planned.tolist() == [0, 0]
    assert bench.late.carried_out.tolist() == [0, -1]  # by tokens: neither has credit
    assert bench.late.live.budgets.tolist() == [12_000]
    assert [turn.session.key.session_id for turn in bench.engine.state.held.values()] == ["s2"]


def test_a_plan_with_a_session_that_is_gone_is_dropped_and_newcomers_are_in_the_picture() -> None:
    bench = Bench(15_000, 9_000, 8_000)
    bench.engine.step(1.1, [SessionEnded(session_id="s0")])
    bench.engine.step(1.2, [SessionEnded(session_id="s1")])
    asked = TurnRequested(request_id="r9", session_id="s9", input_tokens=7_000)
    bench.engine.step(1.7, [asked])
    late = bench.late
    assert late.planned.tolist() == [0, 0, -1]
    assert late.carried_out.tolist() == [-1, -1, -1]
    assert late.then.eligible.ravel().tolist() == [True, True, False]
    assert late.live.eligible.ravel().tolist() == [False, True, True]
    assert late.live.tokens.tolist() == [9_000, 8_000, 7_000]


@pytest.mark.parametrize("arm", ["tao-paper:plan_s=0.5", "tao-paper@0.9:plan_s=1.5", "tao"])
def test_the_bound_holds_in_whole_runs(arm: str) -> None:
    cell = replace(PRESSED, policy=PolicyChoice.parse(arm), plan_s=0.5, watch="asynchrony")
    found = run_cell(cell).measures
    assert found["unfinished"] == 0
    assert found["late_plans"] >= 10
    assert found["violated_credit"] == 0.0
    assert found.get("violated_value_with_jumps", 0.0) == 0.0
    assert found["bound_loss_tokens"] <= found["bound_tokens"] + 1e-9


def test_without_delay_nearly_nothing_is_lost() -> None:
    """A plan is then carried out in the step that made it, unless nobody waits in that step."""
    prompt = run_cell(replace(PRESSED, policy=PolicyChoice("tao-paper")))
    policy = PolicyChoice.parse("tao-paper:plan_s=0")
    late = run_cell(replace(PRESSED, policy=policy, watch="asynchrony"))
    late_s, prompt_s = (np.mean(list(r.tasks_s.values())) for r in (late, prompt))
    assert late_s == pytest.approx(prompt_s, rel=0.05)
    assert late.measures["bound_loss_tokens"] <= 0.05 * late.measures["bound_best_tokens"]
