"""What an agent will do, written down beforehand: its turns, their lengths, the tools between them.

A script is all that a simulated agent knows. The engine under test sees a duration only once it has
passed: starts are told when they happen, ends when their time has come.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolScript:
    """One tool call that follows a reply."""

    name: str
    key: str = ""
    """Command head; empty: the agent keeps it to itself."""
    offset_s: float = 0.0
    """From the end of the reply to the start of the call."""
    duration_s: float
    timeout_s: float | None = None
    background: bool = False
    """True: the next turn does not wait for it."""

    @property
    def end_s(self) -> float:
        """From the end of the reply to the end of the call."""
        return self.offset_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnScript:
    """One model call, and what happens between its reply and the next one."""

    input_tokens: int
    """The whole prompt."""
    output_tokens: int
    kept_tokens: int = 0
    """Leading tokens that this prompt has in common with the previous prompt and its reply."""
    tools: tuple[ToolScript, ...] = ()
    gap_s: float = 0.0
    """After the last tool call: a person, the harness."""

    @property
    def tool_phase_s(self) -> float:
        """From the end of the reply to the end of the last call that the session waits for."""
        return max((tool.end_s for tool in self.tools if not tool.background), default=0.0)

    @property
    def idle_s(self) -> float:
        """From the end of the reply to the next turn."""
        return self.tool_phase_s + self.gap_s


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScript:
    """One agent run."""

    session_id: str
    turns: tuple[TurnScript, ...]
    shared_tokens: int = 0
    """Leading tokens that all sessions of the same `family` have in common."""
    family: str = ""
    """Sessions of one family share a system prompt; the workload's name for its kind of task."""
    parent_session_id: str | None = None
    arrival_s: float | None = None
    """On the clock of the whole trace; `None`: the trace does not say."""

    def __post_init__(self) -> None:
        """Reject what no agent could do."""
        if not self.turns:
            raise ValueError(f"session {self.session_id} has no turn")
        for turn in self.turns:
            if turn.input_tokens < 1 or turn.output_tokens < 1:
                raise ValueError(f"session {self.session_id}: a prompt and a reply have tokens")
            if not 0 <= turn.kept_tokens <= turn.input_tokens:
                raise ValueError(f"session {self.session_id}: more kept than there is prompt")

    @property
    def output_tokens(self) -> int:
        """Tokens of all replies."""
        return sum(turn.output_tokens for turn in self.turns)

    @property
    def tools_s(self) -> float:
        """Time in tool calls that the session waits for."""
        return sum(turn.tool_phase_s for turn in self.turns[:-1])

    def renamed(self, session_id: str) -> "SessionScript":
        """The same run under another name."""
        return replace(self, session_id=session_id)


def mean_private_tokens(sessions: "list[SessionScript]") -> float:
    """Context of a session without what it shares, averaged over turns: one worker's footprint.

    Working set over pool is this times the number of workers, over the pool without the shared
    prefix. An average over turns stands for one over time.
    """
    contexts = [
        max(0, turn.input_tokens + turn.output_tokens - session.shared_tokens)
        for session in sessions
        for turn in session.turns
    ]
    if not contexts:
        raise ValueError("no sessions, no footprint")
    return sum(contexts) / len(contexts)
