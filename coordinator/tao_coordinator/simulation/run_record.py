"""What a simulated run leaves behind: one row per turn, one per session, and a timeline."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class TurnRow(NamedTuple):
    """One turn that got its reply. Times are seconds of the run's clock."""

    session: int
    """Number of the session."""
    turn: int
    backend: int
    asked_s: float
    """The tool ended, or the session began: everything after is waiting or work."""
    granted_s: float
    admitted_s: float
    """The engine began with its prompt."""
    first_token_s: float
    finished_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    """Of the prompt, found in the engine's cache."""
    reusable_tokens: int
    """Of the prompt, computed in an earlier turn of the session or shared with others."""
    shared_tokens: int
    """Of the prompt, in common with other sessions."""
    credit_tokens: int
    """Private tokens that the coordinator expected to be cached."""
    moved: bool
    """Ran elsewhere than the turn before."""


class SessionRow(NamedTuple):
    """One session that ended."""

    session: int
    started_s: float
    ended_s: float
    num_turns: int
    tools_s: float
    """In tool calls and other pauses of its own."""
    failed: bool
    """It was refused for good, or its calls failed too often."""


class Moment(NamedTuple):
    """The fleet at one time."""

    time_s: float
    running: int
    waiting: int
    """In the engines' own queues."""
    held: int
    live_sessions: int
    kv_used: float
    """Highest share of a pool that running calls reference, 0..1."""
    prompt_tokens: int
    """Prompts looked up in the engines' caches since the start."""
    cached_tokens: int
    generated_tokens: int
    context_tokens: int
    """Private contexts of the live sessions, as of their latest prompts: the working set."""


@dataclass(slots=True)
class RunRecord:
    """Everything measured in one run."""

    turns: list[TurnRow] = field(default_factory=list[TurnRow])
    sessions: list[SessionRow] = field(default_factory=list[SessionRow])
    timeline: list[Moment] = field(default_factory=list[Moment])
    num_unfinished: int = 0
    """Sessions that ran or waited still when the run was cut."""
    last_start_s: float = 0.0
    """When the last session started: until then the load was as asked for."""
    end_s: float = 0.0
    num_refused: int = 0
    """Turns that were told to come again later."""
    num_errors: int = 0
    """Calls lost with their backend."""
    prefilled_tokens: int = 0
    busy_s: float = 0.0
    """Engine time in steps, over all backends."""
    preemptions: int = 0
    num_steps: int = 0
    """Steps of the coordinator's engine."""
    decision_s: list[float] = field(default_factory=list[float])
    """How long each of them took, by the caller's clock; empty without one."""
    counters: dict[str, int] = field(default_factory=dict[str, int])
    """What the policy counts of itself: grants by reason, plans, fallbacks, seats released."""
    certificates: dict[str, float] = field(default_factory=dict[str, float])
    """How good the plans were, where the policy rates them: shares and gaps by name."""
    readiness: dict[str, float] = field(default_factory=dict[str, float])
    """Brier score and coverage of the policy's predictor, where it has one."""
    capacity_factors: list[float] = field(default_factory=list[float])
    """gamma of each backend at the end."""

    def column(self, name: str) -> Floats:
        """One field of all turns, in the order in which they finished."""
        index = TurnRow._fields.index(name)
        return np.array([row[index] for row in self.turns], np.float64)

    def session_column(self, name: str) -> Floats:
        """One field of all sessions, in the order in which they ended."""
        index = SessionRow._fields.index(name)
        return np.array([row[index] for row in self.sessions], np.float64)
