"""Backends come, report, fall silent and leave."""

from collections.abc import Callable

import pytest
from engine_driver import EngineDriver

from tao_coordinator.core.effects import BackendLeft, RejectReason
from tao_coordinator.core.events import (
    BackendAdded,
    BackendCacheSeen,
    BackendDrained,
    BackendRemoved,
    BackendSampled,
    BackendUnreachable,
    LeaseReleased,
    LeaseRenewed,
    TurnOutcome,
)
from tao_coordinator.core.parameters import Parameters


def fail(d: EngineDriver, backend_id: str = "b0", times: int = 3) -> None:
    for _ in range(times):
        d.step(BackendUnreachable(backend_id=backend_id, reason="connection refused"))


def test_backend_is_used_only_after_its_first_sample() -> None:
    d = EngineDriver()
    d.step(BackendAdded(backend_id="x", base_url="http://x"))
    early = d.ask("s")
    assert d.rejects[early].reason is RejectReason.NO_HEALTHY_BACKEND
    d.step(BackendSampled(backend_id="x", capacity_tokens=50_000))
    assert d.ask("s") in d.grants


def test_one_failed_poll_is_forgiven_three_in_a_row_are_not() -> None:
    d = EngineDriver(100_000, 100_000)
    fail(d, times=2)
    d.step(BackendSampled(backend_id="b0"))
    fail(d, times=2)
    assert d.engine.observe(d.now_s).backends[0].healthy
    fail(d, times=1)
    assert not d.engine.observe(d.now_s).backends[0].healthy
    assert d.warnings[-1].code == "backend_lost"
    fail(d)  # says it once


def test_failures_between_calls_that_complete_are_not_in_a_row() -> None:
    """Else a few broken streams of one client take a busy backend from everybody."""
    d = EngineDriver(100_000)
    for _ in range(10):
        fail(d, times=2)
        d.turn("s", 1_000)
    assert d.engine.observe(d.now_s).backends[0].healthy
    fail(d, times=2)
    d.done(d.ask("s"), outcome=TurnOutcome.ERROR)
    fail(d, times=1)
    assert not d.engine.observe(d.now_s).backends[0].healthy


def test_sessions_of_a_dead_backend_are_placed_elsewhere_at_once() -> None:
    d = EngineDriver(100_000, 100_000)
    home = d.turn("s")
    fail(d, home)
    request_id = d.ask("s")
    assert d.backend_of(request_id) != home
    assert d.grants[request_id].receipt.cache_credit_tokens == 0


def test_restarted_backend_has_lost_its_cache() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    fail(d)
    for _ in range(2):
        d.step(BackendSampled(backend_id="b0", capacity_tokens=100_000))
    assert d.reason_of(d.ask("s")) == "planned"


def test_lost_backend_has_to_answer_twice_in_a_row() -> None:
    d = EngineDriver(100_000)
    fail(d)
    good = BackendSampled(backend_id="b0", capacity_tokens=100_000)
    for events in ((good,), (BackendUnreachable(backend_id="b0", reason="no"),), (good,)):
        d.step(*events)
        assert not d.engine.observe(d.now_s).backends[0].healthy
    d.step(good)
    assert d.engine.observe(d.now_s).backends[0].healthy
    assert [w.code for w in d.warnings[-2:]] == ["backend_lost", "backend_healthy"]


def test_restart_between_two_polls_is_seen_in_the_counters() -> None:
    d = EngineDriver(100_000)

    def sample(queries: int) -> None:
        d.step(
            BackendSampled(
                backend_id="b0", capacity_tokens=100_000, prefix_cache_queries_tokens=queries
            )
        )

    sample(5_000)
    d.turn("s")
    sample(15_000)
    request_id = d.ask("s")
    assert d.reason_of(request_id) == "resident"
    d.done(request_id)
    sample(0)
    assert d.warnings[-1].code == "backend_restarted"
    assert d.engine.observe(d.now_s).sessions[0].resident_tokens == 0
    sample(10)
    assert [w.code for w in d.warnings].count("backend_restarted") == 1


