"""The life of a turn: asked, held, granted, running, over; and everything that may cut it short."""

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core import ledger
from tao_coordinator.core import state as state_module
from tao_coordinator.core.effects import Grant, Hold, Reject, RejectReason
from tao_coordinator.core.events import (
    LeaseReleased,
    LeaseRenewed,
    PollEnded,
    PollStarted,
    SessionEnded,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import POLICIES, Engine
from tao_coordinator.scheduling.rivals.static_cap import StaticCap, StaticCapParameters

SMALL = 40_000
"""A pool that holds one 10k session with its growth reserve, not two."""


def test_first_turn_is_granted_at_once_and_tells_why() -> None:
    d = EngineDriver(100_000)
    grant = d.grants[d.ask("s")]
    assert (grant.backend_id, grant.base_url, grant.receipt.hold_s) == ("b0", "http://b0", 0.0)
    assert (grant.receipt.policy, grant.receipt.reason) == ("tao", "planned")
    assert grant.start_within_s == 5.0


def test_second_session_is_held_where_the_first_fills_the_budget() -> None:
    d = EngineDriver(SMALL)
    d.ask("s1")
    second = d.ask("s2")
    assert second not in d.grants
    assert d.holds[second].queue_position == 1
    assert d.holds[second].estimated_wait_s > 0


def test_held_turn_is_granted_when_the_first_session_ends() -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2", after_s=2.0)
    d.done(first, after_s=3.0)
    d.end("s1")
    grant = d.grants[second]
    assert grant.receipt.hold_s == pytest.approx(3.0)


def test_same_request_id_is_a_poll_and_has_one_lease_ever() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s")
    again = d.step(TurnRequested(request_id=request_id, session_id="s", input_tokens=10_000))
    assert isinstance(again[0], Grant)
    assert again[0].lease_id == d.grants[request_id].lease_id
    d.done(request_id)
    late = d.step(TurnRequested(request_id=request_id, session_id="s", input_tokens=10_000))
    assert isinstance(late[0], Reject)
    assert late[0].reason is RejectReason.LEASE_EXPIRED


def test_poll_of_a_held_turn_answers_hold_again() -> None:
    d = EngineDriver(SMALL)
    d.ask("s1")
    second = d.ask("s2")
    again = d.step(TurnRequested(request_id=second, session_id="s2", input_tokens=10_000))
    assert [type(effect) for effect in again] == [Hold]
    assert d.held_ids() == [second]


def test_caller_that_stops_polling_loses_its_place_after_the_grace() -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2")
    d.step(PollStarted(request_id=second))
    d.step(LeaseRenewed(lease_id=d.grants[first].lease_id))
    d.step(PollEnded(request_id=second), after_s=10.0)
    d.step(after_s=19.0)
    assert d.held_ids() == [second]
    d.step(after_s=1.5)
    assert d.held_ids() == []
    d.done(first)
    d.end("s1")
    assert second not in d.grants
    assert d.engine.observe(d.now_s).counters.abandoned == 1


def test_connected_caller_is_not_abandoned() -> None:
    d = EngineDriver(SMALL)
    d.ask("s1")
    second = d.ask("s2")
    d.step(PollStarted(request_id=second))
    d.step(after_s=30.0)
    assert d.engine.observe(d.now_s).counters.abandoned == 0
    assert second in d.grants


def test_abandoned_turn_is_never_granted() -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2")
    d.step(TurnAbandoned(request_id=second))
    d.done(first)
    d.end("s1")
    assert second not in d.grants


def test_undelivered_lease_is_taken_back_and_its_room_given_to_the_next() -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2")
    d.step(TurnAbandoned(request_id=first))
    assert second in d.grants


def test_abandoning_a_running_turn_changes_nothing() -> None:
    d = EngineDriver(SMALL)
    first = d.ask("s1")
    d.step(LeaseRenewed(lease_id=d.grants[first].lease_id))
    d.step(TurnAbandoned(request_id=first))
    assert d.engine.observe(d.now_s).backends[0].num_in_flight == 1


def test_lease_that_nobody_starts_is_lost_after_start_within() -> None:
    d = EngineDriver(SMALL)
    d.ask("s1")
    second = d.ask("s2")
    d.step(PollStarted(request_id=second))
    d.step(after_s=4.9)
    assert second not in d.grants
    d.step(after_s=1.1)
    assert second in d.grants
    assert d.engine.observe(d.now_s).counters.released == {"lost": 1}


def test_running_lease_needs_renewals_and_is_lost_after_silence() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s")
    lease_id = d.grants[request_id].lease_id
    d.step(LeaseRenewed(lease_id=lease_id), after_s=1.0)
    for _ in range(12):
        d.step(LeaseRenewed(lease_id=lease_id), after_s=30.0)
    assert d.engine.observe(d.now_s).backends[0].num_in_flight == 1
    d.step(after_s=61.0)
    assert d.engine.observe(d.now_s).backends[0].num_in_flight == 0
    d.step(LeaseRenewed(lease_id=lease_id))  # too late, and harmless
    d.step(LeaseReleased(lease_id=lease_id))
    assert d.engine.observe(d.now_s).counters.released == {"lost": 1}


def test_release_is_idempotent() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s")
    d.done(request_id)
    d.done(request_id)
    counters = d.engine.observe(d.now_s).counters
    assert counters.released == {"completed": 1}


@pytest.mark.parametrize("outcome", [TurnOutcome.ERROR, TurnOutcome.CANCELLED])
def test_failed_first_call_leaves_no_seat(outcome: TurnOutcome) -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2")
    d.done(first, outcome=outcome, input_tokens=None, output_tokens=None)
    assert second in d.grants


def test_failed_later_call_keeps_the_cache_that_was_there() -> None:
    d = EngineDriver(100_000)
    d.turn("s", 10_000, 100)
    request_id = d.ask("s", 10_500)
    d.done(request_id, outcome=TurnOutcome.ERROR, input_tokens=None, output_tokens=None)
    assert d.engine.observe(d.now_s).sessions[0].resident_tokens == 10_100
    assert d.reason_of(d.ask("s", 10_500)) == "resident"


def test_failed_call_does_not_restore_a_cache_that_was_evicted() -> None:
    d = EngineDriver(60_000, parameters=Parameters(growth_turns=0.0))
    d.turn("s1", 20_000)
    d.turn("s2", 30_000)
    d.turn("s2", 50_000)
    left = d.engine.state.backends["b0"].cache.resident_tokens(d.engine.state.of_id("s1")[0].key)
    assert left < 10_000
    d.end("s2")
    request_id = d.ask("s1", 20_200)
    d.done(request_id, outcome=TurnOutcome.ERROR, input_tokens=None, output_tokens=None)
    assert d.engine.observe(d.now_s).sessions[0].resident_tokens <= left


def test_session_end_cancels_its_held_turns_and_frees_its_seat() -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2")
    d.end("s2")
    assert d.rejects[second].reason is RejectReason.SESSION_ENDED
    d.end("s1")  # a call is running: it finishes first
    assert d.engine.observe(d.now_s).backends[0].num_in_flight == 1
    d.done(first)
    assert d.engine.observe(d.now_s).backends[0].num_seats == 0
    assert d.engine.observe(d.now_s).sessions == ()


def test_ended_session_id_may_come_back_as_a_new_session() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.end("s")
    assert d.turn("s") == "b0"
    assert d.engine.observe(d.now_s).sessions[0].turns == 1


def test_session_that_asks_again_after_its_end_is_not_over() -> None:
    d = EngineDriver(100_000)
    first = d.ask("s")
    d.end("s")  # its call still runs
    second = d.ask("s")
    d.done(first)
    d.done(second)
    (session,) = d.engine.observe(d.now_s).sessions
    assert session.seat_backend_id == "b0"
    assert session.turns == 2


def test_end_of_one_agent_leaves_the_other_alone() -> None:
    d = EngineDriver(100_000)
    d.done(d.ask("s", agent="main"))
    d.done(d.ask("s", agent="title"))
    d.step(SessionEnded(session_id="s", agent="title"))
    assert [s.agent for s in d.engine.observe(d.now_s).sessions] == ["main"]


def test_unknown_model_is_refused_and_names_what_is_served() -> None:
    d = EngineDriver(100_000, models=("qwen", "llama"))
    request_id = d.ask("s", model="gpt")
    assert d.rejects[request_id].reason is RejectReason.MODEL_NOT_SERVED
    assert "llama, qwen" in d.rejects[request_id].message
    assert d.ask("s", model="qwen") in d.grants


def test_prompt_larger_than_every_pool_is_refused_at_once_and_blocks_nobody() -> None:
    d = EngineDriver(20_000, 50_000)
    big = d.ask("big", 60_000)
    assert d.rejects[big].reason is RejectReason.TOO_LARGE
    assert "50000" in d.rejects[big].message
    assert d.ask("small", 1_000) in d.grants
    assert [s.session_id for s in d.engine.observe(d.now_s).sessions] == ["small"]


def test_no_backend_at_all_is_no_healthy_backend() -> None:
    d = EngineDriver()
    request_id = d.ask("s", model="qwen")
    assert d.rejects[request_id].reason is RejectReason.NO_HEALTHY_BACKEND
    assert "qwen" in d.rejects[request_id].message


def test_full_queue_rejects_with_an_estimate() -> None:
    d = EngineDriver(SMALL, parameters=Parameters(queue_limit=2))
    d.ask("s0")
    held = [d.ask(f"s{n}") for n in (1, 2)]
    refused = d.ask("s3")
    assert d.held_ids() == held
    assert d.rejects[refused].reason is RejectReason.QUEUE_FULL
    assert d.rejects[refused].retry_after_s is not None


def test_new_session_is_rejected_when_its_own_time_out_is_near() -> None:
    d = EngineDriver(SMALL)
    d.ask("s1")
    patient, hasty = d.ask("s2"), d.ask("s3", timeout_s=30.0)
    d.idle(24.0)
    assert hasty in d.held_ids()
    d.idle(2.0)
    assert d.rejects[hasty].reason is RejectReason.WAITED_TOO_LONG
    assert d.held_ids() == [patient]
    d.idle(900.0)
    assert d.rejects[patient].reason is RejectReason.WAITED_TOO_LONG


def first_in_line_refused(d: EngineDriver) -> tuple[str, str]:
    """Who runs, and who came 600 s after the one that is refused now."""
    running = d.ask("s1")
    early = d.ask("early")
    d.idle(600.0)
    later = d.ask("later")
    d.idle(301.0)
    assert d.rejects[early].reason is RejectReason.WAITED_TOO_LONG
    return running, later


def test_refused_session_that_comes_again_in_time_has_its_old_place() -> None:
    """Else, in a line longer than the limit, whoever waits longest is turned away for ever."""
    d = EngineDriver(SMALL)
    running, later = first_in_line_refused(d)
    again = d.ask("early")
    assert d.held_ids() == [again, later]
    d.done(running)
    d.end("s1")
    assert again in d.grants
    assert later not in d.grants


def test_refused_session_that_stays_away_too_long_begins_at_the_end() -> None:
    d = EngineDriver(SMALL)
    running = d.ask("s1")
    early = d.ask("early")
    d.idle(901.0)
    retry_s = d.rejects[early].retry_after_s
    assert retry_s is not None
    d.idle(retry_s + 121.0)
    later = d.ask("later")
    again = d.ask("early")
    d.done(running)
    d.end("s1")
    assert later in d.grants
    assert again not in d.grants


def test_refused_session_is_asked_back_within_a_minute_however_long_the_line() -> None:
    """The wait is a guess, the place is kept: who stays away for hours leaves room idle."""
    d = EngineDriver(SMALL, parameters=Parameters(queue_limit=5))
    d.ask("s0")
    waiting = [d.ask(f"s{n}") for n in range(1, 6)]
    d.idle(850.0)
    full = d.ask("s9")
    d.idle(51.0)
    refusals = [d.rejects[request_id] for request_id in (*waiting, full)]
    assert refusals[-1].reason is RejectReason.QUEUE_FULL
    for refusal in refusals:
        assert refusal.retry_after_s is not None
        assert 0.0 < refusal.retry_after_s <= 60.0
    assert refusals[4].retry_after_s == 60.0


def test_full_queue_does_not_cost_the_place_of_who_comes_in_time() -> None:
    d = EngineDriver(SMALL, parameters=Parameters(queue_limit=2))
    running, second = first_in_line_refused(d)
    third = d.ask("third")
    for _ in range(5):
        d.idle(50.0)
        again = d.ask("early")
        assert d.rejects[again].reason is RejectReason.QUEUE_FULL
    d.abandon(second)
    again = d.ask("early")
    assert d.held_ids() == [again, third]
    d.done(running)
    d.end("s1")
    assert again in d.grants


def test_short_time_out_keeps_half_of_itself() -> None:
    d = EngineDriver(SMALL)
    d.ask("s1")
    hasty = d.ask("s2", timeout_s=6.0)
    d.idle(2.9)
    assert hasty in d.held_ids()
    d.idle(2.0)
    assert hasty in d.rejects


def test_time_never_goes_back() -> None:
    engine = Engine(Parameters())
    engine.step(100.0, [])
    engine.step(50.0, [])
    assert engine.observe(100.0).uptime_s == 0.0


def test_engine_sleeps_when_nothing_is_alive() -> None:
    d = EngineDriver(100_000)
    assert d.wakeup_s is None
    d.turn("s")
    assert d.wakeup_s is not None
    d.end("s")
    assert d.wakeup_s is None


def test_idle_session_is_forgotten_after_the_limit_and_counters_return_to_zero() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.idle(1790.0)
    assert len(d.engine.observe(d.now_s).sessions) == 1
    d.idle(20.0)
    seen = d.engine.observe(d.now_s)
    assert seen.sessions == ()
    assert (seen.backends[0].committed_tokens, seen.backends[0].num_seats) == (0, 0)


def test_unknown_policy_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="round-robin"):
        Engine(Parameters(), "magic")
    assert POLICIES[0] == "tao"


