"""The product's simulated fleet: time, load, faults, and what agents tell the engine."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tao_coordinator.core.effects import Effect
from tao_coordinator.core.events import Event, LeaseReleased, ToolEnded, ToolStarted, TurnOutcome
from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript
from tao_coordinator.simulation.engine_constants import PRESETS
from tao_coordinator.simulation.fleet import BackendSpec, Fleet, FleetChange, FleetSettings
from tao_coordinator.simulation.load import ClosedLoop, OpenLoop
from tao_coordinator.simulation.synthetic import draw_sessions

QWEN = PRESETS["qwen3-32b-bf16-tp2"]


def settings(
    num_backends: int = 2, pool: int = 120_000, workers: int = 12, **more: object
) -> FleetSettings:
    known = FleetSettings(
        backends=(BackendSpec(constants=QWEN, capacity_tokens=pool),) * num_backends,
        load=ClosedLoop(workers=workers),
        check_every=7,
    )
    return replace(known, **more)


def test_one_session_alone_takes_what_the_step_law_says() -> None:
    """Two turns: prompts in one chunk, replies in steps of one sequence, a tool between."""
    tool = ToolScript(name="bash", duration_s=3.0)
    turns = (
        TurnScript(input_tokens=6_400, output_tokens=11, tools=(tool,)),
        TurnScript(input_tokens=8_000, output_tokens=21, kept_tokens=6_411),
    )
    session = SessionScript(session_id="s", turns=turns)
    record = Fleet(settings(1, workers=1), [session], "tao").run()

    def prefill_ms(new: int, prefix: int) -> float:
        law = QWEN.prefill_derate * QWEN.prefill_per_token_ms * new
        attention = QWEN.prefill_derate * QWEN.prefill_per_attention_ms
        return max(QWEN.prefill_base_ms, law) + attention * new * (prefix + new / 2)

    def decode_ms(prompt: int, output: int) -> float:
        one = QWEN.decode_base_ms + QWEN.decode_per_sequence_ms
        return sum(
            one + QWEN.decode_per_context_token_ms * (prompt + done) for done in range(output - 1)
        )

    # 6,400 tokens are 100 blocks; 11 more do not fill another one.
    spent_ms = prefill_ms(6_400, 0) + decode_ms(6_400, 11)
    spent_ms += prefill_ms(1_600, 6_400) + decode_ms(8_000, 21)
    (row,) = record.sessions
    assert row.ended_s - row.started_s == pytest.approx(3.0 + spent_ms / 1e3, rel=1e-6)
    assert [turn.cached_tokens for turn in record.turns] == [0, 6_400]
    assert record.turns[1].asked_s == pytest.approx(record.turns[0].finished_s + 3.0)


@pytest.mark.parametrize("policy", ["tao", "thunderagent", "tao-paper", "sticky-least-loaded"])
def test_everybody_is_served_and_the_same_input_gives_the_same_run(policy: str) -> None:
    sessions = draw_sessions("swe-lite", 30, 1)
    first = Fleet(settings(), sessions, policy).run()
    assert len(first.sessions) == 30
    assert len(first.turns) == sum(len(session.turns) for session in sessions)
    assert first.num_unfinished == 0
    again = Fleet(settings(), sessions, policy).run()
    assert (first.turns, first.sessions) == (again.turns, again.sessions)


def test_the_engine_hears_of_a_duration_only_when_it_has_passed() -> None:
    """Also of calls that start later in the phase, overlap, or outlast the next turn."""
    tools = (
        ToolScript(name="a", duration_s=5.0, timeout_s=60.0),
        ToolScript(name="b", offset_s=2.0, duration_s=3.0),
        ToolScript(name="c", offset_s=1.0, duration_s=1.0),
        ToolScript(name="d", duration_s=50.0, background=True),
    )
    turn = TurnScript(input_tokens=2_000, output_tokens=10, tools=tools, gap_s=1.5)
    last = TurnScript(input_tokens=3_000, output_tokens=400, kept_tokens=2_010)
    session = SessionScript(session_id="s", turns=(turn, last, replace(last, tools=tools), last))
    fleet = Fleet(settings(1, workers=1), [session], "tao")
    started: dict[tuple[str, str], float] = {}
    spans: list[tuple[str, float, float]] = []

    def watch(now_s: float, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        for event in events:
            if isinstance(event, ToolStarted):
                started[event.call_id, event.name] = now_s
                assert event.remaining_s is None
            elif isinstance(event, ToolEnded):
                begin_s = started[event.call_id, event.name]
                if event.call_id.startswith("1."):  # after the first reply
                    spans.append((event.name, begin_s, now_s))
                assert event.duration_s == pytest.approx(now_s - begin_s)

    fleet.watch = watch
    record = fleet.run()
    reply_s = record.turns[0].finished_s
    first = {name: (begin - reply_s, end - reply_s) for name, begin, end in spans}
    assert first["a"] == pytest.approx((0.0, 5.0))
    assert first["b"] == pytest.approx((2.0, 5.0))
    assert first["c"] == pytest.approx((1.0, 2.0))
    assert record.turns[1].asked_s - reply_s == pytest.approx(6.5)


def test_calls_on_a_backend_that_dies_are_sent_again_and_everybody_finishes() -> None:
    sessions = draw_sessions("swe-lite", 30, 2)
    outcomes: list[TurnOutcome] = []

    def watch(now_s: float, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        outcomes.extend(e.outcome for e in events if isinstance(e, LeaseReleased))

    changes = (
        FleetChange(at_s=100.0, backend=1, what="fail"),
        FleetChange(at_s=200.0, backend=1, what="add"),
    )
    fleet = Fleet(settings(changes=changes), sessions, "tao")
    fleet.watch = watch
    record = fleet.run()
    assert len(record.sessions) == 30
    assert record.num_errors == outcomes.count(TurnOutcome.ERROR) > 0
    on_second = [turn.granted_s for turn in record.turns if turn.backend == 1]
    assert not any(104.0 < granted_s < 200.0 for granted_s in on_second)
    assert max(on_second) > 200.0
    # What a dead engine had counted stays counted.
    for name in ("prompt_tokens", "cached_tokens", "generated_tokens"):
        counts = [getattr(moment, name) for moment in record.timeline]
        assert counts == sorted(counts)


def test_a_backend_that_joins_is_used_and_a_drained_one_is_not() -> None:
    sessions = draw_sessions("swe-lite", 40, 3)
    changes = (
        FleetChange(at_s=60.0, backend=1, what="add"),
        FleetChange(at_s=120.0, backend=0, what="drain"),
    )
    record = Fleet(settings(changes=changes), sessions, "tao").run()
    assert len(record.sessions) == 40
    used = {(turn.backend, turn.granted_s) for turn in record.turns}
    assert min(at for backend, at in used if backend == 1) >= 60.0
    assert max(at for backend, at in used if backend == 0) <= 120.0


def test_open_loop_starts_by_the_clock() -> None:
    sessions = draw_sessions("swe-lite", 5, 4)
    times = (0.0, 10.0, 10.0, 500.0)
    record = Fleet(settings(load=OpenLoop(arrivals_s=times)), sessions, "tao").run()
    assert sorted(row.started_s for row in record.sessions) == list(times)


def test_a_cut_run_says_who_was_not_finished() -> None:
    sessions = draw_sessions("swe", 40, 5)
    record = Fleet(settings(end_s=200.0), sessions, "round-robin").run()
    assert record.end_s <= 200.0
    assert len(record.sessions) + record.num_unfinished == 40
    assert record.num_unfinished > 0


def test_a_session_that_no_pool_can_hold_fails_and_the_others_go_on() -> None:
    """One prompt is refused by the coordinator, one prompt with its reply by the engine."""
    lengths = ((500_000, 5), (119_000, 5_000))
    huge = [
        SessionScript(
            session_id=f"huge {prompt}",
            turns=(TurnScript(input_tokens=prompt, output_tokens=output),),
        )
        for prompt, output in lengths
    ]
    record = Fleet(settings(), [*huge, *draw_sessions("swe-lite", 6, 6)], "tao").run()
    assert [row.failed for row in record.sessions].count(True) == 2
    assert len(record.sessions) == 8


def test_refused_sessions_come_again_and_keep_counting_their_wait() -> None:
    base = settings(1, pool=60_000, workers=20)
    parameters = replace(base.parameters, new_wait_s_max=60.0)
    record = Fleet(
        replace(base, parameters=parameters), draw_sessions("swe-lite", 24, 7), "tao"
    ).run()
    assert record.num_refused > 0
    assert len(record.sessions) == 24
    first = [turn.granted_s - turn.asked_s for turn in record.turns if turn.turn == 0]
    assert max(first) > 60.0


def test_wrong_changes_are_refused() -> None:
    with pytest.raises(ValueError, match="not 'explode'"):
        FleetChange(at_s=1.0, backend=0, what="explode")
