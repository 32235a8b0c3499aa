"""`tao bench decision`: what it measures is what it says."""

import json

import pytest

from tao_coordinator.bench import decision, decision_references, decision_report
from tao_coordinator.bench.decision_problems import FAMILIES, dense, sparse
from tao_coordinator.cli import main
from tao_coordinator.scheduling.placement import solve


@pytest.mark.parametrize("family", FAMILIES)
def test_instances_are_functions_of_their_seed(family: str) -> None:
    one, same, other = dense(family, 3, 20, 4), dense(family, 3, 20, 4), dense(family, 4, 20, 4)
    assert (one.weights == same.weights).all()
    assert (one.credits == same.credits).all()
    assert (one.weights != other.weights).any() or (one.tokens != other.tokens).any()
    assert one.num_sessions == 20
    assert one.num_backends == 4


def test_each_family_has_what_it_is_named_for() -> None:
    assert not dense("allnew", 1, 40, 4).credits.any()
    assert (dense("hot", 1, 40, 4).credits[:, 1:] == 0).all()
    assert dense("aged", 1, 40, 4).classes.any()
    assert dense("card", 1, 40, 4).session_limits is not None
    assert not dense("inelig", 1, 40, 4).eligible.all()
    prefix = dense("prefix", 1, 40, 4).weights
    assert (prefix != prefix[:, :1]).any()
    product = dense("product", 1, 40, 4)
    assert product.ready.all()
    assert product.credits.max() < 60  # buckets of 2,048 tokens


def test_large_instances_have_each_pair_once() -> None:
    problem = sparse(1, 200, 30, home_shares=(1.0, 0.9, 0.9), new_share=0.1)
    pairs = list(
        zip(problem.credit_sessions.tolist(), problem.credit_backends.tolist(), strict=True)
    )
    assert len(pairs) == len(set(pairs))
    assert (problem.credits > 0).all()


def test_result_counts_every_instance_and_prints_every_group() -> None:
    settings = decision.Settings(
        num_instances=2, budget_s=0.05, families=("base",), with_large=False, with_milp=False
    )
    told: list[str] = []
    result = decision.run(settings, told.append)
    assert len(result.groups) == 6  # loaded and empty, three sizes each
    assert len(told) == 6
    for group in result.groups:
        assert group.num_instances == 2
        assert sum(group.rungs.values()) == 2
        assert 0 <= group.num_certified <= 2
        assert group.milp is None
        assert group.wall.p50_ms <= group.wall.p95_ms <= group.wall.max_ms
    assert json.loads(json.dumps(result.to_json()))["budget_s"] == 0.05
    lines = list(decision_report.lines(result))
    assert sum(line.startswith("base") for line in lines) == 6


def test_milp_reference_agrees_where_both_are_proved() -> None:
    if not decision_references.is_available():
        pytest.skip("scipy is not installed")
    problem = dense("multi3", 2, 15, 2)
    reference = decision_references.mixed_integer(problem, limit_s=10)
    assert reference.is_proved
    assert solve(problem).objective == reference.sums


def test_command_refuses_unknown_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "decision", "--family", "nonsense"]) == 2
    assert "no family 'nonsense'" in capsys.readouterr().err


def test_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--instances", "1", "--budget-ms", "20", "--family", "ktied"]
    assert main(["bench", "decision", *arguments, "--no-large", "--no-milp", "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert {group["family"] for group in groups} == {"ktied"}
    assert {group["is_empty"] for group in groups} == {False, True}
