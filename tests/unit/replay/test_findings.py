"""What a replay concludes, from made-up results whose answer is known."""

import json
from pathlib import Path

import pytest
from replay_traces import settings, write_trace

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.replay import page
from tao_coordinator.replay.findings import Findings, find
from tao_coordinator.replay.plan import ReplayPlan, make_plan
from tao_coordinator.study.cell import CellResult
from tao_coordinator.study.policy_choice import PolicyChoice

Latencies = dict[tuple[str, int], float]
"""Mean task latency by arm and number of backends."""


@pytest.fixture
def plan(tmp_path: Path) -> ReplayPlan:
    policies = (PolicyChoice("round-robin"), PolicyChoice("tao"), PolicyChoice("thunderagent"))
    trace = write_trace(tmp_path / "<script>&t.jsonl")
    return make_plan(settings(trace, num_backends=3, capacity_tokens=12_288, policies=policies))


def findings(plan: ReplayPlan, latencies: Latencies, spread: float = 0.1) -> Findings:
    results = [
        CellResult(
            cell.cell_id,
            {"task_s_mean": latencies[cell.arm, cell.num_backends], "sessions": 4.0},
            {
                str(n): latencies[cell.arm, cell.num_backends] * (1 + spread * (n - 1.5))
                for n in range(4)
            },
            [[0.0] * 9, [60.0] * 9],
        )
        for cell in plan.cells
    ]
    return find(plan, results)


BETTER: Latencies = {
    ("tao", 3): 100.0, ("tao", 2): 199.0, ("tao", 1): 400.0,
    ("thunderagent", 3): 200.0, ("thunderagent", 2): 300.0, ("thunderagent", 1): 900.0,
    ("round-robin", 3): 500.0, ("round-robin", 2): 900.0, ("round-robin", 1): 2000.0,
}  # fmt: skip


def test_a_win_is_said_with_what_it_saves(plan: ReplayPlan) -> None:
    first, saved, router, saved_too = findings(plan, BETTER).sentences
    assert "100 s on average, 50 % less than under thunderagent" in first
    assert saved == (
        "With tao 2 of 3 backends give the latency of thunderagent on all 3: 1 could be saved."
    )
    assert "Against round-robin, which only routes (500 s per task), tao takes 80 % less" in router
    assert "With tao 1 of 3 backends gives the latency of round-robin" in saved_too


def test_a_loss_is_said_as_a_loss(plan: ReplayPlan) -> None:
    worse = {**BETTER, ("tao", 3): 250.0}
    assert findings(plan, worse).sentences[0].startswith("thunderagent is better here: 200 s")


def test_what_may_be_chance_is_called_so(plan: ReplayPlan) -> None:
    close = {**BETTER, ("tao", 3): 201.0}
    results = findings(plan, close)
    arm = next(arm for arm in results.arms if arm.arm == "thunderagent")
    assert arm.against is not None
    # Paired sessions that are all alike leave no doubt about half a percent; the sign counts.
    assert arm.against.high < 1.0
    assert "better here" in results.sentences[0]


def test_one_lucky_small_fleet_saves_nothing(plan: ReplayPlan) -> None:
    """Two backends are too slow; that one is quick by chance does not count."""
    lucky = {**BETTER, ("tao", 2): 450.0, ("tao", 1): 150.0}
    assert "tao needs all 3 backends too for the latency of thunderagent on 3." in (
        findings(plan, lucky).sentences
    )


def test_what_any_policy_would_save_is_not_said_of_tao(plan: ReplayPlan) -> None:
    idle = {**BETTER, ("thunderagent", 2): 203.0, ("tao", 2): 150.0}
    assert findings(plan, idle).sentences[1] == (
        "2 of 3 backends give that latency under thunderagent too: 1 could be saved without tao."
    )
    # One less with tao is tao's doing.
    with_one_less = {**idle, ("tao", 1): 190.0}
    assert "With tao 1 of 3" in findings(plan, with_one_less).sentences[1]


def test_difference_too_small_to_be_seen_in_seconds_is_said_in_percent(plan: ReplayPlan) -> None:
    close = {**BETTER, ("tao", 3): 200.4, ("round-robin", 3): 200.6}
    first, *_, router = (s for s in findings(plan, close).sentences if "could" not in s)
    assert first == (
        "thunderagent is better here: 200 s per task on average, 0.2 % less than under tao (200 s)."
    )
    assert router == "Against round-robin, which only routes (201 s per task), tao takes as long."


def test_policy_under_which_nothing_ends_is_an_error(plan: ReplayPlan) -> None:
    results = [CellResult(cell.cell_id, {"unfinished": 4.0}) for cell in plan.cells]
    with pytest.raises(ConfigurationError, match="not one session"):
        find(plan, results)


def test_page_needs_nothing_but_itself_and_hostile_names_stay_text(plan: ReplayPlan) -> None:
    text = page.html(findings(plan, BETTER), "tao replay '</code><script>'")
    assert "src=" not in text and "href=" not in text and "@import" not in text
    assert "<script" not in text
    assert text.count("<svg") == 2 * 5
    assert "50 % less than under thunderagent" in text


def test_json_is_plain(plan: ReplayPlan) -> None:
    facts = json.loads(json.dumps(findings(plan, BETTER).to_json(), allow_nan=False))
    assert facts["policies"]["thunderagent"]["task_ratio_to_tao"]["value"] == pytest.approx(2.0)
    assert facts["policies"]["tao"]["task_s_by_backends"]["2"] == 199.0


def test_one_session_proves_nothing(plan: ReplayPlan) -> None:
    results = [
        CellResult(cell.cell_id, {"sessions": 1.0}, {"0": 100.0 + (cell.arm != "tao")})
        for cell in plan.cells
    ]
    found = find(plan, results)
    assert "no difference can be told apart from chance" in found.sentences[0]
    facts = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert facts["policies"]["thunderagent"]["task_ratio_to_tao"]["low"] is None
    assert "nan" not in page.html(found, "tao replay")