def test_prompt_length_defaults_to_what_the_session_had() -> None:
    d = EngineDriver(100_000)
    d.done(d.ask("s", None), input_tokens=20_000, output_tokens=500)
    request_id = d.ask("s", None)
    assert d.engine.state.leases[d.grants[request_id].lease_id].input_tokens == 20_500


def test_expected_output_is_limited_by_the_callers_own_limit() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s", 1_000, max_output_tokens=7)
    assert d.engine.state.leases[d.grants[request_id].lease_id].need_tokens == 1_007


def test_finished_requests_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "FINISHED_MAX", 100)
    d = EngineDriver(100_000)
    for n in range(150):
        d.engine.step(0.0, [TurnRequested(request_id=f"q{n}", session_id="s", input_tokens=10)])
        d.engine.step(0.0, [TurnAbandoned(request_id=f"q{n}")])
    assert len(d.engine.state.finished) == 100


def test_refusal_between_two_polls_is_told_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    d = EngineDriver(SMALL, parameters=Parameters(new_wait_s_max=10.0))
    d.ask("s1")
    waiting, taken_back = d.ask("s2"), d.ask("s3")
    d.step(TurnAbandoned(request_id=taken_back))
    d.idle(11.0)
    for request_id, reason in (
        (waiting, RejectReason.WAITED_TOO_LONG),
        (taken_back, RejectReason.ABANDONED),
    ):
        (again,) = d.step(TurnRequested(request_id=request_id, session_id="s2"))
        assert isinstance(again, Reject)
        assert again.reason is reason


