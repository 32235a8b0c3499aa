"""The work of a cell: synthetic sessions or recorded ones, with what is changed about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tao_coordinator.simulation import synthetic, workload_changes
from tao_coordinator.simulation.agent_script import SessionScript, mean_private_tokens
from tao_coordinator.simulation.trace_sessions import TraceReading, drawn, scripts_of
from tao_coordinator.traces import files
from tao_coordinator.traces.records import Trace

FOOTPRINT_SEED = 1
FOOTPRINT_SESSIONS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadChoice:
    """What the agents do."""

    name: str
    """A synthetic workload, or how a trace is called in tables."""
    trace: str | None = None
    """Path of recorded sessions to use instead of synthetic ones."""
    trace_digest: str = ""
    """Of its content: results of another one under the same path do not count."""
    trace_format: str | None = None
    """`None`: told by the content."""
    trace_shared_tokens: int = 0
    """System prompt that the recorded sessions have in common."""
    gap_s_max: float = 60.0
    """Recorded pauses are cut to this."""
    turns_max: int = 60
    """Longer recorded sessions are cut."""
    context_tokens_max: int = 200_000
    """A recorded session is cut before the turn that needs more."""
    output_tokens_max: int = 4_000
    """Longer recorded replies are cut."""
    as_recorded: bool = False
    """Each recorded session once, in its order, instead of drawn at random."""
    long_tool_share: float = 0.0
    """Calls replaced by ones of 30-300 s."""
    added_delay_s: tuple[float, float] | None = None
    """Fixed delay per session, uniform in these limits, on every call."""
    reuses: bool = True
    """False: every prompt is rewritten behind the shared prefix."""
    children: int = 0
    """Sub-agents of each session that is not one, beginning with its first prompt. Pools and
    footprints say nothing then: such a cell needs its number of workers."""

    def sessions(self, number: int, seed: int) -> list[SessionScript]:
        """The sessions of one run; equal arguments give equal sessions."""
        found: list[SessionScript]
        if self.trace is None:
            found = synthetic.draw_sessions(self.name, number, seed)
        else:
            scripts = self._scripts(seed)
            found = scripts[:number] if self.as_recorded else drawn(scripts, number, seed)
        if self.long_tool_share:
            found = workload_changes.with_long_tools(found, self.long_tool_share, seed)
        if self.added_delay_s is not None:
            found = workload_changes.with_delayed_tools(found, self.added_delay_s, seed)
        if not self.reuses:
            found = workload_changes.without_reuse(found)
        if self.children:
            found = workload_changes.with_children(found, self.children)
        return found

    def recorded(self) -> list[SessionScript]:
        """All usable sessions of the trace."""
        return self._scripts(FOOTPRINT_SEED)

    def trace_read(self) -> Trace:
        """The trace itself; only where there is one."""
        assert self.trace is not None
        return _load(self.trace, self.trace_format)

    def _scripts(self, seed: int) -> list[SessionScript]:
        reading = TraceReading(
            shared_tokens=self.trace_shared_tokens,
            gap_s_max=self.gap_s_max,
            turns_max=self.turns_max,
            context_tokens_max=self.context_tokens_max,
            output_tokens_max=self.output_tokens_max,
        )
        return scripts_of(self.trace_read(), reading, seed)

    def shared_tokens(self) -> int:
        """Longest prefix that sessions have in common."""
        return max(session.shared_tokens for session in _typical(self))

    def footprint_tokens(self) -> float:
        """Mean private context of a session, the same for all seeds."""
        return mean_private_tokens(list(_typical(self)))


@lru_cache(maxsize=32)
def _typical(choice: WorkloadChoice) -> Sequence[SessionScript]:
    return choice.sessions(FOOTPRINT_SESSIONS, FOOTPRINT_SEED)


@lru_cache(maxsize=4)
def _load(path: str, format_name: str | None) -> Trace:
    return files.load(Path(path), format_name)
