"""The picture of a coordinator in one bounded document, for the dashboard and `tao top`.

`/tao/v1/state` has everything; this has what fits on a screen, the busiest first, however many
sessions there are.
"""

from collections import Counter
from dataclasses import asdict
from typing import Final

from tao_coordinator.core.observation import Observation, ReadinessView, SessionView
from tao_coordinator.service.runtime import Runtime

SESSIONS_MAX: Final = 100
HELD_MAX: Final = 100
READY_HORIZON_S: Final = 1.0

_PHASES: Final = ("inference", "tool", "wait", "idle", "held")
"""In this order they are shown; those that are held are in the waiting pool already."""


def overview(runtime: Runtime) -> dict[str, object]:
    """The document.

    Args:
        runtime: Looked at now; O(sessions).
    """
    observation = runtime.observe()
    phases = Counter(session.phase for session in observation.sessions)
    shown = sorted(observation.sessions, key=_by_phase)[:SESSIONS_MAX]
    return {
        "policy": observation.policy,
        "passes_through": observation.passes_through,
        "uptime_s": observation.uptime_s,
        "backends": observation.backends,
        "held": observation.held[:HELD_MAX],
        "num_held": len(observation.held),
        "num_overdue": sum(turn.overdue for turn in observation.held),
        "longest_hold_s": max((turn.hold_s for turn in observation.held), default=0.0),
        "sessions": [_session(runtime, session) for session in shown],
        "num_sessions": len(observation.sessions),
        "phases": {phase: phases.get(phase, 0) for phase in _PHASES},
        "num_tools": _num_tools(observation),
        "counters": observation.counters,
        "plans": [
            {"path": path, "outcome": outcome, "number": number}
            for (path, outcome), number in sorted(observation.plans.made.items())
        ],
        "readiness": _readiness(runtime.honesty()),
        "journal": runtime.journal_state(),
        "decisions": runtime.recent_decisions(),
    }


def _by_phase(session: SessionView) -> tuple[int, float, str]:
    return _PHASES.index(session.phase), session.idle_s, session.session_id


def _session(runtime: Runtime, session: SessionView) -> dict[str, object]:
    document = asdict(session)
    del document["open_tool_calls"]
    document["expected_return"] = (
        runtime.expected_return(session.session_id).to_json(READY_HORIZON_S)
        if session.phase in ("tool", "wait", "idle")
        else None
    )
    return document


def _num_tools(observation: Observation) -> int:
    # Agents and models of one session id share their calls.
    tools = {session.session_id: len(session.open_tools) for session in observation.sessions}
    return sum(tools.values())


def _readiness(view: ReadinessView) -> dict[str, object]:
    document = asdict(view)
    del document["detail"]
    return document
