import json
from dataclasses import replace

import pytest
from study_cells import SMALL

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.simulation.fleet import BLOCK_SIZE
from tao_coordinator.simulation.load import OpenLoop
from tao_coordinator.study.cell import CellResult, run_cell, run_cell_fully
from tao_coordinator.study.policy_choice import PolicyChoice


def test_id_is_what_determines_the_run_and_nothing_else() -> None:
    shown = replace(SMALL, panel="other", arm="x", x=3.0, has_fixed_end=True)
    assert shown.cell_id == SMALL.cell_id
    others = {
        replace(SMALL, seed=2).cell_id,
        replace(SMALL, told_ratio=1.3).cell_id,
        replace(SMALL, watch="snapshots").cell_id,
        replace(SMALL, plan_s=0.5).cell_id,
        replace(SMALL, policy=PolicyChoice("tao", 0.9)).cell_id,
        replace(SMALL, workload=replace(SMALL.workload, long_tool_share=0.1)).cell_id,
    }
    assert len(others | {SMALL.cell_id}) == 7


def test_result_survives_its_file_format() -> None:
    result = run_cell(SMALL)
    again = CellResult.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    assert len(result.tasks_s) == 8
    for rubbish in ("", "{", "[]", "{}", '{"measures": 3}', "null"):
        with pytest.raises(ValueError):  # noqa: PT011 - JSON's own message or ours
            CellResult.from_json(rubbish)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeline": "abc"},
        {"timeline": [[0.0, 1.0]]},
        {"timeline": [["0"] * 10]},
        {"timeline": {"a": [0.0] * 10}},
        {"tasks_s": 5},
        {"tasks_s": {"0": "1"}},
        {"wall_s": "x"},
        {"wall_s": None},
        {"series": 3},
        {"series": {"gains": 3}},
        {"series": {"gains": [[1.0, 2.0], [1.0]]}},
        {"series": {"gains": [["a"]]}},
        {"measures": {"x": "1"}},
        {"measures": {"x": True}},
        {"measures": [["x", 1.0]]},
        {"cell_id": None},
        {"more": 1},
    ],
)
def test_result_of_another_shape_is_damaged(wrong: dict[str, object]) -> None:
    """It would fail in the report, after hours of other runs."""
    facts: dict[str, object] = {
        "cell_id": "0123456789abcdef0123",
        "measures": {"x": 1, "y": None},
        "tasks_s": {"0": 5},
        "timeline": [[0.0] * 10],
        "series": {"gains": [[1.0, 2.0]], "none": []},
        "wall_s": 1,
    }
    assert CellResult.from_json(json.dumps(facts)).tasks_s == {"0": 5.0}
    of_old = {name: facts[name] for name in ("cell_id", "measures")}
    assert CellResult.from_json(json.dumps(of_old)).series == {}
    with pytest.raises(ValueError, match="no cell result"):
        CellResult.from_json(json.dumps(facts | wrong))


def test_workers_follow_from_the_pressure() -> None:
    """N footprints are the pressure times the pools without the shared prefix."""
    cell = replace(SMALL, workers=None, pressure=2.0, pools=(200_000, 100_000))
    room = 300_000 - 2 * cell.workload.shared_tokens()
    number = cell.num_workers()
    assert abs(number * cell.workload.footprint_tokens() / room - 2.0) < 0.1
    with pytest.raises(ConfigurationError, match="workers or a pressure"):
        replace(cell, pressure=None).num_workers()


def test_where_time_went_adds_up_to_the_task() -> None:
    result, record = run_cell_fully(replace(SMALL, workers=8, pools=(40_000,)))
    parts = sum(v for k, v in result.measures.items() if k.startswith("per_session_"))
    tasks = [row.ended_s - row.started_s for row in record.sessions]
    assert parts == pytest.approx(sum(tasks) / len(tasks), rel=1e-6)
    assert result.measures["task_s_mean"] == pytest.approx(sum(tasks) / len(tasks))
    assert result.measures["per_session_hold_s"] > 0.0


