"""Changes of a workload, whatever it came from: longer tools, broken prefixes, sub-agents."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tao_coordinator.simulation.agent_script import SessionScript, ToolScript, TurnScript

LONG_TOOL_S: Final = (30.0, 300.0)
_LONG_KEYS: Final = ("build", "test-suite", "python -m pytest")
_LONG_WEIGHTS: Final = (0.35, 0.35, 0.30)


def with_long_tools(
    sessions: Sequence[SessionScript], share: float, seed: int
) -> list[SessionScript]:
    """Replace a share of all calls by ones of 30-300 s (log-uniform), 600 s time-out.

    A third of them hide under the command head of a test run. With a share of 0.1 this turns the
    policy study's `swe` into its `mix`.
    """
    chance = random.Random(f"long-tools/{seed}")

    def change(turn: TurnScript) -> TurnScript:
        if chance.random() >= share:
            return turn
        low, high = LONG_TOOL_S
        duration_s = math.exp(chance.uniform(math.log(low), math.log(high)))
        key = chance.choices(_LONG_KEYS, _LONG_WEIGHTS)[0]
        tool = ToolScript(name="Bash", key=key, duration_s=duration_s, timeout_s=600.0)
        return replace(turn, tools=(tool,), gap_s=0.0)

    return _each_turn(sessions, change)


def with_delayed_tools(
    sessions: Sequence[SessionScript], delay_s: tuple[float, float], seed: int
) -> list[SessionScript]:
    """Add a fixed delay per session, uniform in `delay_s`, to all its calls (TAO's Appendix G)."""
    chance = random.Random(f"delays/{seed}")
    found: list[SessionScript] = []
    for session in sessions:
        added_s = chance.uniform(*delay_s)

        def change(turn: TurnScript, added_s: float = added_s) -> TurnScript:
            tools = tuple(
                replace(
                    tool,
                    duration_s=tool.duration_s + added_s,
                    timeout_s=None if tool.timeout_s is None else tool.timeout_s + added_s,
                )
                for tool in turn.tools
            )
            return replace(turn, tools=tools)

        found += _each_turn([session], change)
    return found


def without_reuse(sessions: Sequence[SessionScript]) -> list[SessionScript]:
    """Every prompt is rewritten behind the shared prefix."""
    return [
        replace(
            session,
            turns=tuple(
                replace(turn, kept_tokens=min(session.shared_tokens, turn.kept_tokens))
                for turn in session.turns
            ),
        )
        for session in sessions
    ]


def with_children(sessions: Sequence[SessionScript], number: int) -> list[SessionScript]:
    """Make each session the parent of the `number` sessions that follow it, as forked agents are.

    A child's prompts begin with its parent's first prompt, as far as the child's own first prompt
    is as long; lengths, replies and tools stay. Parents and children count as one family from then
    on, so that what the workload's sessions had in common before is common to a family only. A
    child starts when a worker takes it, soon after its parent, which does not wait for it.
    """
    found: list[SessionScript] = []
    for begin in range(0, len(sessions), number + 1):
        parent, *children = sessions[begin : begin + number + 1]
        prefix = parent.turns[0].input_tokens
        family = f"fork of {parent.session_id}"
        found.append(replace(parent, family=family, shared_tokens=prefix))
        found += [
            replace(
                child,
                family=family,
                shared_tokens=min(prefix, child.turns[0].input_tokens),
                parent_session_id=parent.session_id,
            )
            for child in children
        ]
    return found


def _each_turn(
    sessions: Sequence[SessionScript], change: Callable[[TurnScript], TurnScript]
) -> list[SessionScript]:
    return [
        replace(session, turns=tuple(change(turn) for turn in session.turns))
        for session in sessions
    ]