def test_parallel_call_never_runs_on_a_second_backend() -> None:
    """Else the first one would run without a seat, and its room be promised again."""
    d = EngineDriver(1_000_000, 1_000_000, parameters=Parameters(growth_turns=0.0))
    blockers = [d.ask(f"x{n}", 300_000) for n in range(2)]
    first = d.ask("s", 500_000)
    home = d.backend_of(first)
    second = d.ask("s", 750_000)
    for blocker in blockers:
        if d.backend_of(blocker) != home:
            d.done(blocker, input_tokens=300_000, after_s=0.0)
            d.end(f"x{blockers.index(blocker)}")
    assert second not in d.grants or d.backend_of(second) == home
    d.ask("fresh", 400_000)  # asserts its own budget and pool
    for backend in d.engine.observe(d.now_s).backends:
        assert backend.in_flight_tokens <= backend.committed_tokens


def test_cancelled_parallel_call_keeps_what_its_sister_left() -> None:
    d = EngineDriver(200_000)
    kept, cancelled = d.ask("s", 50_000), d.ask("s", 50_000)
    d.done(kept, input_tokens=50_000)
    d.done(cancelled, outcome=TurnOutcome.CANCELLED, input_tokens=None, output_tokens=None)
    assert d.engine.observe(d.now_s).sessions[0].resident_tokens == 50_100


