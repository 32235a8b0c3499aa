"""A seeded world in which everything goes wrong, around the real Engine.

Clients ask, poll, run, renew and release as the SDK does; the network between them and the engine
loses, delays, duplicates and reorders what they say; clients vanish, with or without closing their
connection; backends die, at first unnoticed, slow down, come back smaller or larger, and drain; the
clock steps; the coordinator restarts with an empty memory. After every step all invariants of the
engine hold, no started session is held beyond the hard bound while a healthy backend exists, no new
session is overtaken by a later one of its tenant, nobody who is gone is granted, and when all is
over every sum is back at 0. Same seed, same bytes (`digest`).
"""

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from fault_draws import Client, Faults
from waiting_order import overtaken

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
    SessionHeartbeat,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnAbandoned,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine

POOL = 60_000
END_S = 40_000.0


@dataclass
class FaultyWorld:
    """Everything drawn from one seed."""

    seed: int
    policy: str = "tao"
    now_s: float = 0.0
    num_steps: int = 0
    num_granted: int = 0
    bounds_hold: bool = True
    """The policy promises our bounds on waiting; the rivals do not."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.faults = Faults.draw(self.chance)
        self.parameters = Parameters()
        self.engine = self.make_engine()
        self.digest = hashlib.blake2b(digest_size=16)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._waiting: dict[str, Client] = {}
        self._clock_offset_s = 0.0
        self._wakeup_s: float | None = None
        self._num_requests = 0
        self._silent: dict[str, float] = {}
        """Requests whose caller is gone without a word, and when it was last heard."""
        self._refused: set[str] = set()
        self._slow: set[str] = set()
        self._dead_unnoticed: set[str] = set()
        self.num_engines = 1
        self.backends = [f"b{n}" for n in range(self.chance.randint(1, 3))]
        self.alive = set(self.backends)
        self.clients = [
            Client(
                name=f"s{n}",
                session_id=f"s{self._session_number(n)}",
                tenant=self.chance.choice(["", "x"]),
                turns_left=self.chance.randint(1, 6),
                context_tokens=self.chance.randint(500, 30_000),
            )
            for n in range(self.chance.randint(2, 10))
        ]

    def _session_number(self, client_number: int) -> int:
        """Some clients call in parallel under the name of the one before."""
        shares = client_number > 0 and self.chance.random() < self.faults.p_parallel
        return client_number - shares

    def make_engine(self) -> Engine:
        return Engine(self.parameters, self.policy)

    # --- the world's loop ------------------------------------------------------------------------

    def run(self) -> None:
        """Until all clients are done or gone, then until the engine has forgotten them."""
        self._introduce_backends()
        for client in self.clients:
            self.after(self.chance.uniform(0.0, 30.0), lambda c=client: self._ask(c))
        self.after(self.chance.expovariate(1 / self.faults.backend_life_s), self._kill_backend)
        self.after(self.chance.expovariate(1 / self.faults.backend_life_s), self._slow_down)
        while self._queue and self.now_s < END_S:
            time_s, _, action = heapq.heappop(self._queue)
            while self._wakeup_s is not None and self._wakeup_s < time_s:
                self.now_s = max(self.now_s, self._wakeup_s)
                self.step()
            self.now_s = max(self.now_s, time_s)
            action()
            if all(client.gone or client.finished for client in self.clients):
                break
        assert self.now_s < END_S, "clients do not finish"
        self._let_everything_expire()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_s + seconds, next(self._order), action))

    def step(self, *events: Event) -> None:
        if self.chance.random() < self.faults.p_clock_step:
            # A monotonic clock must not go back, but a suspended machine makes it jump ahead.
            self._clock_offset_s += self.chance.choice([-50.0, 30.0, 200.0])
        seen_s = self.now_s + self._clock_offset_s
        held_before = list(self.engine.state.held.values())
        effects, wakeup_s = self.engine.step(seen_s, events)
        self.engine.check()
        self.num_steps += 1
        self._wakeup_s = None if wakeup_s is None else self.now_s + max(0.5, wakeup_s - seen_s)
        self.digest.update(repr((round(self.now_s, 6), effects)).encode())
        for effect in effects:
            if isinstance(effect, Grant):
                self._granted(effect)
            elif isinstance(effect, Reject):
                self._rejected(effect)
            elif isinstance(effect, Hold):
                assert effect.queue_position >= 1
        self._check_bounds(seen_s)
        if self.bounds_hold:
            violation = overtaken(held_before, self.engine.state, effects)
            assert violation is None, violation

    def _check_bounds(self, seen_s: float) -> None:
        if self.faults.p_clock_step or not self.bounds_hold:
            return  # the engine's holds jump with the clock
        hard_s = self.parameters.hold_hard_s + self.parameters.tick_s + 0.5
        gone_s = 10.0 + self.parameters.poll_grace_s + self.parameters.tick_s + 0.5
        for request_id, turn in self.engine.state.held.items():
            if request_id in self._silent:
                assert self.now_s - self._silent[request_id] <= gone_s, f"{request_id} is gone"
                continue
            assert request_id in self._waiting, f"{request_id}: its caller is gone"
            assert not turn.session.is_started or seen_s - turn.arrived_s <= hard_s, request_id

    def _say(self, *events: Event) -> None:
        """Over the network: lost, doubled, late; never blocks."""
        for event in events:
            if self.chance.random() < self.faults.p_lost:
                continue
            times = 2 if self.chance.random() < self.faults.p_duplicate else 1
            for _ in range(times):
                late = self.chance.random() < self.faults.p_late
                delay_s = self.chance.expovariate(1 / 5.0) if late else 0.001
                self.after(delay_s, lambda e=event: self.step(e))

    # --- clients ---------------------------------------------------------------------------------

    def _ask(self, client: Client) -> None:
        if client.gone:
            return
        self._num_requests += 1
        client.turn += 1
        client.request_id = f"{client.name}:{client.turn}:{self._num_requests}"
        self._waiting[client.request_id] = client
        self.after(self.chance.expovariate(1 / 100.0), lambda: self._maybe_vanish(client))
        self._poll(client, client.request_id)

    def _poll(self, client: Client, request_id: str) -> None:
        if client.gone or request_id not in self._waiting:
            return
        self.step(
            TurnRequested(
                request_id=request_id,
                session_id=client.session_id,
                input_tokens=client.context_tokens,
                tenant=client.tenant,
            )
        )
        self._maybe_ask_twice(client, request_id)
        if request_id in self._waiting:
            self.step(PollStarted(request_id=request_id))
            self.after(10.0, lambda: self._poll_over(client, request_id))

    def _maybe_ask_twice(self, client: Client, request_id: str) -> None:
        """A proxy repeats the request, at any time later, to the same coordinator."""
        if self.chance.random() >= self.faults.p_duplicate / 4:
            return
        tokens, number = client.context_tokens, self.num_engines

        def again() -> None:
            # A refusal is an answer: the same id may ask again, and then somebody waits for it.
            if self.num_engines == number and request_id not in self._refused:
                self.step(
                    TurnRequested(
                        request_id=request_id,
                        session_id=client.session_id,
                        input_tokens=tokens,
                        tenant=client.tenant,
                    )
                )

        self.after(self.chance.expovariate(1 / 60.0), again)

    def _poll_over(self, client: Client, request_id: str) -> None:
        if client.gone or request_id not in self._waiting:
            return
        self.step(PollEnded(request_id=request_id))
        self.after(self.chance.choice([0.01, 1.0]), lambda: self._poll(client, request_id))

    def _granted(self, grant: Grant) -> None:
        client = self._waiting.pop(grant.request_id, None)
        if self._silent.pop(grant.request_id, None) is not None:
            return  # nobody has told the engine; the lease is never started
        assert client is not None or grant.is_repeat, "granted to nobody"
        if client is None:
            return
        assert not client.gone, "granted to a caller that went away"
        assert grant.backend_id in self.alive, "granted on a backend that is known to be dead"
        self.num_granted += 1
        client.lease_id, client.backend_id = grant.lease_id, grant.backend_id
        self.after(1.0, lambda: self._renew(client, grant.lease_id))
        run_s = self.chance.expovariate(1 / 15.0)
        if grant.backend_id in self._slow:
            run_s *= 15.0
        self.after(run_s, lambda: self._finish(client, grant.lease_id))

    def _rejected(self, reject: Reject) -> None:
        self._refused.add(reject.request_id)
        self._silent.pop(reject.request_id, None)
        client = self._waiting.pop(reject.request_id, None)
        if client is not None and not client.gone:
            # The SDK fails open: the call goes to the agent's own base URL, unseen.
            self.after(self.chance.expovariate(1 / 15.0), lambda: self._use_tool(client))

    def _renew(self, client: Client, lease_id: str) -> None:
        if not client.gone and client.lease_id == lease_id:
            self._say(LeaseRenewed(lease_id=lease_id))
            self.after(10.0, lambda: self._renew(client, lease_id))

    def _finish(self, client: Client, lease_id: str) -> None:
        if client.gone or client.lease_id != lease_id:
            return
        client.lease_id = None
        failed = self.chance.random() < self.faults.p_error
        failed |= client.backend_id in self._dead_unnoticed
        output = 0 if failed else self.chance.randint(1, 800)
        self._say(
            LeaseReleased(
                lease_id=lease_id,
                outcome=TurnOutcome.ERROR if failed else TurnOutcome.COMPLETED,
                input_tokens=None if failed else client.context_tokens,
                cached_tokens=self.chance.choice([None, 0, client.context_tokens // 2]),
                output_tokens=None if failed else output,
                ttft_s=self.chance.choice([None, 1.0]),
                duration_s=2.0,
            )
        )
        client.context_tokens = min(55_000, client.context_tokens + output + 300)
        self._use_tool(client)

    def _use_tool(self, client: Client) -> None:
        client.turns_left -= 1
        if client.turns_left <= 0:
            client.finished = True
            self._say(SessionEnded(session_id=client.session_id))
            return
        call = f"c{client.turn}"
        seconds = self.chance.choice([0.05, 0.5, 5.0, 200.0])
        self._say(
            ToolStarted(
                session_id=client.session_id,
                call_id=call,
                name="bash",
                timeout_s=self.chance.choice([None, 30.0, 600.0]),
            ),
            ToolProgressed(session_id=client.session_id, call_id=call, ratio=self.chance.random()),
            SessionHeartbeat(session_id=client.session_id, open_call_ids=(call,)),
        )
        self.after(seconds, lambda: self._tool_over(client, call))

    def _tool_over(self, client: Client, call: str) -> None:
        if client.gone:
            return
        self._say(ToolEnded(session_id=client.session_id, call_id=call))
        if self.chance.random() < self.faults.p_restart:
            self._restart_coordinator()
        self._ask(client)

    def _maybe_vanish(self, client: Client) -> None:
        if client.gone or client.finished or self.chance.random() >= self.faults.p_vanish * 4:
            return
        client.gone = True
        if self._waiting.pop(client.request_id, None) is None:
            return
        if self.chance.random() < 0.5:
            # Its connection closes: the service says so at once.
            self.step(TurnAbandoned(request_id=client.request_id))
            return
        # Its machine is gone: the service notices when the long poll is over and nobody asks again.
        request_id = client.request_id
        self._silent[request_id] = self.now_s
        self.after(10.0, lambda: self.step(PollEnded(request_id=request_id)))

    # --- backends and the coordinator itself -----------------------------------------------------

    def _introduce_backends(self) -> None:
        for name in self.backends:
            self.step(BackendAdded(backend_id=name, base_url=f"http://{name}"))
            if name in self.alive:
                self.step(self._sample(name))

    def _kill_backend(self) -> None:
        name = self.chance.choice(self.backends)
        if name in self.alive:
            if self.chance.random() < 0.3:
                self._notice_death(name, BackendDrained(backend_id=name))
            else:
                # Until polls have failed often enough, its calls fail and nobody knows why.
                self._dead_unnoticed.add(name)
                self.after(self.chance.choice([0.0, 6.0]), lambda: self._notice_death(name))
        self.after(self.chance.uniform(8.0, 60.0), lambda: self._revive(name))
        self.after(self.chance.expovariate(1 / self.faults.backend_life_s), self._kill_backend)

    def _notice_death(self, name: str, how: Event | None = None) -> None:
        failure = BackendUnreachable(backend_id=name, reason="refused")
        if how is None:
            for _ in range(self.parameters.unreachable_limit - 1):
                self.step(failure)  # not known to be dead before the last one
        self._dead_unnoticed.discard(name)
        self.alive.discard(name)
        self.step(how or failure)

    def _slow_down(self) -> None:
        """It answers its calls and some of its polls, late."""
        name = self.chance.choice(self.backends)
        self._slow.add(name)
        if name in self.alive and name not in self._dead_unnoticed:
            self.step(BackendUnreachable(backend_id=name, reason="timed out"))
            self.step(self._sample(name))
        self.after(self.chance.uniform(10.0, 200.0), lambda: self._slow.discard(name))
        self.after(self.chance.expovariate(1 / self.faults.backend_life_s), self._slow_down)

    def _sample(self, name: str) -> BackendSampled:
        return BackendSampled(backend_id=name, capacity_tokens=POOL)

    def _revive(self, name: str) -> None:
        self.alive.add(name)
        self._dead_unnoticed.discard(name)
        pool = self.chance.choice([POOL, POOL, POOL // 2, 2 * POOL])
        self.step(
            BackendAdded(backend_id=name, base_url=f"http://{name}"),
            *[BackendSampled(backend_id=name, capacity_tokens=pool)]
            * self.parameters.reachable_limit,
        )

    def _restart_coordinator(self) -> None:
        """kill -9: memory gone, connections closed, leases unknown; clients fail open and go on."""
        self.engine = self.make_engine()
        self.num_engines += 1
        self._silent.clear()
        self._wakeup_s = None
        for client in list(self._waiting.values()):
            self.after(1.0, lambda c=client: self._use_tool(c))
        self._waiting.clear()
        self._introduce_backends()

    def _let_everything_expire(self) -> None:
        for request_id in list(self._waiting):
            del self._waiting[request_id]
            self.step(TurnAbandoned(request_id=request_id))
        for _ in range(3):
            self.now_s += 10_000.0
            self.step()
        seen = self.engine.observe(self.now_s + self._clock_offset_s)
        assert seen.sessions == ()
        assert seen.held == ()
        assert not self.engine.state.leases
        assert not self.engine.state.activities
        for backend in seen.backends:
            assert (backend.num_seats, backend.in_flight_tokens) == (0, 0)
            assert (backend.committed_tokens, backend.released_tokens) == (0, 0)