def test_measures_agree_with_sums_over_the_turns() -> None:
    result, record = run_cell_fully(SMALL)
    prompt = sum(turn.input_tokens for turn in record.turns)
    cached = sum(turn.cached_tokens for turn in record.turns)
    assert result.measures["hit_rate"] == pytest.approx(cached / prompt)
    waits = sorted(turn.first_token_s - turn.asked_s for turn in record.turns)
    assert result.measures["ttft_s_mean"] == pytest.approx(sum(waits) / len(waits))
    good = sum(wait <= 5.0 for wait in waits) / len(waits)
    assert result.measures["goodput_5s"] == pytest.approx(good)
    assert result.measures["decision_ms_p99"] > 0.0


def test_without_pressure_the_credit_is_what_is_found() -> None:
    """Every call finds its whole context: prediction and cache differ by rounding and replies."""
    assert run_cell(replace(SMALL, workers=1)).measures["credit_error"] < 0.05


def test_working_set_is_what_live_sessions_hold() -> None:
    """Two moments by hand: after the first replies, contexts are prompt and reply."""
    result, record = run_cell_fully(replace(SMALL, workers=1, sessions=1))
    script = SMALL.workload.sessions(1, SMALL.seed)[0]
    for moment in record.timeline:
        done = sum(turn.finished_s <= moment.time_s for turn in record.turns)
        if 0 < done < len(script.turns):
            latest = script.turns[done - 1]
            context = latest.input_tokens + latest.output_tokens - script.shared_tokens
            assert moment.context_tokens == context
    assert 0.0 < result.measures["working_set"] < 0.2


def test_recorded_arrivals_are_kept_and_missing_ones_refused() -> None:
    scripts = SMALL.workload.sessions(3, 1)
    cell = replace(SMALL, as_arrived=True, workers=None)
    arrived = [replace(s, arrival_s=t) for s, t in zip(scripts, (50.0, 20.0, 90.0), strict=True)]
    assert cell.load(arrived) == OpenLoop(arrivals_s=(0.0, 30.0, 70.0))
    cut = replace(cell, quiet_s_max=35.0)
    assert cut.load(arrived) == OpenLoop(arrivals_s=(0.0, 30.0, 65.0))
    with pytest.raises(ConfigurationError, match="does not tell when"):
        cell.load([*arrived, scripts[0]])


def test_plans_of_tao_come_with_their_certificates() -> None:
    """Sessions that all fit somewhere are proved to be placed best; the others need a search."""
    found = run_cell(replace(SMALL, workers=8, pools=(40_000,))).measures
    assert 0.0 < found["certified_share"] <= 1.0
    assert 0.0 <= found["plan_gap_mean"] <= found["plan_gap_max"]
    assert (found["plan_gap_max"] == 0.0) == (found["certified_share"] == 1.0)
    other = run_cell(replace(SMALL, policy=PolicyChoice("cache-aware"))).measures
    assert "certified_share" not in other


def test_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown engine 'tpu'"):
        run_cell(replace(SMALL, engine="tpu"))


def test_window_counts_the_turns_that_were_asked_for_within_it() -> None:
    cell = replace(SMALL, sessions=40, warm_s=100.0, end_s=300.0, is_window=True)
    result, record = run_cell_fully(cell)
    within = [turn for turn in record.turns if turn.asked_s >= 100.0]
    assert 0 < len(within) < len(record.turns)
    assert max(turn.finished_s for turn in within) <= 300.0
    measures = result.measures
    assert measures["turns"] == len(within)
    output = sum(turn.output_tokens for turn in within)
    assert measures["output_tokens_per_s"] == pytest.approx(output / 200.0, rel=0.01)
    waits = [turn.first_token_s - turn.asked_s for turn in within]
    assert measures["ttft_s_mean"] == pytest.approx(sum(waits) / len(waits))
    assert record.num_unfinished > 0
    assert measures["unfinished"] == 0.0, "a window is cut on purpose"


def test_window_in_which_no_session_ends_is_measured_all_the_same() -> None:
    result, record = run_cell_fully(replace(SMALL, end_s=40.0, is_window=True))
    assert record.turns and not record.sessions
    assert result.measures["turns"] == len(record.turns)
    assert result.measures["seats_released"] == 0.0