def test_estimates_do_not_remember_a_quiet_night() -> None:
    d = EngineDriver(SMALL)
    for _ in range(2):
        running = d.ask("s1")
        held = d.ask("s2")
        d.done(running, after_s=2.0)
        d.end("s1")
        d.done(held)
        d.end("s2")
        d.idle(8 * 3600.0)
    d.ask("s1")
    assert d.holds[d.ask("s2")].estimated_wait_s < 10.0


def test_crowded_queue_is_looked_at_a_few_times_a_second_and_nobody_is_forgotten() -> None:
    d = EngineDriver(SMALL)
    running = d.ask("hog", 15_000)
    queue = [d.ask(f"s{n}", 1_000) for n in range(200)]
    assert d.holds[queue[-1]].queue_position == 200
    d.done(running)
    d.end("hog")
    d.idle(0.2)
    assert queue[0] in d.grants


def test_repeated_answer_tells_the_original_receipt() -> None:
    d = EngineDriver(SMALL)
    first, second = d.ask("s1"), d.ask("s2")
    d.done(first, after_s=3.0)
    d.end("s1")
    (again,) = d.step(TurnRequested(request_id=second, session_id="s2", input_tokens=10_000))
    assert isinstance(again, Grant)
    assert again.is_repeat
    assert again.receipt == d.grants[second].receipt
    assert again.receipt.hold_s == pytest.approx(3.0)


