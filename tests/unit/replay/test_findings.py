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


def findings(
    plan: ReplayPlan,
    latencies: Latencies,
    spread: float = 0.1,
    measures: dict[str, dict[str, float]] | None = None,
) -> Findings:
    """What is concluded; `measures` by arm are had besides the latency."""
    results = [
        CellResult(
            cell.cell_id,
            {
                "task_s_mean": latencies[cell.arm, cell.num_backends],
                "sessions": 4.0,
                **(measures or {}).get(cell.arm, {}),
            },
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
        "Fewer backends: tao on 2 keeps up with thunderagent on all 3 (199 s against 200 s per "
        "task), so going from thunderagent to tao could save 1 of 3."
    )
    assert "Against round-robin, which only routes (500 s per task), tao takes 80 % less" in router
    assert saved_too == (
        "Fewer backends: tao on 1 keeps up with round-robin on all 3 (400 s against 500 s per "
        "task), so going from round-robin to tao could save 2 of 3."
    )


def test_a_saving_names_the_others_that_would_save_as_much(plan: ReplayPlan) -> None:
    alike = {**BETTER, ("thunderagent", 1): 499.0}
    assert (
        findings(plan, alike)
        .sentences[-1]
        .endswith("could save 2 of 3. thunderagent could save as many.")
    )


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
    assert (
        "Fewer backends: tao needs all 3 to keep up with thunderagent on all 3, so going from "
        "thunderagent to tao saves none."
    ) in findings(plan, lucky).sentences


def test_what_any_policy_would_save_is_not_said_of_tao(plan: ReplayPlan) -> None:
    idle = {**BETTER, ("thunderagent", 2): 203.0, ("tao", 2): 150.0}
    assert findings(plan, idle).sentences[1] == (
        "Fewer backends: thunderagent on 2 keeps up with itself on all 3 (203 s against 200 s per "
        "task), so 1 of 3 could be saved without tao."
    )
    # One less with tao is tao's doing.
    with_one_less = {**idle, ("tao", 1): 190.0}
    assert "tao on 1 keeps up with thunderagent" in findings(plan, with_one_less).sentences[1]


def test_difference_too_small_to_be_seen_in_seconds_is_said_in_percent(plan: ReplayPlan) -> None:
    close = {**BETTER, ("tao", 3): 200.4, ("round-robin", 3): 200.6}
    first, *_, router = (s for s in findings(plan, close).sentences if "Fewer" not in s)
    assert first == (
        "thunderagent is better here: 200 s per task on average, 0.2 % less than under tao (200 s)."
    )
    assert router == "Against round-robin, which only routes (201 s per task), tao takes as long."


def rates(**per_s: tuple[float, float]) -> dict[str, dict[str, float]]:
    """Tokens per second by arm: until the last start, and of the whole run."""
    return {
        arm.replace("_", "-"): {"output_tokens_per_s": busy, "output_tokens_per_s_all": whole}
        for arm, (busy, whole) in per_s.items()
    }


def test_throughput_is_that_of_the_whole_run(plan: ReplayPlan) -> None:
    """Until the last start a batch looks quick that is slow to its end."""
    measures = rates(tao=(400, 234), thunderagent=(517, 252), round_robin=(611, 199))
    found = findings(plan, BETTER, measures=measures)
    assert found.sentences[1] == (
        "Over the whole run the fleet puts out 234 tokens/s under tao, 7 % less than under "
        "thunderagent, the most of the others (252): one run each, without an interval."
    )
    text = page.html(found, "tao replay")
    assert ">234</td>" in text and "<td class=best>252</td>" in text
    assert ">517</td>" not in text and ">611</td>" not in text
    facts = found.to_json()["policies"]
    assert isinstance(facts, dict)
    assert facts["tao"]["measures"]["output_tokens_per_s"] == 400


@pytest.mark.parametrize(("whole", "words"), [(300, "20 % more than"), (250, "as many as")])
def test_throughput_is_compared_either_way(plan: ReplayPlan, whole: float, words: str) -> None:
    measures = rates(tao=(400, whole), thunderagent=(517, 250), round_robin=(611, 199))
    assert f"{words} under thunderagent" in findings(plan, BETTER, measures=measures).sentences[1]


def test_throughput_of_several_seeds_is_a_mean(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.jsonl")
    three = make_plan(settings(trace, workers=2, seeds=(1, 2, 3)))
    measures = rates(tao=(400, 234)) | {"tao-paper@0.9": {"output_tokens_per_s_all": 252.0}}
    found = findings(three, {("tao", 1): 1.0, ("tao-paper@0.9", 1): 2.0}, measures=measures)
    assert found.sentences[1].endswith("(252): means of 3 runs each, without an interval.")


def test_rate_of_arrivals_is_no_throughput(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    trace.write_text("".join(json.dumps(row | {"timestamp": 7}) + "\n" for row in rows))
    measures = rates(tao=(400, 234)) | {"tao-paper@0.9": {"output_tokens_per_s_all": 252.0}}
    latencies = {("tao", 1): 1.0, ("tao-paper@0.9", 1): 2.0}
    for more, is_told in (({"as_arrived": True}, False), ({"workers": 2}, True)):
        found = findings(make_plan(settings(trace, **more)), latencies, measures=measures)
        assert any("tokens/s" in sentence for sentence in found.sentences) == is_told


def test_working_set_is_told_as_asked_for_and_as_measured(plan: ReplayPlan) -> None:
    measures = {"tao": {"working_set": 0.62}, "round-robin": {"working_set": 0.91}}
    found = findings(plan, BETTER, measures=measures)
    assert found.working_set() == ("tao", 0.62)
    text = page.html(found, "tao replay")
    assert f"<b>{plan.pressure:.2f}</b>" in text and "<b>0.62</b>" in text
    assert "measured under tao" in text and "asked for" in text


def test_a_batch_is_not_taken_for_a_loop(tmp_path: Path) -> None:
    """Twice as many sessions as workers is the least that is not warned of."""
    trace = write_trace(tmp_path / "t.jsonl")
    for sessions, is_batch in ((5, True), (6, False)):
        few = make_plan(settings(trace, workers=3, sessions=sessions))
        found = findings(few, {("tao", 1): 1.0, ("tao-paper@0.9", 1): 2.0})
        assert bool(found.warnings) == is_batch
        assert found.to_json()["warnings"] == found.warnings
        text = page.html(found, "tao replay")
        assert ("a batch, not a loop" in text) == is_batch
        if is_batch:
            assert found.warnings[0].startswith("5 in all and 3 at a time are a batch")
            assert "--sessions 12" in found.warnings[0]


def test_more_workers_than_sessions_are_warned_of_by_what_was_asked_for(tmp_path: Path) -> None:
    """All start at once; with as many again as really ran, the next try would be warned of too."""
    trace = write_trace(tmp_path / "t.jsonl")
    few = make_plan(settings(trace, workers=30))
    found = findings(few, {("tao", 1): 1.0, ("tao-paper@0.9", 1): 2.0})
    assert "4 in all and 30 at a time" in found.warnings[0]
    assert "--sessions 120" in found.warnings[0]


def test_arrivals_are_no_batch(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    trace.write_text("".join(json.dumps(row | {"timestamp": 7}) + "\n" for row in rows))
    few = make_plan(settings(trace, as_arrived=True))
    assert findings(few, {("tao", 1): 1.0, ("tao-paper@0.9", 1): 2.0}).warnings == []


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
