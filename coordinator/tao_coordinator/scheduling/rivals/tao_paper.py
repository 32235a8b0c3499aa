r"""TAO as published: a joint plan for all paused sessions each second, valued by the token.

Source: arXiv 2610.37230, of which no code is public. [S]: the source says so; [R]: reconstructed,
since it says nothing, mostly as ThunderAgent does it, whose terms and constants it shares.

A session is *active* on one backend or *paused* in one pool for the fleet. Every second [S]:

    w_ib = t_i - shared prefix + 512                                       [S] tokens
    C_b  = capacity - shared prefix - sum of w_ib over active sessions     [S] tokens; no headroom
    k_ib = round(k0_ib * 2^(-tau_ib / h)),  h = 10 s                       [S] tokens (Eq. 4)
    v_ib = (k_ib, r_i, t_i), lexicographic                                 [S] (Eq. 2)

1. *Pause* where C_b < 0: lowest value first, those without a call first; if they do not suffice,
   running ones are marked, as many as needed, and paused when their call ends [R].
2. *Resume*: all paused sessions, those in a tool too, are placed at once by the dynamic programme
   on a grid of budgets [S] (Eq. 3 and 7, `placement.dense_grid`); with more states than the state
   budget, best-fit-decreasing, which looks at sizes alone [S]. Fallbacks are counted.

t_i: prompt while a call runs or waits, else prompt + output of the last reply. k0_ib: what its last
reply left on the backend that ran it, all of it; tau: age of that, 0 while a call runs [R].
r_i: 1 if a call waits, else what the published predictor says of the next second (H = 1 s, probes,
30 s staleness: `prediction.paper`).

Between ticks nobody is chosen: calls of active sessions go at once; a new session joins the backend
with most room if it fits there and nobody is paused, else the pool [R].

Reconstructed besides: grid step and state budget, which are not stated. With these, 8 % of the
plans of a simulated fleet of four backends are fallbacks (reported: 3 to 9 %), on two none
(reported: 5 %); coarser or finer grids are no better there. Budgets enter the programme at no more
than what all candidates weigh, which changes no plan and saves states. w_ib is at most the whole
grid of an empty backend: else one large session would wait for ever by rounding.

The source plans beside the loop, drops a plan whose sessions changed meanwhile and applies the
longest prefix that still fits. Here a plan meets the state that it was made for: the best case.

There is no bound on waiting, no bypass for residents, no growth reserve beyond 512 tokens and no
correction of the reported capacity: the source has none. Lowered by hand (`--capacity-scale 0.9`)
the capacity serves as the headroom that is missing.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tao_coordinator.core.model import Backend, Session, Turn
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.core.state import State
from tao_coordinator.prediction.paper import PaperPredictor, PaperSettings
from tao_coordinator.prediction.predictor import ReadinessPredictor
from tao_coordinator.scheduling.placement import PlacementProblem
from tao_coordinator.scheduling.placement.problem import Int64
from tao_coordinator.scheduling.policy import Assignment
from tao_coordinator.scheduling.rivals import grid_decision
from tao_coordinator.scheduling.rivals.grid_decision import Decide
from tao_coordinator.scheduling.rivals.notes import SessionNotes
from tao_coordinator.scheduling.rivals.pacing import Every, engine_second_s

Value = tuple[int, int, int]
"""(k, r, t)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaoPaperParameters:
    """Published constants, and two that are not; durations in seconds of the engines' time."""

    interval_s: float = 1.0
    """Between two plans [S]."""
    half_life_s: float = 10.0
    """h [S]."""
    reserve_tokens: int = 512
    """Beside each session [S]."""
    horizon_s: float = 1.0
    """H [S]."""
    quantum_tokens: int = 1024
    """Grid step [R]."""
    states_max: int = 65_536
    """State budget [R]."""
    uses_readiness: bool = True
    """False: r = 0 for everybody, who is back and who is not; for comparisons."""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.quantum_tokens < 1 or self.states_max < 1 or self.reserve_tokens < 0:
            raise ValueError("quantum and state budget must be at least 1, the reserve 0")
        if not (self.interval_s > 0 and self.half_life_s > 0 and self.horizon_s > 0):
            raise ValueError("durations must be positive")