def test_other_url_under_the_same_name_is_another_engine() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.step(BackendAdded(backend_id="b0", base_url="http://elsewhere"))
    early = d.ask("s")
    assert d.rejects[early].reason is RejectReason.NO_HEALTHY_BACKEND
    d.step(BackendSampled(backend_id="b0", capacity_tokens=50_000))
    request_id = d.ask("s")
    assert d.grants[request_id].base_url == "http://elsewhere"
    assert d.grants[request_id].receipt.cache_credit_tokens == 0


def test_same_settings_again_change_nothing() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    d.step(BackendAdded(backend_id="b0", base_url="http://b0"))
    assert d.reason_of(d.ask("s")) == "resident"


def load_from_elsewhere(d: EngineDriver, running: int, times: int = 3) -> None:
    for _ in range(times):
        d.step(
            BackendSampled(
                backend_id="b0", capacity_tokens=100_000, running=running, kv_usage_ratio=0.6
            )
        )


def test_load_from_elsewhere_is_taken_off_the_budget_and_given_back() -> None:
    d = EngineDriver(100_000)
    load_from_elsewhere(d, running=6)
    view = d.engine.observe(d.now_s).backends[0]
    assert (view.num_foreign, view.foreign_tokens) == (6, 60_000)
    assert view.budget_tokens == 38_000
    d.ask("s", 10_000)
    held = d.ask("t", 10_000)
    assert held in d.holds
    load_from_elsewhere(d, running=1, times=1)
    assert held in d.grants


def test_own_calls_are_not_taken_off() -> None:
    d = EngineDriver(100_000)
    d.ask("s", 10_000)
    load_from_elsewhere(d, running=1)
    assert d.engine.observe(d.now_s).backends[0].foreign_tokens == 0


def test_drained_backend_is_forgotten_once_nothing_runs_there() -> None:
    d = EngineDriver(100_000, 100_000)
    home = d.turn("s")
    d.turn("t")
    running = d.ask("s")
    assert d.backend_of(running) == home
    gone = BackendLeft(backend_id=home)
    assert gone not in d.step(BackendRemoved(backend_id=home))  # not drained
    d.step(BackendDrained(backend_id=home))
    assert gone not in d.step(BackendRemoved(backend_id=home))  # a turn runs
    d.done(running)
    assert gone in d.step(BackendRemoved(backend_id=home))
    assert [b.backend_id for b in d.engine.observe(d.now_s).backends] == [
        name for name in ("b0", "b1") if name != home
    ]
    assert d.backend_of(d.ask("s")) != home
    assert gone in d.step(BackendRemoved(backend_id=home))  # says so again


def test_idle_sessions_of_a_forgotten_backend_go_on_elsewhere() -> None:
    d = EngineDriver(100_000, 100_000)
    home = d.turn("s")
    d.step(BackendDrained(backend_id=home), BackendRemoved(backend_id=home))
    assert d.engine.observe(d.now_s).sessions[0].seat_backend_id is None
    assert d.turn("s") != home


def cache_seen(d: EngineDriver, **more: object) -> None:
    told: dict[str, object] = {"was_cleared": False, "is_lost": False, "sessions": (), **more}
    d.step(BackendCacheSeen(backend_id="b0", **told))  # pyright: ignore[reportArgumentType]


def resident_tokens(d: EngineDriver) -> int:
    return d.engine.observe(d.now_s).sessions[0].resident_tokens


def test_engines_own_events_correct_the_credit() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    assert resident_tokens(d) == 10_100
    cache_seen(d, sessions=(("s", 4_000),))
    assert resident_tokens(d) == 4_000
    assert d.reason_of(d.ask("s")) == "planned"  # less than half is left: no resident
    cache_seen(d, sessions=(("s", 50_000),))
    assert resident_tokens(d) == 10_100  # never more than the session has
    cache_seen(d, sessions=(("s", None),))
    assert resident_tokens(d) > 10_000  # as predicted


def test_lost_events_leave_the_prediction() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    cache_seen(d, sessions=(("s", 0),))
    assert resident_tokens(d) == 0
    cache_seen(d, is_lost=True)
    assert resident_tokens(d) == 10_100


def test_cleared_cache_empties_the_prediction() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    cache_seen(d, was_cleared=True)
    assert resident_tokens(d) == 0


