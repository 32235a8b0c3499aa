"""Adversarial life of a fleet: any order of requests, polls, releases, losses, failures and time.

Every step checks the engine's own book-keeping; at the end the callers go away and everything must
return to zero. Liveness is checked all along: no started session is held beyond the hard bound plus
one tick while a healthy backend exists, and no turn is answered twice.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tao_coordinator.core.effects import Grant, Hold, Reject
from tao_coordinator.core.events import (
    BackendAdded,
    BackendDrained,
    BackendSampled,
    BackendUnreachable,
    Event,
    LeaseReleased,
    LeaseRenewed,
    PollEnded,
    PollStarted,
    SessionEnded,
    ToolEnded,
    ToolStarted,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import POLICIES, Engine

SESSIONS = st.sampled_from([f"s{n}" for n in range(6)])
POOL = 60_000


class FleetMachine(RuleBasedStateMachine):
    """A model of the callers beside the real engine."""

    @initialize(policy=st.sampled_from(POLICIES), pools=st.lists(st.just(POOL), min_size=1))
    def start(self, policy: str, pools: list[int]) -> None:
        self.parameters = Parameters()
        self.engine = Engine(self.parameters, policy)
        self.now_s = 0.0
        self.num_requests = 0
        self.open: set[str] = set()
        """Requests that were neither granted, rejected nor abandoned."""
        self.asked_s: dict[str, float] = {}
        self.leases: dict[str, str] = {}
        self.backends = [f"b{n}" for n in range(min(3, len(pools)))]
        self.healthy = set(self.backends)
        for name in self.backends:
            self.step(BackendAdded(backend_id=name, base_url=f"http://{name}"))
            self.step(BackendSampled(backend_id=name, capacity_tokens=POOL))

    def step(self, *events: Event) -> None:
        effects, wakeup_s = self.engine.step(self.now_s, events)
        assert wakeup_s is None or wakeup_s >= self.now_s
        answered = set[str]()
        for effect in effects:
            if isinstance(effect, Grant | Reject):
                assert effect.request_id in self.open, "answered twice, or after it was given up"
                assert effect.request_id not in answered
                answered.add(effect.request_id)
                self.open.discard(effect.request_id)
            if isinstance(effect, Grant):
                assert effect.backend_id in self.healthy
                self.leases[effect.request_id] = effect.lease_id
            if isinstance(effect, Hold):
                assert effect.request_id in self.open

    @rule(session=SESSIONS, tokens=st.integers(0, 70_000), tenant=st.sampled_from(["", "t"]))
    def ask(self, session: str, tokens: int, tenant: str) -> None:
        self.num_requests += 1
        request_id = f"r{self.num_requests}"
        self.open.add(request_id)
        self.asked_s[request_id] = self.now_s
        self.step(
            TurnRequested(
                request_id=request_id, session_id=session, input_tokens=tokens, tenant=tenant
            ),
            PollStarted(request_id=request_id),
        )

    @rule(data=st.data(), tokens=st.integers(0, 50_000), outcome=st.sampled_from(TurnOutcome))
    def release(self, data: st.DataObject, tokens: int, outcome: TurnOutcome) -> None:
        if self.leases:
            request_id = data.draw(st.sampled_from(sorted(self.leases)))
            self.step(
                LeaseReleased(
                    lease_id=self.leases.pop(request_id),
                    outcome=outcome,
                    input_tokens=tokens,
                    output_tokens=tokens // 50,
                    cached_tokens=tokens // 2,
                    ttft_s=1.0,
                    duration_s=2.0,
                )
            )

    @rule()
    def renew_all(self) -> None:
        self.step(*[LeaseRenewed(lease_id=lease_id) for lease_id in self.leases.values()])

    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        if self.open:
            request_id = data.draw(st.sampled_from(sorted(self.open)))
            self.open.discard(request_id)
            self.step(TurnAbandoned(request_id=request_id))

    @rule(data=st.data())
    def stop_polling(self, data: st.DataObject) -> None:
        if self.open:
            request_id = data.draw(st.sampled_from(sorted(self.open)))
            self.step(PollEnded(request_id=request_id))
            self.step(PollStarted(request_id=request_id))

    @rule(session=SESSIONS)
    def end_session(self, session: str) -> None:
        self.step(SessionEnded(session_id=session))

    @rule(session=SESSIONS, call=st.sampled_from(["a", "b"]), timeout_s=st.floats(0.5, 500.0))
    def tool(self, session: str, call: str, timeout_s: float) -> None:
        self.step(ToolStarted(session_id=session, call_id=call, name="bash", timeout_s=timeout_s))

    @rule(session=SESSIONS, call=st.sampled_from(["a", "b"]))
    def tool_end(self, session: str, call: str) -> None:
        self.step(ToolEnded(session_id=session, call_id=call))

    @rule(seconds=st.sampled_from([0.01, 0.5, 1.0, 3.0, 30.0, 130.0]), renew=st.booleans())
    def pass_time(self, seconds: float, renew: bool) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s = min(end_s, self.now_s + self.parameters.tick_s)
            renewals = [LeaseRenewed(lease_id=x) for x in self.leases.values()] if renew else []
            self.step(*renewals)
            self.check_bounds()

    @rule(data=st.data())
    def kill_backend(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.backends))
        self.healthy.discard(name)
        for _ in range(self.parameters.unreachable_limit):
            self.step(BackendUnreachable(backend_id=name, reason="refused"))

    @rule(data=st.data())
    def drain_backend(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.backends))
        self.healthy.discard(name)
        self.step(BackendDrained(backend_id=name))

    @rule(data=st.data())
    def revive_backend(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.backends))
        self.healthy.add(name)
        self.step(
            BackendAdded(backend_id=name, base_url=f"http://{name}"),
            BackendSampled(backend_id=name, capacity_tokens=POOL),
        )

    def check_bounds(self) -> None:
        hard_s = self.parameters.hold_hard_s + self.parameters.tick_s
        is_bounded = self.engine.policy.name == "tao"  # the rivals starve, as they do elsewhere
        for held in self.engine.observe(self.now_s).held:
            assert self.healthy, "held although no backend could take it"
            assert not (is_bounded and held.started) or held.hold_s <= hard_s
        assert {h.request_id for h in self.engine.observe(self.now_s).held} == self.open

    @invariant()
    def books_balance(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check()
            for backend in self.engine.observe(self.now_s).backends:
                assert backend.in_flight_tokens >= 0

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for request_id in list(self.open):
            self.open.discard(request_id)
            self.step(TurnAbandoned(request_id=request_id))
        for lease_id in self.leases.values():
            self.step(LeaseReleased(lease_id=lease_id))
        self.now_s += 10_000.0
        self.step()
        self.now_s += 10_000.0
        self.step()
        self.engine.check()
        seen = self.engine.observe(self.now_s)
        assert seen.sessions == ()
        assert seen.held == ()
        assert self.engine.state.leases == {}
        assert self.engine.state.activities == {}
        for backend in seen.backends:
            assert (backend.committed_tokens, backend.released_tokens) == (0, 0)
            assert (backend.in_flight_tokens, backend.num_seats) == (0, 0)


TestFleet = FleetMachine.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