@dataclass(slots=True)
class Standing:
    """What the policy knows of one session."""

    asked_tokens: int = 0
    """Prompt of its latest call."""
    backend_id: str | None = None
    """`None`: paused."""
    is_marked: bool = False
    """To be paused when its call ends."""
    reason: str = "new"
    """How it came to its backend: `new`, `planned`, `fallback`."""


class Contest(NamedTuple):
    """Who competes for what."""

    pool: list[tuple[Session, Standing]]
    backends: list[Backend]
    problem: PlacementProblem
    """Of exactly these, in their order."""

    def carry_out(self, backend_of: Int64, reason: str) -> None:
        """Resume the chosen: [n] index of a backend, -1 = stays paused."""
        indices: list[int] = backend_of.tolist()
        for (_, standing), b in zip(self.pool, indices, strict=True):
            if b >= 0:
                standing.backend_id, standing.reason = self.backends[b].backend_id, reason


def published_readiness(parameters: Parameters) -> PaperPredictor:
    """The paper's predictor; its constants follow the engines' time."""
    second_s, plain = engine_second_s(parameters), PaperSettings()
    return PaperPredictor(
        replace(
            plain,
            horizon_s=plain.horizon_s * second_s,
            stale_s=plain.stale_s * second_s,
            default_s=plain.default_s * second_s,
            probe_gap_s_max=plain.probe_gap_s_max * second_s,
        )
    )