def test_events_that_cannot_tell_two_agents_apart_correct_neither() -> None:
    d = EngineDriver(100_000)
    for agent in ("one", "two"):
        request_id = d.ask("s", agent=agent)
        d.done(request_id)
    cache_seen(d, sessions=(("s", 16),))
    assert [v.resident_tokens for v in d.engine.observe(d.now_s).sessions] == [10_100, 10_100]


def test_what_a_gateway_did_instead_moves_the_sessions_home() -> None:
    d = EngineDriver()
    for name in ("a", "b"):
        d.step(
            BackendAdded(
                backend_id=name, base_url="http://gateway", served_by=(("x-token", f"t-{name}"),)
            ),
            BackendSampled(backend_id=name, capacity_tokens=100_000),
        )
    request_id = d.ask("s")
    other = "b" if d.backend_of(request_id) == "a" else "a"
    assert d.grants[request_id].served_by_names == ("x-token",)
    d.step(
        LeaseReleased(
            lease_id=d.grants[request_id].lease_id,
            input_tokens=10_000,
            output_tokens=100,
            served_by=(("x-token", f"t-{other}"), ("x-other", "?")),
        )
    )
    view = d.engine.observe(d.now_s)
    assert view.sessions[0].seat_backend_id == other
    assert view.sessions[0].resident_tokens == 10_100
    assert view.counters.served_elsewhere == 1
    again = d.ask("s")
    assert (d.backend_of(again), d.reason_of(again)) == (other, "resident")


def test_unknown_server_is_taken_for_the_planned_one() -> None:
    d = EngineDriver(100_000)
    request_id = d.ask("s")
    d.step(
        LeaseReleased(
            lease_id=d.grants[request_id].lease_id,
            input_tokens=10_000,
            output_tokens=100,
            served_by=(("x-token", "nobody"),),
        )
    )
    assert d.engine.observe(d.now_s).sessions[0].seat_backend_id == "b0"


def test_held_turns_are_refused_when_the_last_backend_dies() -> None:
    d = EngineDriver(40_000)
    d.ask("s1")
    second = d.ask("s2")
    fail(d)
    assert d.rejects[second].reason is RejectReason.NO_HEALTHY_BACKEND
    assert d.held_ids() == []


def test_call_running_on_a_dead_backend_ends_without_a_seat() -> None:
    d = EngineDriver(100_000)
    d.turn("s")
    request_id = d.ask("s")
    d.step(LeaseRenewed(lease_id=d.grants[request_id].lease_id))
    fail(d)
    d.done(request_id)
    assert d.engine.observe(d.now_s).backends[0].num_seats == 0


def test_silent_backend_is_warned_about_from_the_start() -> None:
    d = EngineDriver()
    d.step(BackendAdded(backend_id="x", base_url="http://x"))
    fail(d, "x", times=1)
    assert (d.warnings[-1].code, d.warnings[-1].subject) == ("backend_silent", "x")


def test_missing_capacity_is_warned_about_and_holds_nobody() -> None:
    d = EngineDriver(None)
    assert d.warnings[-1].code == "capacity_unknown"
    assert "--capacity b0=TOKENS" in d.warnings[-1].message
    assert all(d.ask(f"s{n}", 200_000) in d.grants for n in range(50))
    view = d.engine.observe(d.now_s).backends[0]
    assert (view.capacity_tokens, view.budget_tokens) == (None, None)


def test_capacity_override_and_scale_win_over_the_report() -> None:
    d = EngineDriver()
    d.step(
        BackendAdded(
            backend_id="x", base_url="http://x", capacity_tokens=10_000, capacity_scale=0.5
        ),
        BackendSampled(backend_id="x", capacity_tokens=999_999),
    )
    assert d.engine.observe(d.now_s).backends[0].capacity_tokens == 5_000


@pytest.mark.parametrize("absurd", [0, -5])
def test_absurd_capacity_is_no_capacity(absurd: int) -> None:
    d = EngineDriver(absurd)
    assert d.engine.observe(d.now_s).backends[0].capacity_tokens is None


def test_one_sample_without_capacity_keeps_the_known_one() -> None:
    d = EngineDriver(100_000)
    d.step(BackendSampled(backend_id="b0", running=3))
    view = d.engine.observe(d.now_s).backends[0]
    assert (view.capacity_tokens, view.running) == (100_000, 3)


