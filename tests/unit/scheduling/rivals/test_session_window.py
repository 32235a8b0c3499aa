"""The window of active sessions: order of entry, newest out first, only between calls."""

from engine_driver import EngineDriver

from tao_coordinator.core.events import BackendDrained
from tao_coordinator.core.model import Backend
from tao_coordinator.core.state import State
from tao_coordinator.scheduling.rivals.session_window import Gate, SessionWindows


class Fixed(SessionWindows):
    """A window that only the test moves."""

    name = "fixed"

    def __init__(self, window: float) -> None:
        super().__init__(interval_s=5.0, window_initial=window)
        self.adjusted: list[tuple[str, float]] = []

    def adjust(self, state: State, backend: Backend, gate: Gate, now_s: float) -> None:
        self.adjusted.append((backend.backend_id, now_s))


def fleet(window: float, *pools: int) -> tuple[EngineDriver, Fixed]:
    d = EngineDriver(*pools, policy="concur-aimd")
    policy = d.engine.policy = Fixed(window)
    return d, policy


def active(policy: Fixed, backend_id: str = "b0") -> list[str]:
    return [key.session_id for key in policy.gates[backend_id].active]


def test_window_admits_in_order_of_arrival_whatever_the_size() -> None:
    d, policy = fleet(2.9, 100_000)
    calls = [d.ask(f"s{n}", tokens) for n, tokens in enumerate((1_000, 90_000, 90_000, 1_000))]
    assert [r in d.grants for r in calls] == [True, True, False, False]
    d.done(calls[0])
    assert d.held_ids() == calls[2:], "between two calls a session stays inside"
    d.end("s0")
    assert d.held_ids() == calls[3:]
    assert active(policy) == ["s1", "s2"]


def test_window_lets_active_sessions_pass_at_once() -> None:
    d, _ = fleet(1, 100_000)
    d.turn("s")
    d.ask("waits")
    request = d.ask("s")
    assert d.reason_of(request) == "active"
    assert d.ask("s") in d.grants, "parallel calls too"


def test_window_newest_leave_first_and_never_in_flight() -> None:
    d, policy = fleet(4, 400_000)
    calls = {name: d.ask(name) for name in ("s0", "s1", "s2", "s3")}
    d.done(calls["s0"])
    d.done(calls["s2"])
    policy.gates["b0"].window = 2.0
    d.idle(1.0)
    assert active(policy) == ["s0", "s1", "s3"], "s2 is idle and new; s3 still runs; s0 is old"
    assert d.engine.observe(d.now_s).counters.seats_released == 1
    d.done(calls["s3"], after_s=0.0)
    held = d.ask("s3")
    assert held not in d.grants, "this is the boundary at which it leaves"
    assert active(policy) == ["s0", "s1"]
    policy.gates["b0"].window = 3.0
    d.idle(1.0)
    assert held in d.grants


def test_window_only_whole_places_count() -> None:
    d, policy = fleet(4, 400_000)
    for n in range(4):
        d.turn(f"s{n}")
    policy.gates["b0"].window = 2.9
    d.idle(1.0)
    assert active(policy) == ["s0", "s1"]


def test_window_sessions_are_spread_by_number_and_stay() -> None:
    d, policy = fleet(2, 100_000, 100_000)
    for n in range(4):
        d.turn(f"s{n}")
    assert (active(policy, "b0"), active(policy, "b1")) == (["s0", "s2"], ["s1", "s3"])
    assert d.turn("s1") == "b1"


def test_window_each_home_has_its_own_queue() -> None:
    d, _ = fleet(1, 100_000, 100_000)
    for name in ("s0", "s1"):
        d.turn(name)
    first, second = d.ask("s2"), d.ask("s3")  # at home on b0 and b1
    d.end("s1")
    assert (first in d.grants, d.backend_of(second)) == (False, "b1")


def test_window_session_moves_when_its_home_drains() -> None:
    d, policy = fleet(4, 100_000, 100_000)
    assert d.turn("s") == "b0"
    d.step(BackendDrained(backend_id="b0"))
    assert d.turn("s") == "b1"
    assert active(policy, "b0") == []


def test_window_is_adjusted_every_interval_on_each_usable_backend() -> None:
    d, policy = fleet(4, 100_000, 100_000, 100_000)
    d.step(BackendDrained(backend_id="b2"))
    d.ask("s")
    d.idle(11.0)  # counted from the engine's first tick
    assert policy.adjusted == [(b, t) for t in (6.0, 11.0) for b in ("b0", "b1")]


def test_window_forgets_sessions_that_are_gone() -> None:
    d, policy = fleet(4, 400_000)
    for n in range(4):
        d.turn(f"s{n}")
    for n in range(3):
        d.end(f"s{n}")
    d.idle(1.0)
    assert active(policy) == ["s3"]
    assert len(policy._homes) == 1


def test_window_new_session_under_an_old_name_is_not_active_yet() -> None:
    d, policy = fleet(1, 100_000)
    d.turn("s")
    d.end("s")
    d.turn("t")
    assert active(policy) == ["t"]
    assert d.ask("s") not in d.grants
