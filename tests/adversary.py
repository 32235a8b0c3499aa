"""A seeded adversary of the real Engine: arrivals, replies and ends in the worst order it can find.

It loves bursts, large prompts, evicted sessions that come back together, and callers that stay
exactly as long as hurts. Callers keep polling and renewing. Every step asserts the book-keeping.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from engine_driver import EngineDriver

from tao_coordinator.core.effects import Effect, Grant
from tao_coordinator.core.events import Event, LeaseRenewed
from tao_coordinator.core.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Granted:
    """One grant, as an outsider can note it down."""

    time_s: float
    request_id: str
    session_id: str
    backend_id: str
    reason: str
    hold_s: float
    need_tokens: int
    uncached_tokens: int


@dataclass(slots=True)
class Audit:
    """What a run has shown."""

    grants: list[Granted] = field(default_factory=list[Granted])
    reasons: Counter[str] = field(default_factory=Counter[str])


class Adversary(EngineDriver):
    """Plays one seed; subclasses look at each step."""

    one_call_at_a_time = True
    new_share = 0.4
    """Share of the requests that come from sessions never seen before."""

    def __init__(self, seed: int, *pools: int, parameters: Parameters) -> None:
        self.chance = random.Random(seed)
        self.audit = Audit()
        self.sizes: dict[str, int] = {}
        self.open: dict[str, str] = {}
        """Session by request, asked and not over."""
        self.num_sessions = 0
        super().__init__(*pools, parameters=parameters)

    def play(self, num_moves: int) -> None:
        """So many moves, each of them followed by its consequences."""
        for _ in range(num_moves):
            move = self.chance.random()
            if move < 0.4:
                for _ in range(self.chance.choice([1, 1, 1, 4])):
                    self.request()
            elif move < 0.7:
                self.reply()
            elif move < 0.74:
                self.leave()
            else:
                self.let_pass(self.chance.choice([0.3, 2.0, 5.0, 5.0, 45.0]))

    def request(self) -> None:
        """A new session's first turn, or a known one's next."""
        if not self.sizes or self.chance.random() < self.new_share:
            self.num_sessions += 1
            name = f"s{self.num_sessions}"
            self.sizes[name] = self.chance.choice([2_000, 6_000, 10_000, 16_000, 38_000])
        else:
            name = self.chance.choice(sorted(self.sizes))
        if self.one_call_at_a_time and name in self.open.values():
            return
        self.open[self.ask(name, self.sizes[name])] = name

    def reply(self) -> None:
        """A running call ends."""
        running = [r for r in self.open if r in self.engine.state.lease_by_request]
        if running:
            request_id = self.chance.choice(running)
            name = self.open.pop(request_id)
            self.sizes[name] = min(39_000, self.sizes[name] + self.chance.choice([50, 900]))
            output = self.chance.choice([20, 400])
            self.done(request_id, input_tokens=self.sizes[name], output_tokens=output)
            if self.chance.random() < 0.7:
                # Its seat is given away while others wait; it comes back all the same.
                self.tool(name, remaining_s=10_000.0)

    def leave(self) -> None:
        """A session without a call ends."""
        idle = sorted(set(self.sizes) - set(self.open.values()))
        if idle:
            name = self.chance.choice(idle)
            del self.sizes[name]
            self.end(name)

    def let_pass(self, seconds: float) -> None:
        """Time, with everybody alive."""
        self.idle(seconds)
        self.open = {r: s for r, s in self.open.items() if r not in self.rejects}

    def step(self, *events: Event, after_s: float = 0.0) -> list[Effect]:
        """One step, with what it granted noted down."""
        alive = [LeaseRenewed(lease_id=x) for x in list(self.engine.state.leases)]
        for turn in self.engine.state.held.values():
            turn.poll_deadline_s = None
        effects = super().step(*alive, *events, after_s=after_s)
        fresh: list[Granted] = []
        for effect in effects:
            lease = isinstance(effect, Grant) and self.engine.state.leases.get(effect.lease_id)
            if not isinstance(effect, Grant) or not lease or effect.is_repeat:
                continue
            credit = effect.receipt.cache_credit_tokens
            fresh.append(
                Granted(
                    time_s=self.now_s,
                    request_id=effect.request_id,
                    session_id=lease.session.key.session_id,
                    backend_id=effect.backend_id,
                    reason=effect.receipt.reason,
                    hold_s=effect.receipt.hold_s,
                    need_tokens=lease.need_tokens,
                    uncached_tokens=max(0, lease.need_tokens - credit),
                )
            )
        self.audit.grants += fresh
        self.audit.reasons.update(granted.reason for granted in fresh)
        self.look(fresh)
        return effects

    def look(self, fresh: list[Granted]) -> None:
        """After every step: what it granted."""
