"""What the trace itself says of how the sessions fared: the check on the modelled engines."""

from collections.abc import Iterable
from dataclasses import dataclass

from tao_coordinator.traces.records import SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRecorded:
    """Means over the sessions whose replies all have a duration."""

    sessions: int
    task_s: float
    """From the first call to the end of the last reply, pauses cut as in the replay."""
    hold_s: float
    """Per session."""
    hit_rate: float | None
    """`None`: the trace does not tell cached tokens."""

    def sentence(self) -> str:
        """For people."""
        parts = [f"As recorded: {self.task_s:,.0f} s per task on average"]
        if self.hit_rate is not None:
            parts.append(f"hit rate {self.hit_rate:.3f}")
        if self.hold_s > 0:
            parts.append(f"{self.hold_s:,.1f} s held per session")
        return ", ".join(parts) + "."


def as_recorded(
    sessions: Iterable[SessionRecord], turns_min: int, gap_s_max: float
) -> AsRecorded | None:
    """Read it off; `None` where no session tells enough.

    Args:
        sessions: of the trace.
        turns_min: shorter ones are not replayed either.
        gap_s_max: longer pauses count as this.
    """
    tasks_s: list[float] = []
    hold_s = 0.0
    prompt = cached = 0
    for session in sessions:
        ends_s = [t.arrival_s + t.hold_s + t.duration_s for t in session.turns if t.duration_s]
        if not turns_min <= len(session.turns) == len(ends_s):
            continue
        too_long_s = sum(max(0.0, turn.gap_s - gap_s_max) for turn in session.turns[1:])
        tasks_s.append(max(ends_s) - session.turns[0].arrival_s - too_long_s)
        hold_s += sum(turn.hold_s for turn in session.turns)
        for turn in session.turns:
            if turn.cached_tokens is not None and turn.input_tokens is not None:
                prompt += turn.input_tokens
                cached += min(turn.cached_tokens, turn.input_tokens)
    if not tasks_s:
        return None
    return AsRecorded(
        sessions=len(tasks_s),
        task_s=sum(tasks_s) / len(tasks_s),
        hold_s=hold_s / len(tasks_s),
        hit_rate=cached / prompt if prompt else None,
    )
