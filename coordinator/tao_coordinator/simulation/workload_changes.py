"""Changes of a workload, whatever it came from: longer tools, synchronous ends, broken prefixes."""

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


def _each_turn(
    sessions: Sequence[SessionScript], change: Callable[[TurnScript], TurnScript]
) -> list[SessionScript]:
    return [
        replace(session, turns=tuple(change(turn) for turn in session.turns))
        for session in sessions
    ]
