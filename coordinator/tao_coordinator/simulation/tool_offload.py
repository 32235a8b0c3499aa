"""An engine that moves caches to the host while their sessions are in tools, as TokenCake does.

Modelled of TokenCake (arXiv 2510.18586, its time scheduler): when a session's tools start, their
duration is forecast from past calls of the same tool and command (their mean; a tool never seen is
not forecast). If the session will be away for longer than its cache takes to the host and back, and
longer than `AWAY_S_MIN`, the cache goes to the host at once and its room in the pool is free; it is
uploaded so early that it is back when the session is expected. Who comes earlier loads what is
missing then (`host_tier`); who comes later finds it in the pool, or has lost it to others and loads
it again. Nothing is written through, as there.

Left out: its space scheduler (partitions by agent type: here all agents are of one type), forecasts
given by the application, and uploads in portions as room appears (here one that finds no room is
dropped).
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tao_coordinator.core.running_mean import RunningMean
from tao_coordinator.simulation.agent_script import ToolScript, TurnScript

if TYPE_CHECKING:
    from tao_coordinator.simulation.agents import Agent
    from tao_coordinator.simulation.fleet import Fleet

AWAY_S_MIN: Final = 1.0
"""A shorter absence is not worth two transfers: two thirds of calls are."""
GAIN: Final = 0.1
"""Of one past duration of a tool and command."""


class ToolOffload:
    """Watches the tools of all sessions of a fleet."""

    def __init__(self, fleet: "Fleet") -> None:
        """Nothing is known of any tool."""
        self._fleet = fleet
        self._durations: defaultdict[tuple[str, str], RunningMean] = defaultdict(
            lambda: RunningMean(GAIN)
        )

    def tools_started(self, agent: "Agent", turn: TurnScript) -> None:
        """A reply is over and what follows it has begun."""
        fleet = self._fleet
        away_s = 0.0
        for tool in turn.tools:
            fleet.at(fleet.now_s + tool.end_s, self._ended, tool)
            if not tool.background:
                away_s = max(away_s, tool.offset_s + self._durations[tool.name, tool.key].value)
        transfer_s = fleet.transfer_s(agent.backend, turn.input_tokens + turn.output_tokens)
        if away_s < max(AWAY_S_MIN, 2.0 * transfer_s):
            return
        fleet.at(fleet.now_s + transfer_s, self._move, agent, agent.turn, True)
        fleet.at(fleet.now_s + away_s - transfer_s, self._move, agent, agent.turn, False)

    def _ended(self, tool: ToolScript) -> None:
        self._durations[tool.name, tool.key].see(tool.duration_s)

    def _move(self, agent: "Agent", turn: int, to_host: bool) -> None:
        if agent.turn == turn and not agent.lease_id:  # not back yet
            self._fleet.move(agent.backend, agent.chain, to_host=to_host)