class TaoPaper:
    """Evaluate, then decide jointly; on a tick, within what fits, and without a bound."""

    name = "tao-paper"

    def __init__(
        self,
        readiness: ReadinessPredictor,
        parameters: TaoPaperParameters | None = None,
        decide: Decide = grid_decision.decide,
    ) -> None:
        """Decide on what `readiness` says, which the engine feeds, and as `decide` places it."""
        self.readiness = readiness
        self.decide = decide
        self.parameters = parameters or TaoPaperParameters()
        self.num_plans = 0
        """Ticks with candidates, fallbacks included."""
        self.num_fallbacks = 0
        """Of these, decided by best-fit-decreasing."""
        self.num_states = 0
        """Of all programmes that were solved."""
        self._clock = Every(self.parameters.interval_s)
        self._standings: SessionNotes[Standing] = SessionNotes()

    # --- protocol --------------------------------------------------------------------------------

    def immediate(self, state: State, turn: Turn, now_s: float) -> Assignment | None:
        """At once when its session is active, or is new and meets no queue."""
        session = turn.session
        standing = self._standings.get(session)
        is_new = standing is None
        if standing is None:
            standing = self._standings.put(session, Standing())
        standing.asked_tokens = turn.input_tokens
        if standing.is_marked and not session.lease_ids:
            self._pause(standing)
        backend = self._home(state, session, standing)
        if backend is not None:
            return Assignment(turn=turn, backend=backend, reason="sticky")
        if not (is_new or standing.backend_id):
            return None
        # It is new, or its backend is gone: then it has to start anew.
        self._standings.sweep(state)
        self._pause(standing)
        if any(n.backend_id is None for _, n in self._standings if n is not standing):
            return None
        backend = self._roomiest(state, session, standing)
        if backend is None:
            return None
        standing.backend_id, standing.reason = backend.backend_id, "new"
        return Assignment(turn=turn, backend=backend, reason="new")

    def interrupts(self, state: State, now_s: float) -> list[Session]:
        """Decides when a tick is due; the seats of paused sessions."""
        self._standings.sweep(state)
        for session, standing in self._standings:
            if standing.is_marked and not session.lease_ids:
                self._pause(standing)
            elif standing.backend_id and self._home(state, session, standing) is None:
                self._pause(standing)  # its backend is gone
        if self._clock.due(now_s, state.parameters):
            self.pause_lowest(state, now_s)
            self.resume_jointly(state, now_s)
        return [
            session
            for session, standing in self._standings
            if standing.backend_id is None
            and session.seat is not None
            and not session.seat.released
            and not session.lease_ids
        ]

    def admit(self, state: State, now_s: float) -> list[Assignment]:
        """Held turns of sessions that were resumed."""
        found: list[Assignment] = []
        for turn in state.held.values():
            standing = self._standings.get(turn.session)
            backend = None if standing is None else self._home(state, turn.session, standing)
            if standing is None or backend is None:
                continue
            plan_id = self.num_plans if standing.reason == "planned" else None
            found.append(
                Assignment(turn=turn, backend=backend, reason=standing.reason, plan_id=plan_id)
            )
        return found

    @property
    def paused(self) -> list[Session]:
        """The pool, in no order."""
        return [session for session, note in self._standings if note.backend_id is None]

    # --- value -----------------------------------------------------------------------------------

    def value(
        self, state: State, session: Session, standing: Standing, backend: Backend, now_s: float
    ) -> Value:
        """(k, r, t) of a session on a backend."""
        credit = self._credit_tokens(state, session, backend, now_s)
        return credit, self._ready(state, session, now_s), _size_tokens(session, standing)

    def _credit_tokens(self, state: State, session: Session, backend: Backend, now_s: float) -> int:
        if session.last_backend_id != backend.backend_id:
            return 0
        age_s = 0.0 if session.idle_since_s is None else now_s - session.idle_since_s
        half_life_s = self.parameters.half_life_s * engine_second_s(state.parameters)
        return round(session.context_tokens * 2.0 ** (-age_s / half_life_s))

    def _ready(self, state: State, session: Session, now_s: float) -> int:
        if not self.parameters.uses_readiness:
            return 0
        if session.held_ids:
            return 1  # its tools' end was seen: it is back
        horizon_s = self.parameters.horizon_s * engine_second_s(state.parameters)
        answer = self.readiness.remaining(session.key.session_id, now_s)
        return int(answer.p_ready_by(horizon_s) >= 1.0)

    # --- tick ------------------------------------------------------------------------------------

    def pause_lowest(self, state: State, now_s: float) -> None:
        """Where more is used than there is, pause by rising value; the running are marked last."""
        for backend in state.backends.values():
            room = self._room(state, backend)
            if room is None:
                continue
            here = [(s, n) for s, n in self._standings if n.backend_id == backend.backend_id]
            room += sum(self._weight(state, s, n, backend) for s, n in here if n.is_marked)
            if room >= 0:
                continue
            here = [(s, n) for s, n in here if not n.is_marked]
            here.sort(
                key=lambda pair: (_is_running(pair[0]), self.value(state, *pair, backend, now_s))
            )
            for session, standing in here:
                if room >= 0:
                    break
                room += self._weight(state, session, standing, backend)
                if _is_running(session):
                    standing.is_marked = True
                else:
                    self._pause(standing)

    def resume_jointly(self, state: State, now_s: float) -> None:
        """Place what fits of the pool, at once and jointly."""
        contest = self.contest(state, now_s)
        if contest is not None:
            contest.carry_out(*self.plan(contest.problem))

    def contest(self, state: State, now_s: float) -> "Contest | None":
        """Paused sessions that fit somewhere by themselves, and the backends they compete for."""
        everybody = self.everybody(state, now_s)
        if everybody is None:
            return None
        problem = everybody.problem
        fits = problem.eligible & (problem.weights <= problem.budgets[None, :])
        kept = [i for i in range(problem.num_sessions) if fits[i].any()]
        pool = [everybody.pool[i] for i in kept]
        return Contest(pool, everybody.backends, problem.only(kept)) if kept else None

    def everybody(self, state: State, now_s: float) -> "Contest | None":
        """All paused sessions; `None`: there is none, or no backend."""
        pool = [(s, n) for s, n in self._standings if n.backend_id is None and not s.lease_ids]
        backends = [b for b in state.backends.values() if b.usable]
        if not pool or not backends:
            return None
        return Contest(pool, backends, self._problem(state, pool, backends, now_s))

    def plan(self, problem: PlacementProblem) -> tuple[Int64, str]:
        """Backend per session, and by which of the two rules."""
        self.num_plans += 1
        found = self.decide(problem, self.parameters.quantum_tokens, self.parameters.states_max)
        self.num_fallbacks += found.used_fallback
        self.num_states += found.num_states
        return found.backend_of, "fallback" if found.used_fallback else "planned"

    def _problem(
        self,
        state: State,
        pool: list[tuple[Session, Standing]],
        backends: list[Backend],
        now_s: float,
    ) -> PlacementProblem:
        weights = [[self._weight(state, s, n, b) for b in backends] for s, n in pool]
        credits = [[self._credit_tokens(state, s, b, now_s) for b in backends] for s, _ in pool]
        eligible = [[b.serves(s.key.model) for b in backends] for s, _ in pool]
        # Where the capacity is unknown, nobody is kept out for its sake.
        unlimited = sum(max(row) + self.parameters.quantum_tokens for row in weights)
        rooms = [self._room(state, b) for b in backends]
        budgets = [unlimited if room is None else max(0, room) for room in rooms]
        return PlacementProblem(
            weights=np.array(weights, np.int64),
            budgets=np.array(budgets, np.int64),
            classes=np.zeros(len(pool), np.int64),
            credits=np.array(credits, np.int64),
            ready=np.array([self._ready(state, s, now_s) for s, _ in pool], np.int64),
            tokens=np.array([_size_tokens(s, n) for s, n in pool], np.int64),
            eligible=np.array(eligible, bool),
        )

    # --- room ------------------------------------------------------------------------------------

    def _weight(self, state: State, session: Session, standing: Standing, backend: Backend) -> int:
        """w_ib in tokens."""
        private = max(0, _size_tokens(session, standing) - state.shared_tokens(session, backend))
        weight = private + self.parameters.reserve_tokens
        pool = state.pool_tokens(backend)
        quantum = self.parameters.quantum_tokens
        if pool is None or pool < quantum:
            return weight
        return min(weight, pool // quantum * quantum)

    def _room(self, state: State, backend: Backend) -> int | None:
        """C_b in tokens, negative when overfull; `None`: the capacity is unknown."""
        pool = state.pool_tokens(backend)
        if pool is None:
            return None
        return pool - self._used(state, backend)

    def _used(self, state: State, backend: Backend) -> int:
        return sum(
            self._weight(state, s, n, backend)
            for s, n in self._standings
            if n.backend_id == backend.backend_id
        )

    def _roomiest(self, state: State, session: Session, standing: Standing) -> Backend | None:
        """Eligible backend with most room, if the session fits there."""
        best: tuple[float, Backend] | None = None
        for backend in state.eligible(session):
            room = self._room(state, backend)
            if room is not None and room < self._weight(state, session, standing, backend):
                continue
            # Unknown capacities come last, least used first: what is known to fit is safer.
            rank = float(-self._used(state, backend) - 2**62 if room is None else room)
            if best is None or rank > best[0]:
                best = (rank, backend)
        return None if best is None else best[1]

    # --- one session -----------------------------------------------------------------------------

    @staticmethod
    def _home(state: State, session: Session, standing: Standing) -> Backend | None:
        backend = state.backends.get(standing.backend_id or "")
        if backend is None or not (backend.usable and backend.serves(session.key.model)):
            return None
        return backend

    @staticmethod
    def _pause(standing: Standing) -> None:
        standing.backend_id, standing.is_marked = None, False


def _is_running(session: Session) -> bool:
    return bool(session.lease_ids)


def _size_tokens(session: Session, standing: Standing) -> int:
    """t_i: prompt while a call runs or waits, prompt + output of the last reply otherwise."""
    if session.lease_ids or session.held_ids:
        return standing.asked_tokens
    return session.context_tokens or standing.asked_tokens