def test_renewal_after_expiry_does_not_revive_a_lease() -> None:
    d = EngineDriver(100_000, parameters=Parameters(tick_s=10.0))
    lease_id = d.grants[d.ask("s")].lease_id
    assert d.engine.has_lease(lease_id)
    d.step(LeaseRenewed(lease_id=lease_id), after_s=6.0)
    assert not d.engine.has_lease(lease_id)
    assert d.engine.observe(d.now_s).counters.released == {"lost": 1}


def test_policy_with_parameters_of_its_own_may_be_given() -> None:
    engine = Engine(Parameters(), StaticCap(StaticCapParameters(sessions_max=1)))
    assert engine.observe(0.0).policy == "static-cap"


def test_rivals_hold_new_sessions_as_long_as_their_callers_wait() -> None:
    d = EngineDriver(100_000, policy="concur-aimd")
    asked = [d.ask(f"s{n}") for n in range(12)]
    d.idle(1_000.0)
    assert d.rejects == {}
    assert len(d.held_ids()) + len(d.grants) == len(asked)


def test_prefill_rate_once_learned_paces_forced_grants() -> None:
    """10k tokens at 10k tokens/s take 1 s: the next forced grant may come 5 s later."""
    d = EngineDriver(SMALL, parameters=Parameters(hold_hard_s=1000.0))
    for _ in range(3):
        d.done(d.ask("cold"), input_tokens=10_000, cached_tokens=0, ttft_s=1.0)
        d.end("cold")
    backend = d.engine.state.backends["b0"]
    assert backend.rates.prefill_tokens_per_s == 10_000.0
    for name in ("s1", "s2"):
        d.turn(name)
        ledger.leave_seat(d.engine.state, d.engine.state.of_id(name)[0])
        backend.cache.end(d.engine.state.of_id(name)[0].key, 0, None)
    d.ask("hog", 20_000)
    first, second = d.ask("s1"), d.ask("s2")
    d.idle(61.0)
    assert d.reason_of(first) == "forced"
    d.done(first)
    ledger.leave_seat(d.engine.state, d.engine.state.of_id("s1")[0])
    d.idle(7.0)
    assert d.reason_of(second) == "forced"


