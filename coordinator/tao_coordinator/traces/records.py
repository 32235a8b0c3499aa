"""What a trace says, whatever its format: sessions, turns and the tool calls between them.

Times are seconds on the session's own clock, which starts at 0. Policies and predictors must not
see a duration before it has passed: a replay hands out starts first and ends when their time has
come.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tao_coordinator.errors import CoordinatorError

SKIPPED_SHOWN_MAX = 20
"""Messages about damaged rows that are kept; all are counted."""
_REASON_CHARS_MAX = 200


class MalformedTrace(CoordinatorError, ValueError):
    """The text is no trace of the expected format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecord:
    """One tool call."""

    call_id: str
    tool: str
    key: str = ""
    """Command head; empty: unknown."""
    start_s: float
    duration_s: float
    timeout_s: float | None = None
    background: bool = False
    """True: the session went on without waiting for it."""
    is_error: bool = False

    @property
    def end_s(self) -> float:
        """When its result was there."""
        return self.start_s + self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """One model call, with the tool calls whose results it consumed."""

    request_id: str
    arrival_s: float
    """When the session asked for it."""
    hold_s: float = 0.0
    """Before it was sent; not part of `duration_s`."""
    duration_s: float | None = None
    """Send to last token as observed; calibration only."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """Of the prompt, as the engine that served it said."""
    output_tokens: int | None = None
    tools: tuple[ToolRecord, ...] = ()
    """Calls between the previous turn and this one, by start."""
    gap_s: float = 0.0
    """Time since the previous turn's end that no tool call accounts for."""
    gap_is_person: bool = False
    """The gap is known to be a person's."""
    block_size: int | None = None
    block_runs: tuple[tuple[int, int], ...] = ()
    """Prefix blocks of the prompt as (first id, count) runs; equal ids are equal content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One agent run."""

    session_id: str
    turns: tuple[TurnRecord, ...]
    parent_session_id: str | None = None
    """Set for a sub-agent."""
    arrival_s: float | None = None
    """Start on the clock of the whole trace; `None`: the trace does not say."""
    harness: str = ""
    model: str = ""
    source: str = ""
    output_tokens_are_reliable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Rows that could not be used."""

    count: int = 0
    messages: tuple[str, ...] = ()
    """What was wrong with the first of them."""

    def first_reason(self) -> str:
        """Bracketed, to end a message that nothing could be used; empty: nothing was wrong."""
        return f" ({self.messages[0][:_REASON_CHARS_MAX]})" if self.messages else ""

    def __add__(self, other: "Skipped") -> "Skipped":
        """Both together."""
        messages = (self.messages + other.messages)[:SKIPPED_SHOWN_MAX]
        return Skipped(count=self.count + other.count, messages=messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything read from one or more texts."""

    format: str
    sessions: tuple[SessionRecord, ...]
    skipped: Skipped = field(default_factory=Skipped)

    @property
    def num_turns(self) -> int:
        """Turns of all sessions."""
        return sum(len(session.turns) for session in self.sessions)

    @property
    def num_tool_calls(self) -> int:
        """Tool calls of all sessions."""
        return sum(len(turn.tools) for session in self.sessions for turn in session.turns)


def told_apart(sessions: Sequence[SessionRecord]) -> tuple[SessionRecord, ...]:
    """A session id that comes again gets a number that no other has."""
    taken = {session.session_id for session in sessions}
    counts: dict[str, int] = {}
    found: list[SessionRecord] = []
    for session in sessions:
        name, count = session.session_id, counts.get(session.session_id, 0) + 1
        while count > 1 and (name := f"{session.session_id}#{count}") in taken:
            count += 1
        counts[session.session_id] = count
        taken.add(name)
        found.append(replace(session, session_id=name))
    return tuple(found)


class SkippedRows:
    """Collects what is wrong with damaged rows while a text is read."""

    def __init__(self, prefix: str = "") -> None:
        """Start with none.

        Args:
            prefix: of every message, where several texts are read.
        """
        self._prefix = prefix
        self._count = 0
        self._messages: list[str] = []

    def add(self, where: str, why: str) -> None:
        """Note one damaged row."""
        self._count += 1
        if len(self._messages) < SKIPPED_SHOWN_MAX:
            self._messages.append(f"{self._prefix}{where}: {why}")

    def to_value(self) -> Skipped:
        """What was collected."""
        return Skipped(count=self._count, messages=tuple(self._messages))