def test_without_a_tier_its_settings_change_no_id() -> None:
    assert replace(SMALL, tells_host_tier=False, offloads_in_tools=True).cell_id == SMALL.cell_id
    tiered = replace(SMALL, host_ratio=2.0)
    others = {replace(tiered, tells_host_tier=False), replace(tiered, offloads_in_tools=True)}
    assert len({cell.cell_id for cell in (SMALL, tiered, *others)}) == 4


def test_rules_of_the_engine_change_the_id_only_where_they_are_set() -> None:
    """Results from before there were such rules count still."""
    limited = replace(SMALL, max_sequences=8)
    whole = replace(SMALL, evicts_whole=True)
    assert len({cell.cell_id for cell in (SMALL, limited, whole)}) == 3
    # Computed before either rule existed.
    assert SMALL.cell_id == "8e03b0991cd14151b835"


def test_engine_runs_no_more_calls_than_its_limit() -> None:
    """Eight agents at once: without the limit more than two run."""
    plain = replace(SMALL, workers=8, policy=PolicyChoice("round-robin"))
    _, free = run_cell_fully(plain)
    _, limited = run_cell_fully(replace(plain, max_sequences=2))
    assert max(moment.running for moment in free.timeline) > 2
    assert max(moment.running for moment in limited.timeline) == 2
    assert len(limited.sessions) == 8


def test_hit_rate_of_the_middle_third_is_of_the_turns_looked_up_in_it() -> None:
    result, record = run_cell_fully(replace(SMALL, workers=8, pools=(40_000,)))
    end_s = record.timeline[-1].time_s
    middle = [m for m in record.timeline if end_s / 3 <= m.time_s <= 2 * end_s / 3]
    looked_up = [
        turn for turn in record.turns if middle[0].time_s < turn.admitted_s <= middle[-1].time_s
    ]
    prompt = sum(turn.input_tokens for turn in looked_up)
    cached = sum(turn.cached_tokens for turn in looked_up)
    assert result.value("hit_rate_middle") == pytest.approx(cached / prompt, abs=0.01)
    assert "hit_rate_middle" not in result.measures, "results on disk stay what they are"
    assert replace(result, timeline=[]).value("hit_rate_middle") is None


def test_host_tier_is_a_multiple_of_each_pool() -> None:
    specs = replace(SMALL, host_ratio=2.0, pools=(50_000, 80_000)).specs
    tiers = [spec.host_tier for spec in specs]
    assert [tier and tier.tokens for tier in tiers] == [100_000, 160_000]
    assert [tier and tier.is_written_through for tier in tiers] == [True, True]
    assert all(spec.host_tier is None for spec in SMALL.specs)


def test_tier_that_is_told_of_is_used() -> None:
    """One pool for half of the contexts: whoever lost its cache has it loaded."""
    small = replace(SMALL, workers=8, sessions=16, pools=(60_000,))
    without, _ = run_cell_fully(small)
    with_tier, record = run_cell_fully(replace(small, host_ratio=4.0))
    assert record.counters.get("granted_reload", 0) > 0
    assert with_tier.measures["hit_rate"] > without.measures["hit_rate"]
    assert with_tier.measures["task_s_mean"] < without.measures["task_s_mean"]


def test_without_sub_agents_ids_are_as_before_there_were_any() -> None:
    """Results of long runs are found again by this id."""
    assert SMALL.cell_id == "8e03b0991cd14151b835"
    forked = replace(SMALL, workload=replace(SMALL.workload, children=3))
    assert forked.cell_id != SMALL.cell_id


def test_first_call_of_a_sub_agent_finds_its_parents_prompt() -> None:
    """One pool that holds everybody: all but the last block of what they share is cached."""
    cell = replace(SMALL, workers=2, workload=replace(SMALL.workload, children=3))
    scripts = cell.workload.sessions(cell.sessions, cell.seed)
    _, record = run_cell_fully(cell)
    firsts = {turn.session: turn.cached_tokens for turn in record.turns if turn.turn == 0}
    for number, script in enumerate(scripts):
        if script.parent_session_id is None:
            assert firsts[number] == 0
        else:
            assert script.shared_tokens - firsts[number] < 2 * BLOCK_SIZE
