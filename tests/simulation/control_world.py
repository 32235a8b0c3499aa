"""One loaded backend whose controller is watched: scripted disturbances around the real Engine.

Sessions are those of coding agents: a shared prompt of 12k tokens, many small steps, seventeen
workers that want about 1.5 times the pool. What a test disturbs (load, sensors, metrics), it
scripts by virtual time.
"""

from collections.abc import Callable
from itertools import pairwise

from fleet_world import FleetWorld, ScriptedSession, many_small_steps

from tao_coordinator.core.effects import Effect, Grant, Hold
from tao_coordinator.core.events import Event, SessionEnded, TurnAbandoned
from tao_coordinator.simulation.request import SimOutput

POOL = 307_000
SHARED = 12_000
NUM_WORKERS = 17

Action = Callable[["ControlWorld"], None]


def coding_agents(number: int, seed: int, p_compaction: float = 0.0) -> list[ScriptedSession]:
    """Sessions with the shared prompt, started as workers become free."""
    return many_small_steps(number, seed, shared_tokens=SHARED, p_compaction=p_compaction)


class ControlWorld(FleetWorld):
    """Watches gamma, occupancy and waiting, and runs a script."""

    shared_prefix_tokens = SHARED
    check_every = 25

    def __init__(
        self,
        policy: str,
        sessions: list[ScriptedSession],
        pools: list[int],
        *,
        script: dict[float, Action] | None = None,
        watch: Callable[["ControlWorld"], float] | None = None,
        **settings: object,
    ) -> None:
        self.script = sorted((script or {}).items())
        self.gamma: list[tuple[float, float]] = []
        """(time, gamma of the first backend) after every step that changed it."""
        self.in_flight_ratio_max = 0.0
        """Largest share of the pool that calls in flight needed."""
        self.waits: list[tuple[float, float]] = []
        """(estimated, real) wait in seconds of every held turn that was granted."""
        self.watched: list[tuple[float, float]] = []
        """(time, value of `watch`) every five seconds."""
        self._watch = watch
        self._extra: set[str] = set()
        """Sessions that came on top of the workers: when they end no worker is free."""
        self._ending = ""
        self._estimates: dict[str, tuple[float, float]] = {}
        super().__init__(policy, sessions, pools, **settings)  # pyright: ignore[reportArgumentType]

    def _next_time_s(self) -> float:
        time_s = super()._next_time_s()
        return max(self.now_s, min(time_s, self.script[0][0])) if self.script else time_s

    def _step(self, *events: Event) -> None:
        while self.script and self.script[0][0] <= self.now_s:
            self.script.pop(0)[1](self)
        num_seen = len(self.log)
        super()._step(*events)
        for time_s, effect in self.log[num_seen:]:
            self._note_wait(time_s, effect)
        backend = self.engine.state.backends["b0"]
        if not self.gamma or self.gamma[-1][1] != backend.capacity_factor:
            self.gamma.append((self.now_s, backend.capacity_factor))
        pool = self.engine.state.pool_tokens(backend)
        if pool:
            share = backend.cache.in_flight_tokens / pool
            self.in_flight_ratio_max = max(self.in_flight_ratio_max, share)

        if self._watch and (not self.watched or self.now_s >= self.watched[-1][0] + 5.0):
            self.watched.append((self.now_s, self._watch(self)))

    def _note_wait(self, time_s: float, effect: Effect) -> None:
        if isinstance(effect, Hold):
            self._estimates.setdefault(effect.request_id, (time_s, effect.estimated_wait_s))
        elif isinstance(effect, Grant) and effect.request_id in self._estimates:
            held_s, estimate_s = self._estimates.pop(effect.request_id)
            self.waits.append((estimate_s, time_s - held_s))

    def _ask(self, name: str) -> None:
        if self.sessions[name].ended_s is None:
            super()._ask(name)

    def _finished(self, output: SimOutput) -> None:
        self._ending = output.request_id.partition(":")[0]
        super()._finished(output)

    def _start_next(self) -> None:
        if self._ending not in self._extra:
            super()._start_next()

    def inject(self, *events: Event) -> None:
        """Events from outside the sessions: samples, failures."""
        super()._step(*events)

    def arrive(self, sessions: list[ScriptedSession]) -> None:
        """More sessions, by their own clock from now on."""
        for session in sessions:
            session.starts_s += self.now_s
            self.sessions[session.name] = session
            self._extra.add(session.name)
            self._at(session.starts_s, "ask", session.name)

    def cancel(self, prefix: str) -> None:
        """Whoever started these sessions kills them: held turns are taken back, tools end."""
        for session in self.sessions.values():
            if not session.name.startswith(prefix) or session.ended_s is not None:
                continue
            request_id = f"{session.name}:{session.index}"
            if request_id in self._requests:
                session.turns = session.turns[: session.index + 1]  # ends with its reply
                continue
            session.ended_s = self.now_s
            if request_id in self.engine.state.held:
                self.inject(TurnAbandoned(request_id=request_id))
            self.inject(SessionEnded(session_id=session.name))

    def gamma_between(self, start_s: float, end_s: float) -> list[float]:
        """Values that gamma had in this span."""
        before = [value for time_s, value in self.gamma if time_s <= start_s]
        return before[-1:] + [value for time_s, value in self.gamma if start_s < time_s <= end_s]

    def watched_between(self, start_s: float, end_s: float) -> list[float]:
        """Samples of `watch` in this span."""
        return [value for time_s, value in self.watched if start_s <= time_s <= end_s]

    def num_turns(self) -> int:
        """How often gamma changed its direction."""
        moves = [after - before for (_, before), (_, after) in pairwise(self.gamma)]
        return sum(first * second < 0.0 for first, second in pairwise(moves))
