"""A closed loop in virtual time: the real Engine, modelled backends, scripted sessions.

The same engine object as in production decides; time is a number. Every step asserts the engine's
invariants. Sessions hide their tool durations from the engine until they have passed.
"""

import heapq
import random
from dataclasses import dataclass, field
from itertools import count

from tao_coordinator.core.effects import Effect, Grant, Reject
from tao_coordinator.core.events import (
    BackendAdded,
    BackendSampled,
    Event,
    LeaseReleased,
    LeaseRenewed,
    PollStarted,
    SessionEnded,
    ToolEnded,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.simulation.backend_model import BackendModel
from tao_coordinator.simulation.engine_constants import PRESETS
from tao_coordinator.simulation.request import SimOutput, SimRequest

BLOCK = 64


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    new_tokens: int
    output_tokens: int
    tool_s: float
    tool_key: str
    compacts: bool = False
    """The prompt is rewritten behind the shared prefix: half as long, nothing else in common."""


@dataclass(slots=True)
class ScriptedSession:
    name: str
    turns: list[ScriptedTurn]
    starts_s: float
    index: int = 0
    context_tokens: int = 0
    generation: int = 0
    """Counts the rewrites of the prompt."""
    asked_s: float = 0.0
    ended_s: float | None = None


@dataclass(slots=True)
class Outcome:
    task_s: list[float] = field(default_factory=list[float])
    ttft_s: list[float] = field(default_factory=list[float])
    hold_started_s_max: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    rejected: list[Reject] = field(default_factory=list[Reject])

    @property
    def mean_task_s(self) -> float:
        return sum(self.task_s) / len(self.task_s)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens


def coding_sessions(number: int, seed: int, num_turns: int = 12) -> list[ScriptedSession]:
    """Sessions that start at 12k tokens and read about 3k more per turn; some tools are long."""
    draw = random.Random(seed)
    sessions: list[ScriptedSession] = []
    for index in range(number):
        turns: list[ScriptedTurn] = []
        for turn in range(num_turns):
            kind = draw.random()
            tool_s, key = draw.uniform(0.1, 1.5), "ls"
            if kind < 0.12:
                tool_s, key = draw.uniform(60.0, 240.0), "make"
            elif kind < 0.4:
                tool_s, key = draw.uniform(2.0, 10.0), "pytest"
            new = 12_000 if turn == 0 else int(draw.gauss(3_000, 800))
            turns.append(ScriptedTurn(max(200, new), draw.randint(60, 300), tool_s, key))
        sessions.append(ScriptedSession(f"s{index}", turns, starts_s=index * 0.5))
    return sessions


def many_small_steps(
    number: int, seed: int, *, shared_tokens: int, p_compaction: float = 0.0
) -> list[ScriptedSession]:
    """Coding agents as published traces show them: 45 turns, small growth, mostly short tools.

    First prompt about 13.4k tokens, growth median 400 (log-normal), replies median 144, a third of
    the tools around 6 s, the rest below 100 ms.
    """
    draw = random.Random(seed)
    sessions: list[ScriptedSession] = []
    for index in range(number):
        turns: list[ScriptedTurn] = []
        for turn in range(max(5, int(draw.gauss(45, 15)))):
            new = int(draw.lognormvariate(6.0, 1.1)) + 1
            if turn == 0:
                new = shared_tokens + int(draw.lognormvariate(7.2, 0.5))
            output = min(2_000, max(8, int(draw.lognormvariate(4.97, 0.9))))
            tool_s = draw.uniform(4.0, 9.0) if draw.random() < 0.33 else draw.uniform(0.01, 0.1)
            compacts = turn > 3 and draw.random() < p_compaction
            turns.append(ScriptedTurn(min(new, 30_000), output, tool_s, "pytest", compacts))
        sessions.append(ScriptedSession(f"s{index}", turns, starts_s=index * 3.0))
    return sessions


class FleetWorld:
    """Runs the sessions to their ends under one policy."""

    check_every = 1
    """Steps between two checks of all invariants: they cost more than the step itself."""
    shared_prefix_tokens = 0
    """Leading tokens that all sessions have in common."""

    def __init__(
        self,
        policy: str,
        sessions: list[ScriptedSession],
        pools: list[int],
        *,
        parameters: Parameters | None = None,
        told_pools: list[int] | None = None,
        num_workers: int | None = None,
    ) -> None:
        self.engine = Engine(parameters or Parameters(), policy)
        constants = PRESETS["qwen3-32b-bf16-tp2"]
        self.models = [
            BackendModel(constants, block_size=BLOCK, capacity_tokens=pool) for pool in pools
        ]
        self.sessions = {session.name: session for session in sessions}
        self.outcome = Outcome()
        self.log: list[tuple[float, Effect]] = []
        self._queue: list[tuple[float, int, str, str]] = []
        self._order = count()
        self._requests: dict[str, tuple[ScriptedSession, Grant, float]] = {}
        self._wakeup_s: float | None = None
        self.now_s = 0.0
        self.reports_cached = True
        self._num_steps = 0
        for index, pool in enumerate(told_pools or pools):
            self._step(
                BackendAdded(backend_id=f"b{index}", base_url="http://x"),
                BackendSampled(backend_id=f"b{index}", capacity_tokens=pool),
            )
        # With `num_workers` the next session starts when one ends; without, by its own clock.
        at_once = sessions if num_workers is None else sessions[:num_workers]
        self._waiting = iter([] if num_workers is None else sessions[num_workers:])
        for session in at_once:
            self._at(session.starts_s, "ask", session.name)

    def run(self, end_s: float = 200_000.0) -> Outcome:
        """Virtual time until every session has ended."""
        while any(session.ended_s is None for session in self.sessions.values()):
            self.now_s = self._next_time_s()
            assert self.now_s < end_s, "sessions do not finish"
            for model in self.models:
                for output in model.advance(self.now_s):
                    if output.finished_s is not None:
                        self._finished(output)
            while self._queue and self._queue[0][0] <= self.now_s:
                _, _, what, name = heapq.heappop(self._queue)
                (self._ask if what == "ask" else self._renew)(name)
            if self._wakeup_s is not None and self._wakeup_s <= self.now_s:
                self._step()
        return self.outcome

    def _next_time_s(self) -> float:
        times = [model.next_event_s() for model in self.models]
        times += [self._queue[0][0] if self._queue else None, self._wakeup_s]
        known = [time_s for time_s in times if time_s is not None]
        assert known, "nothing will ever happen again"
        return max(self.now_s, min(known))

    def _at(self, time_s: float, what: str, name: str) -> None:
        heapq.heappush(self._queue, (time_s, next(self._order), what, name))

    def _step(self, *events: Event) -> None:
        effects, self._wakeup_s = self.engine.step(self.now_s, events)
        self._num_steps += 1
        if self._num_steps % self.check_every == 0:
            self.engine.check()
        for effect in effects:
            self.log.append((self.now_s, effect))
            if isinstance(effect, Grant):
                self._granted(effect)
            elif isinstance(effect, Reject):
                self.outcome.rejected.append(effect)
                self.sessions[effect.request_id.partition(":")[0]].ended_s = self.now_s
                self._start_next()

    def _ask(self, name: str) -> None:
        session = self.sessions[name]
        if session.index:
            self._step(ToolEnded(session_id=name, call_id=f"c{session.index}"))
        turn = session.turns[session.index]
        session.asked_s = self.now_s
        if turn.compacts:
            session.generation += 1
            shared = min(session.context_tokens, self.shared_prefix_tokens)
            session.context_tokens = shared + (session.context_tokens - shared) // 2
        request_id = f"{name}:{session.index}"
        self._step(
            TurnRequested(
                request_id=request_id,
                session_id=name,
                input_tokens=session.context_tokens + turn.new_tokens,
            ),
            PollStarted(request_id=request_id),
        )

    def _granted(self, grant: Grant) -> None:
        name, _, index = grant.request_id.partition(":")
        session = self.sessions[name]
        turn = session.turns[int(index)]
        prompt = session.context_tokens + turn.new_tokens
        total = prompt + turn.output_tokens
        shared = self.shared_prefix_tokens // BLOCK
        own = (name, session.generation)
        hashes = [hash((own if b >= shared else (), b)) for b in range(total // BLOCK)]
        self.models[int(grant.backend_id[1:])].submit(
            self.now_s,
            SimRequest(
                request_id=grant.request_id,
                prompt_tokens=prompt,
                output_tokens=turn.output_tokens,
                block_hashes=tuple(hashes[: prompt // BLOCK]),
                output_block_hashes=tuple(hashes[prompt // BLOCK :]),
            ),
        )
        self._requests[grant.request_id] = (session, grant, self.now_s)
        if session.index:
            hold_s = self.now_s - session.asked_s
            self.outcome.hold_started_s_max = max(self.outcome.hold_started_s_max, hold_s)
        self._at(self.now_s + 1.0, "renew", grant.request_id)

    def _start_next(self) -> None:
        following = next(self._waiting, None)
        if following is not None:
            following.starts_s = self.now_s + 0.5
            self._at(following.starts_s, "ask", following.name)

    def _renew(self, request_id: str) -> None:
        if request_id in self._requests:
            self._step(LeaseRenewed(lease_id=self._requests[request_id][1].lease_id))
            self._at(self.now_s + 10.0, "renew", request_id)

    def _finished(self, output: SimOutput) -> None:
        session, grant, sent_s = self._requests.pop(output.request_id)
        first_token_s, cached = output.first_token_s, output.cached_tokens
        turn = session.turns[session.index]
        prompt = session.context_tokens + turn.new_tokens
        self.outcome.ttft_s.append(first_token_s - session.asked_s)
        self.outcome.prompt_tokens += prompt
        self.outcome.cached_tokens += cached
        session.context_tokens = prompt + turn.output_tokens
        session.index += 1
        release = LeaseReleased(
            lease_id=grant.lease_id,
            input_tokens=prompt,
            cached_tokens=cached if self.reports_cached else None,
            output_tokens=turn.output_tokens,
            ttft_s=first_token_s - sent_s,
            duration_s=self.now_s - sent_s,
        )
        if session.index == len(session.turns):
            session.ended_s = self.now_s
            self.outcome.task_s.append(self.now_s - session.starts_s)
            self._step(release, SessionEnded(session_id=session.name))
            self._start_next()
            return
        call = f"c{session.index}"
        self._step(
            release,
            ToolStarted(session_id=session.name, call_id=call, name="bash", key=turn.tool_key),
        )
        self._at(self.now_s + turn.tool_s, "ask", session.name)
