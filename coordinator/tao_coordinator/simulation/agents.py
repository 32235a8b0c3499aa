"""Simulated agents: they ask, wait, call, use tools and tell of it, as an agent with the SDK does.

A lease is renewed 1 s after it was granted and every 10 s from then on, and released with the usage
seen at the last token. A refusal with a `retry_after_s` is obeyed; a call lost with its backend is
sent again after 0.5 s, 1 s, 2 s, up to 8 s. What the caller pays for it counts: the turn was asked
for when its tool ended, whatever happened since.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from tao_coordinator.core.effects import Grant, Reject, RejectReason
from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    LeaseRenewed,
    PollStarted,
    SessionEnded,
    ToolEnded,
    ToolStarted,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript
from tao_coordinator.simulation.load import Load
from tao_coordinator.simulation.prompt_blocks import Families, PromptBlocks
from tao_coordinator.simulation.request import SimOutput, SimRequest
from tao_coordinator.simulation.run_record import SessionRow, TurnRow

if TYPE_CHECKING:
    from tao_coordinator.simulation.fleet import Fleet

FIRST_RENEWAL_S: Final = 1.0
RENEWAL_S: Final = 10.0
RETRY_S: Final = 0.5
RETRY_S_MAX: Final = 8.0
FOR_GOOD: Final = frozenset({RejectReason.TOO_LARGE, RejectReason.MODEL_NOT_SERVED})
"""Refusals after which no agent asks again."""


class Sent(Enum):
    """What became of a call that was sent to a backend."""

    ACCEPTED = "accepted"
    NOBODY = "nobody listens"
    TOO_LARGE = "larger than the pool"


@dataclass(slots=True)
class Agent:
    """One running session."""

    number: int
    script: SessionScript
    context: PromptBlocks
    started_s: float
    turn: int = 0
    attempt: int = 0
    asked_s: float = 0.0
    granted_s: float = 0.0
    lease_id: str = ""
    """Empty: no call is in flight."""
    credit_tokens: int = 0
    chain: tuple[int, ...] = ()
    """Blocks of its latest prompt and reply."""
    backend: int = -1
    """That of its latest call."""
    previous_backend: int = -1
    """That of the turn before."""
    paused_s: float = 0.0
    """In tools and gaps so far."""

    @property
    def session_id(self) -> str:
        """As the engine knows it."""
        return self.script.session_id

    @property
    def request_id(self) -> str:
        """Of the turn under way."""
        return f"{self.session_id}/{self.turn}.{self.attempt}"

    @property
    def context_tokens(self) -> int:
        """What it wants cached: its latest prompt and reply without what others share."""
        latest = self.script.turns[max(0, self.turn - 1)]
        return max(0, latest.input_tokens + latest.output_tokens - self.script.shared_tokens)

    @property
    def current(self) -> TurnScript:
        """The turn under way."""
        return self.script.turns[self.turn]


class Agents:
    """All sessions of a run."""

    def __init__(self, fleet: "Fleet", sessions: Sequence[SessionScript], load: Load) -> None:
        """Put the starts into the fleet's queue."""
        self._fleet = fleet
        self._load = load
        self._families = Families(fleet.settings.block_size)
        self._waiting: Iterator[tuple[int, SessionScript]] = enumerate(sessions)
        self._num_left = len(sessions)
        self._by_request: dict[str, Agent] = {}
        self.live: dict[int, Agent] = {}
        self._num_coming = 0
        for time_s, number in load.starts(len(sessions)):
            self._num_coming += 1
            fleet.at(time_s, self._start_many, number)

    @property
    def num_live(self) -> int:
        """Sessions that have started and not ended."""
        return len(self.live)

    @property
    def context_tokens(self) -> int:
        """Private tokens of the running sessions' latest prompts and replies."""
        return sum(agent.context_tokens for agent in self.live.values())

    @property
    def num_unfinished(self) -> int:
        """Live ones and those that wait for a worker."""
        return len(self.live) + self._num_left

    @property
    def are_done(self) -> bool:
        """Nobody runs and nobody will start."""
        return not self.live and (self._num_left == 0 or self._num_coming == 0)

    # --- a session -------------------------------------------------------------------------------

    def _start_many(self, number: int) -> None:
        self._num_coming -= 1
        for _ in range(number):
            self._start()

    def _start(self) -> None:
        following = next(self._waiting, None)
        if following is None:
            return
        number, script = following
        self._num_left -= 1
        now_s = self._fleet.now_s
        context = self._families.context(script.family, script.shared_tokens)
        self._fleet.record.last_start_s = now_s
        agent = self.live[number] = Agent(number, script, context, now_s)
        self._ask(agent, ())

    def _end(self, agent: Agent, *, failed: bool) -> None:
        fleet = self._fleet
        del self.live[agent.number]
        fleet.record.sessions.append(
            SessionRow(
                session=agent.number,
                started_s=agent.started_s,
                ended_s=fleet.now_s,
                num_turns=agent.turn,
                tools_s=agent.paused_s,
                failed=failed,
            )
        )
        time_s = self._load.after_end(fleet.now_s, len(self.live))
        if time_s is not None:
            self._num_coming += 1
            fleet.at(time_s, self._start_many, 1)

    # --- a turn ----------------------------------------------------------------------------------

    def _ask(self, agent: Agent, before: tuple[Event, ...]) -> None:
        """The session wants its next turn; `before`: what ended just now."""
        agent.asked_s = self._fleet.now_s
        self._ask_again(agent, before)

    def _ask_again(self, agent: Agent, before: tuple[Event, ...] = ()) -> None:
        request_id = agent.request_id
        self._by_request[request_id] = agent
        asked = TurnRequested(
            request_id=request_id,
            session_id=agent.session_id,
            root_session_id=agent.script.parent_session_id,
            parent_session_id=agent.script.parent_session_id,
            input_tokens=agent.current.input_tokens,
        )
        self._fleet.step(*before, asked, PollStarted(request_id=request_id))

    def refused(self, reject: Reject) -> None:
        """The engine has refused a turn."""
        agent = self._by_request.pop(reject.request_id)
        if reject.reason in FOR_GOOD:
            self._end(agent, failed=True)
            self._fleet.at(
                self._fleet.now_s, self._fleet.step, SessionEnded(session_id=agent.session_id)
            )
            return
        self._fleet.record.num_refused += 1
        agent.attempt += 1
        wait_s = RETRY_S_MAX if reject.retry_after_s is None else reject.retry_after_s
        self._fleet.at(self._fleet.now_s + max(RETRY_S, wait_s), self._ask_again, agent)

    def granted(self, grant: Grant) -> None:
        """The engine has given a lease: the call goes out."""
        agent = self._by_request[grant.request_id]
        fleet, turn = self._fleet, agent.current
        agent.granted_s = fleet.now_s
        agent.lease_id = grant.lease_id
        agent.credit_tokens = grant.receipt.cache_credit_tokens
        agent.backend = int(grant.backend_id[1:])
        prompt, reply = agent.context.turn(turn.kept_tokens, turn.input_tokens, turn.output_tokens)
        agent.chain = prompt + reply
        sent = fleet.submit(
            agent.backend,
            SimRequest(
                request_id=grant.request_id,
                prompt_tokens=turn.input_tokens,
                output_tokens=turn.output_tokens,
                block_hashes=prompt,
                output_block_hashes=reply,
            ),
        )
        if sent is Sent.TOO_LARGE:
            self._give_up(agent, grant.lease_id)
        elif sent is Sent.ACCEPTED:
            fleet.at(fleet.now_s + FIRST_RENEWAL_S, self._renew, agent, grant.lease_id)
        else:
            fleet.at(fleet.now_s, self._failed, agent, grant.lease_id)

    def _give_up(self, agent: Agent, lease_id: str) -> None:
        """The engine says that prompt and reply can never fit: the agent stops."""
        fleet = self._fleet
        del self._by_request[agent.request_id]
        agent.lease_id = ""
        released = LeaseReleased(lease_id=lease_id, outcome=TurnOutcome.ERROR)
        fleet.at(fleet.now_s, fleet.step, released, SessionEnded(session_id=agent.session_id))
        self._end(agent, failed=True)

    def _renew(self, agent: Agent, lease_id: str) -> None:
        if agent.lease_id == lease_id:
            self._fleet.step(LeaseRenewed(lease_id=lease_id))
            self._fleet.at(self._fleet.now_s + RENEWAL_S, self._renew, agent, lease_id)

    def lost(self, backend: int) -> None:
        """A backend died: its calls end in connection errors."""
        for agent in list(self.live.values()):
            if agent.lease_id and agent.backend == backend:
                self._failed(agent, agent.lease_id)

    def _failed(self, agent: Agent, lease_id: str) -> None:
        if agent.lease_id != lease_id:
            return
        fleet = self._fleet
        fleet.record.num_errors += 1
        del self._by_request[agent.request_id]
        agent.lease_id = ""
        agent.attempt += 1
        fleet.step(LeaseReleased(lease_id=lease_id, outcome=TurnOutcome.ERROR))
        wait_s = min(RETRY_S_MAX, RETRY_S * 2.0 ** (agent.attempt - 1))
        fleet.at(fleet.now_s + wait_s, self._ask_again, agent)

    def replied(self, output: SimOutput) -> None:
        """A call has its last token."""
        agent = self._by_request.pop(output.request_id)
        fleet, turn, script = self._fleet, agent.current, agent.script
        now_s = fleet.now_s
        fleet.record.turns.append(self._row(agent, output))
        released = LeaseReleased(
            lease_id=agent.lease_id,
            input_tokens=turn.input_tokens,
            cached_tokens=output.cached_tokens if fleet.settings.reports_cached else None,
            output_tokens=turn.output_tokens,
            ttft_s=output.first_token_s - agent.granted_s,
            duration_s=now_s - agent.granted_s,
        )
        agent.lease_id = ""
        agent.previous_backend = agent.backend
        agent.turn += 1
        agent.attempt = 0
        if agent.turn == len(script.turns):
            fleet.step(released, SessionEnded(session_id=agent.session_id))
            self._end(agent, failed=False)
            return
        self._use_tools(agent, turn, released)

    def _row(self, agent: Agent, output: SimOutput) -> TurnRow:
        turn, script = agent.current, agent.script
        shared = min(script.shared_tokens, turn.input_tokens)
        return TurnRow(
            session=agent.number,
            turn=agent.turn,
            backend=agent.backend,
            asked_s=agent.asked_s,
            granted_s=agent.granted_s,
            admitted_s=output.admitted_s,
            first_token_s=output.first_token_s,
            finished_s=self._fleet.now_s,
            input_tokens=turn.input_tokens,
            output_tokens=turn.output_tokens,
            cached_tokens=output.cached_tokens,
            reusable_tokens=max(turn.kept_tokens, shared),
            shared_tokens=shared,
            credit_tokens=agent.credit_tokens,
            moved=agent.previous_backend not in (-1, agent.backend),
        )

    # --- tools -----------------------------------------------------------------------------------

    def _use_tools(self, agent: Agent, turn: TurnScript, released: LeaseReleased) -> None:
        """Start what follows the reply; the last end and the next turn are told together."""
        fleet = self._fleet
        now_s, idle_s = fleet.now_s, turn.idle_s
        agent.paused_s += idle_s
        at_once: list[Event] = [released]
        last: list[Event] = []
        for number, tool in enumerate(turn.tools):
            call_id = f"{agent.turn}.{number}"
            started = _started(agent, call_id, tool)
            ended = ToolEnded(
                session_id=agent.session_id,
                call_id=call_id,
                name=tool.name,
                key=tool.key,
                duration_s=tool.duration_s,
            )
            if tool.offset_s > 0.0:
                fleet.at(now_s + tool.offset_s, fleet.step, started)
            else:
                at_once.append(started)
            if tool.end_s == idle_s:
                last.append(ended)
            else:
                fleet.at(now_s + tool.end_s, fleet.step, ended)
        fleet.step(*at_once)
        if fleet.tool_offload is not None:
            fleet.tool_offload.tools_started(agent, turn)
        fleet.at(now_s + idle_s, self._ask, agent, tuple(last))


def _started(agent: Agent, call_id: str, tool: ToolScript) -> ToolStarted:
    return ToolStarted(
        session_id=agent.session_id,
        call_id=call_id,
        name=tool.name,
        key=tool.key,
        timeout_s=tool.timeout_s,
        background=tool.background,
    )