def test_draining_backend_gets_no_new_lease_and_finishes_what_runs() -> None:
    d = EngineDriver(100_000, 100_000)
    running = d.ask("s1")
    d.step(BackendDrained(backend_id="b0"))
    assert d.backend_of(running) == "b0"
    d.done(running)
    assert d.backend_of(d.ask("s1")) == "b1"
    assert d.backend_of(d.ask("s2")) == "b1"
    d.step(BackendAdded(backend_id="b0", base_url="http://new"))
    assert d.engine.observe(d.now_s).backends[0].base_url == "http://new"
    assert not d.engine.observe(d.now_s).backends[0].draining


def test_draining_the_only_backend_refuses_who_is_held() -> None:
    d = EngineDriver(40_000)
    d.ask("s1")
    held = d.ask("s2")
    d.step(BackendDrained(backend_id="b0"))
    assert d.rejects[held].reason is RejectReason.NO_HEALTHY_BACKEND


def test_events_of_unknown_backends_are_ignored() -> None:
    d = EngineDriver(100_000)
    d.step(
        BackendSampled(backend_id="nobody"),
        BackendUnreachable(backend_id="nobody", reason="?"),
        BackendDrained(backend_id="nobody"),
    )
    assert [b.backend_id for b in d.engine.observe(d.now_s).backends] == ["b0"]


def test_model_is_matched_against_each_backend() -> None:
    d = EngineDriver(100_000)
    d.step(BackendSampled(backend_id="b0", models=("qwen",)))
    d.step(BackendAdded(backend_id="x", base_url="http://x"))
    d.step(BackendSampled(backend_id="x", capacity_tokens=1_000_000, models=("llama",)))
    assert d.backend_of(d.ask("s", model="qwen")) == "b0"
    assert d.backend_of(d.ask("s", model="llama")) == "x"


def test_turn_held_for_a_model_that_is_gone_is_told_so() -> None:
    d = EngineDriver(40_000, models=("x",))
    d.turn("started")
    d.ask("hog", 20_000, model="x")
    held = d.ask("waiting", 10_000, model="x")
    assert held in d.held_ids()
    d.step(BackendSampled(backend_id="b0", capacity_tokens=40_000, models=("z",)))
    assert d.rejects[held].reason is RejectReason.NO_HEALTHY_BACKEND


def test_full_backend_of_one_model_does_not_hold_another_models_turns() -> None:
    d = EngineDriver(40_000, 40_000)
    d.step(BackendSampled(backend_id="b0", capacity_tokens=40_000, models=("x",)))
    d.step(BackendSampled(backend_id="b1", capacity_tokens=40_000, models=("y",)))
    d.ask("hog", model="x")
    waiting = d.ask("a", model="x", tenant="t1")
    assert waiting in d.held_ids()
    assert d.ask("b", model="y", tenant="t2") in d.grants
    assert d.ask("c", model="x", tenant="t3") in d.held_ids()


def held_large(d: EngineDriver) -> str:
    """A turn that fits only b1, which is busy."""
    d.step(BackendDrained(backend_id="b0"))
    assert d.ask("hog", 60_000) in d.grants
    d.step(BackendAdded(backend_id="b0", base_url="http://b0"))
    large = d.ask("large", 80_000)
    assert d.held_ids() == [large]
    return large


def lose(d: EngineDriver) -> None:
    for _ in range(Parameters().unreachable_limit):
        d.step(BackendUnreachable(backend_id="b1", reason="refused"))


def drain(d: EngineDriver) -> None:
    d.step(BackendDrained(backend_id="b1"))


def shrink(d: EngineDriver) -> None:
    d.step(BackendSampled(backend_id="b1", capacity_tokens=60_000))


@pytest.mark.parametrize("change", [lose, drain, shrink])
def test_turn_too_large_for_what_is_left_of_the_fleet_is_refused_and_blocks_nobody(
    change: Callable[[EngineDriver], None],
) -> None:
    d = EngineDriver(40_000, 100_000)
    large = held_large(d)
    change(d)
    assert d.rejects[large].reason is RejectReason.TOO_LARGE
    assert d.backend_of(d.ask("small", 1_000)) == "b0"