def test_engine_says_how_far_its_predictions_can_be_trusted() -> None:
    honesty = EngineDriver(100_000).engine.honesty()
    assert (honesty.num_forecasts, honesty.horizon_s) == (0.0, 1.0)


def test_reply_of_absurd_length_makes_no_room_scarce() -> None:
    """One wrong report, and nobody's expected output fitted any pool for hundreds of turns."""
    d = EngineDriver(100_000)
    d.done(d.ask("wrong", 1_000), input_tokens=1_000, output_tokens=100_000_000)
    d.end("wrong")
    assert all(d.reason_of(d.ask(f"s{n}", 5_000)) == "planned" for n in range(3))


def test_session_that_lies_moves_no_capacity() -> None:
    d = EngineDriver(200_000)
    backend = d.engine.state.backends["b0"]
    for turn in range(1, 60):
        for name in ("a", "b", "liar"):
            tokens = 10_000 + 300 * turn
            request_id = d.ask(name, tokens)
            told = 10**9 if name == "liar" else tokens
            d.done(request_id, input_tokens=told, output_tokens=0, cached_tokens=tokens - 300)
    assert backend.capacity_factor == 1.0
    assert backend.cached_tokens / backend.prompt_tokens > 0.95


def test_reply_that_tells_more_cached_tokens_than_any_pool_holds_teaches_no_prefix() -> None:
    d = EngineDriver(100_000)
    for number in range(6):
        request_id = d.ask(f"s{number}", 10_000)
        d.done(request_id, input_tokens=None, output_tokens=0, cached_tokens=10**9)
        d.end(f"s{number}")
    assert d.engine.state.backends["b0"].shared_prefix.tokens == 0


@pytest.mark.parametrize(("input_tokens", "output_tokens"), [(10**9, 0), (20_000, 10**9)])
def test_reply_that_tells_more_tokens_than_any_pool_holds_empties_no_cache(
    input_tokens: int, output_tokens: int
) -> None:
    d = EngineDriver(100_000)
    state, backend = d.engine.state, d.engine.state.backends["b0"]
    d.turn("honest", 30_000)
    request_id = d.ask("liar", 20_000)
    d.done(request_id, input_tokens=input_tokens, output_tokens=output_tokens)
    (honest,) = state.of_id("honest")
    (liar,) = state.of_id("liar")
    assert state.resident_tokens(honest, backend) == 30_100
    assert liar.context_tokens == 20_000
    assert state.typical.output_tokens < 10_000
    d.turn("liar", 25_000)
    assert liar.context_tokens == 25_100, "once a liar, believed again"


def test_reply_of_a_backend_that_reports_too_small_a_pool_is_believed() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s", 90_000)
    d.done(request_id, input_tokens=150_000, output_tokens=0)
    (session,) = d.engine.state.of_id("s")
    assert session.context_tokens == 150_000
